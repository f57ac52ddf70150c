// The workshop on the official TypeScript SDK, @modelcontextprotocol/sdk 1.x: handshake revisions only. See README.md.
//   workshop_typescript1.mjs NODE_MODULES stdio | http
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

const [folder, transportName] = process.argv.slice(2);
const require = createRequire(`${folder}/`); // this script does not lie beside the SDK
const { Server } = require('@modelcontextprotocol/sdk/server/index.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const NOTE = 'note://one';
const takes = (properties) => ({ type: 'object', properties, required: Object.keys(properties) });
const FORM = takes({ colour: { type: 'string' } });
const TOOLS = {
  echo: [takes({ text: { type: 'string' } }), ({ text }) => text],
  form: [
    takes({}),
    async (_, extra) => {
      const request = { method: 'elicitation/create', params: { message: 'Which colour?', requestedSchema: FORM } };
      const { action, content } = await extra.sendRequest(request, types.ElicitResultSchema);
      return `${action} ${content?.colour}`;
    },
  ],
  sample: [
    takes({}),
    async (_, extra) => {
      const params = { messages: [{ role: 'user', content: { type: 'text', text: 'well?' } }], maxTokens: 9 };
      const request = { method: 'sampling/createMessage', params };
      return `the model said ${(await extra.sendRequest(request, types.CreateMessageResultSchema)).content.text}`;
    },
  ],
  where: [
    takes({}),
    async (_, extra) => {
      const { roots } = await extra.sendRequest({ method: 'roots/list' }, types.ListRootsResultSchema);
      return roots.map(({ uri }) => uri).join(' ');
    },
  ],
  count: [
    takes({ to: { type: 'integer' } }),
    async ({ to }, extra) => {
      const progressToken = extra._meta?.progressToken;
      for (let progress = 1; progress <= to && progressToken !== undefined; progress += 1) {
        await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: to } });
      }
      return `counted to ${to}`;
    },
  ],
  log: [
    takes({}),
    async (_, extra) => {
      await extra.sendNotification({ method: 'notifications/message', params: { level: 'warning', data: 'noted' } });
      return 'logged';
    },
  ],
  change: [
    takes({}),
    async (_, __, server) => {
      await server.sendToolListChanged();
      await server.sendResourceUpdated({ uri: NOTE });
      return 'changed';
    },
  ],
};

function newServer() {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true },
    prompts: {},
    logging: {},
    completions: {},
  };
  const server = new Server({ name: 'workshop', version: '1' }, { capabilities });
  const on = (schema, handle) => server.setRequestHandler(schema, ({ params }, extra) => handle(params ?? {}, extra));
  on(types.ListToolsRequestSchema, () => ({
    tools: Object.entries(TOOLS).map(([name, [inputSchema]]) => ({ name, inputSchema })),
  }));
  on(types.CallToolRequestSchema, async ({ name, arguments: given }, extra) => ({
    content: [{ type: 'text', text: await TOOLS[name][1](given ?? {}, extra, server) }],
  }));
  on(types.ListResourcesRequestSchema, () => ({ resources: [{ uri: NOTE, name: 'one', mimeType: 'text/plain' }] }));
  on(types.ReadResourceRequestSchema, ({ uri }) => {
    if (uri !== NOTE) throw new types.McpError(-32002, 'no such note', { uri });
    return { contents: [{ uri, mimeType: 'text/plain', text: 'the first note' }] };
  });
  on(types.SubscribeRequestSchema, () => ({}));
  on(types.UnsubscribeRequestSchema, () => ({}));
  on(types.SetLevelRequestSchema, () => ({}));
  on(types.ListPromptsRequestSchema, () => ({
    prompts: [{ name: 'greet', arguments: [{ name: 'name', required: true }] }],
  }));
  on(types.GetPromptRequestSchema, ({ arguments: given }) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Hello, ${given?.name}!` } }],
  }));
  on(types.CompleteRequestSchema, ({ argument }) => ({
    completion: { values: ['Ada', 'Alan', 'Grace'].filter((name) => name.startsWith(argument.value)) },
  }));
  return server;
}

async function serveStdio() {
  const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
  await newServer().connect(new StdioServerTransport());
  process.stdin.once('end', () => process.exit(0));
}

function serveHttp() {
  const { createMcpExpressApp } = require('@modelcontextprotocol/sdk/server/express.js');
  const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
  const sessions = new Map();
  const app = createMcpExpressApp({ host: '127.0.0.1' });
  app.all('/mcp', async (request, response) => {
    const known = sessions.get(request.headers['mcp-session-id']);
    if (known !== undefined) return known.handleRequest(request, response, request.body);
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, transport),
      onsessionclosed: (id) => void sessions.delete(id),
    });
    await newServer().connect(transport);
    return transport.handleRequest(request, response, request.body);
  });
  const listener = app.listen(0, '127.0.0.1', () => {
    process.stdout.write(`listening on 127.0.0.1:${listener.address().port}\n`);
  });
  process.once('SIGTERM', () => process.exit(0));
}

await (transportName === 'stdio' ? serveStdio() : serveHttp());
