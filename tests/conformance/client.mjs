// The conformance client in the handshake revisions, on the official TypeScript SDK 1.x. See docs/conformance.md.
//   client.mjs NODE_MODULES URL                       over Streamable HTTP
//   client.mjs NODE_MODULES COMMAND ARGUMENT… URL     over stdio: the URL is the command's last argument
// The suite says in MCP_CONFORMANCE_SCENARIO what it is about to check. An exit code other than 0 fails the scenario.
import { createRequire } from 'node:module';
import { run } from './scenarios.mjs';

const [folder, ...target] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { ElicitRequestSchema } = require('@modelcontextprotocol/sdk/types.js');

function newTransport() {
  if (target.length === 1) {
    const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
    return new StreamableHTTPClientTransport(new URL(target[0]));
  }
  const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
  const [command, ...args] = target;
  return new StdioClientTransport({ command, args, env: process.env });
}

const capabilities = { elicitation: { form: { applyDefaults: true } } };
const client = new Client({ name: 'conformance-client', version: '1.0.0' }, { capabilities });
await run(client, newTransport(), (handle) => client.setRequestHandler(ElicitRequestSchema, handle));
