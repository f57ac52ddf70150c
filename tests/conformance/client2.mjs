// The conformance client in 2026-07-28, where the server speaks it, on the official TypeScript SDK 2.x. See docs/conformance.md.
//   client2.mjs NODE_MODULES URL                       over Streamable HTTP
//   client2.mjs NODE_MODULES COMMAND ARGUMENT… URL     over stdio: the URL is the command's last argument
// The suite says in MCP_CONFORMANCE_SCENARIO what it is about to check. An exit code other than 0 fails the scenario.
import { createRequire } from 'node:module';
import { run } from './scenarios.mjs';

const [folder, ...target] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

function newTransport() {
  if (target.length === 1) return new StreamableHTTPClientTransport(new URL(target[0]));
  const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');
  const [command, ...args] = target;
  return new StdioClientTransport({ command, args, env: process.env });
}

const capabilities = { elicitation: { form: { applyDefaults: true } } };
const options = { capabilities, versionNegotiation: { mode: 'auto' } };
const client = new Client({ name: 'conformance-client', version: '1.0.0' }, options);
await run(client, newTransport(), (handle) => client.setRequestHandler('elicitation/create', handle));
