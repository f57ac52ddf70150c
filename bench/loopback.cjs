// Preloaded into a peer on Node that has no option for the address to listen on: it listens on the loopback alone.
const { Server } = require("node:net");
const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...others) {
  return typeof port === "number" ? listen.call(this, port, "127.0.0.1", ...others) : listen.call(this, port, ...others);
};
