// Preloaded into a peer on Node that has no option for the address to listen on: it listens on the loopback alone.
const { Server } = require("node:net");
const { listen } = Server.prototype;
Server.prototype.listen = function (...given) {
  return typeof given[0] === "number" ? listen.call(this, given[0], "127.0.0.1", ...given.slice(1)) : listen.apply(this, given);
};
