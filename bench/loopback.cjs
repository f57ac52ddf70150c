// Preloaded into a peer on Node that has no option for the address to listen on: it listens on the loopback alone.
const { Server } = require("node:net");
const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...others) {
  const host = typeof port === "number" ? ["127.0.0.1"] : [];
  return listen.call(this, port, ...host, ...others);
};
