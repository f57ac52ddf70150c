// node --require this: a server that names no host listens on 127.0.0.1 only, and says on stdout where it listens.
'use strict';
const { Server } = require('node:net');
const original = Server.prototype.listen;

Server.prototype.listen = function (first, ...rest) {
  this.once('listening', () => process.stdout.write(`listening on 127.0.0.1:${this.address().port}\n`));
  if (first !== null && typeof first === 'object') {
    const isNetwork = first.port !== undefined && first.host === undefined;
    return original.call(this, isNetwork ? { ...first, host: '127.0.0.1' } : first, ...rest);
  }
  const isPort = typeof first === 'number' || /^[0-9]+$/.test(String(first));
  if (isPort && typeof rest[0] !== 'string') {
    return original.call(this, first, '127.0.0.1', ...rest);
  }
  return original.call(this, first, ...rest);
};
