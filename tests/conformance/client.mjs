// The client that the conformance suite starts, on the official TypeScript SDK. See docs/conformance.md.
//   client.mjs NODE_MODULES URL                       over Streamable HTTP
//   client.mjs NODE_MODULES COMMAND ARGUMENT… URL     over stdio: the URL is the command's last argument
// The suite says in MCP_CONFORMANCE_SCENARIO what it is about to check. An exit code other than 0 fails the scenario.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const [folder, ...target] = process.argv.slice(2);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO;
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

/** The text that a tool answers with. */
async function call(client, name, args = {}) {
  const { content, isError } = await client.callTool({ name, arguments: args });
  assert.ok(!isError, content[0]?.text);
  return content[0].text;
}

const SCENARIOS = {
  async initialize() {},
  async tools_call(client) {
    assert.match(await call(client, 'add_numbers', { a: 4, b: 38 }), /42/);
  },
  async 'elicitation-sep1034-client-defaults'(client) {
    await call(client, 'test_client_elicitation_defaults');
  },
  async 'sse-retry'(client) {
    await call(client, 'test_reconnection');
  },
};

const run = SCENARIOS[scenario];
assert.ok(run, `nothing is known about the scenario ${scenario}`);
const capabilities = { elicitation: { form: { applyDefaults: true } } };
const client = new Client({ name: 'conformance-client', version: '1.0.0' }, { capabilities });
client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: {} })); // the SDK fills in the defaults
await client.connect(newTransport());
await client.listTools();
await run(client);
await client.close();
