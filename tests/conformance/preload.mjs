// node --import this, for the suite.
import fs from 'node:fs';
import { register } from 'node:module';
import { Server } from 'node:net';

// Its servers name no host and read their port in the same breath. So the address has to be put in where Node.js binds,
// for `listen` would look a host up first, which takes a turn of the loop.
const bind = Server.prototype._listen2;
if (typeof bind !== 'function') throw new Error(`Node.js ${process.version} has no net.Server._listen2`);
Server.prototype._listen2 = function (address, port, addressType, ...rest) {
  return bind.call(this, address ?? '127.0.0.1', port, 4, ...rest);
};

// It imports globSync from fs, which Node.js has since version 22. Nothing that is run here calls it, so for older ones
// a name that is no function will do.
const asModule = (source) => `data:text/javascript,${encodeURIComponent(source)}`;
const FS = asModule("export * from 'node:fs'; export { default } from 'node:fs'; export const globSync = undefined;");
const HOOKS = `
  export const resolve = (specifier, context, next) =>
    specifier === 'fs' && context.parentURL?.includes('/conformance/dist/')
      ? { url: ${JSON.stringify(FS)}, shortCircuit: true }
      : next(specifier, context);
`;
if (!('globSync' in fs)) register(asModule(HOOKS));
