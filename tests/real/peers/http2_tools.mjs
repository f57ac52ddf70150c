// The official TypeScript SDK's Streamable HTTP server (1.x) on Node's http2, which speaks HTTP/2 alone.
//   http2_tools.mjs NODE_MODULES [CERTIFICATE KEY]: with TLS if these files are named. See README.md beside this file.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http2 from 'node:http2';
import { createRequire } from 'node:module';

const [folder, certificate, key] = process.argv.slice(2);
const require = createRequire(`${folder}/`); // this script does not lie beside the SDK
const { Server } = require('@modelcontextprotocol/sdk/server/index.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const BIG_BYTES = 5 * 1024 * 1024;
const seen = new Set();
const ended = [];
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const report = (extra, progress, total) => {
  const progressToken = extra._meta?.progressToken;
  if (progressToken === undefined) return undefined;
  return extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total } });
};

const TOOLS = {
  count: async ({ to }, extra) => {
    for (let number = 1; number <= to; number += 1) await report(extra, number, to);
    return `counted to ${to}`;
  },
  big: () => 'x'.repeat(BIG_BYTES),
  wait: async (_, extra) => {
    const isCancelled = new Promise((resolve) => extra.signal.addEventListener('abort', resolve));
    await report(extra, 1);
    await isCancelled;
    ended.push('wait');
    return '';
  },
  cancelled: async () => {
    for (let tries = 0; tries < 2000 && ended.length === 0; tries += 1) await pause(10);
    return ended.join(' ');
  },
  change: async (_, __, server) => {
    await server.sendToolListChanged();
    return 'changed';
  },
  versions: () => [...seen].sort().join(' '),
};

function newServer() {
  const server = new Server({ name: 'http2', version: '1' }, { capabilities: { tools: { listChanged: true } } });
  server.setRequestHandler(types.ListToolsRequestSchema, () => ({
    tools: Object.keys(TOOLS).map((name) => ({ name, inputSchema: { type: 'object' } })),
  }));
  server.setRequestHandler(types.CallToolRequestSchema, async ({ params }, extra) => ({
    content: [{ type: 'text', text: await TOOLS[params.name](params.arguments ?? {}, extra, server) }],
  }));
  return server;
}

const sessions = new Map();
async function handle(request, response) {
  seen.add(`${request.method}:${request.httpVersion}`);
  const known = sessions.get(request.headers['mcp-session-id']);
  if (known !== undefined) return known.handleRequest(request, response);
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => void sessions.set(id, transport),
    onsessionclosed: (id) => void sessions.delete(id),
  });
  await newServer().connect(transport);
  return transport.handleRequest(request, response);
}

const listener = certificate
  ? http2.createSecureServer({ cert: readFileSync(certificate), key: readFileSync(key) }, handle)
  : http2.createServer(handle);
listener.listen(0, '127.0.0.1', () => {
  process.stdout.write(`listening on 127.0.0.1:${listener.address().port}\n`);
});
process.once('SIGTERM', () => process.exit(0));
