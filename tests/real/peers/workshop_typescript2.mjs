// The workshop on the official TypeScript SDK 2.x, @modelcontextprotocol/server, in the eras it is told. See README.md.
//   workshop_typescript2.mjs NODE_MODULES stdio | http legacy | modern | dual
// What a tool asks of the client it asks by its result, as the newest revision has it; for older ones the SDK sends it.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const [folder, transportName, eras] = process.argv.slice(2);
const require = createRequire(`${folder}/`); // this script does not lie beside the SDK
const { Server, ProtocolError, createMcpHandler, inputRequired, isLegacyRequest } = require('@modelcontextprotocol/server');

const NOTE = 'note://one';
const takes = (properties) => ({ type: 'object', properties, required: Object.keys(properties) });

/** A tool that asks one question, and what it makes of the answer. */
const asking = (question, tell) => (_, context) => {
  const answer = context.mcpReq.inputResponses?.answer;
  return answer === undefined ? inputRequired({ inputRequests: { answer: question }, requestState: 'asked' }) : tell(answer);
};

const TOOLS = {
  echo: [takes({ text: { type: 'string' } }), ({ text }) => text],
  form: [
    takes({}),
    asking(
      { method: 'elicitation/create', params: { message: 'Which colour?', requestedSchema: takes({ colour: { type: 'string' } }) } },
      ({ action, content }) => `${action} ${content?.colour}`,
    ),
  ],
  sample: [
    takes({}),
    asking(
      {
        method: 'sampling/createMessage',
        params: { messages: [{ role: 'user', content: { type: 'text', text: 'well?' } }], maxTokens: 9 },
      },
      ({ content }) => `the model said ${content.text}`,
    ),
  ],
  where: [takes({}), asking({ method: 'roots/list' }, ({ roots }) => roots.map(({ uri }) => uri).join(' '))],
  count: [
    takes({ to: { type: 'integer' } }),
    async ({ to }, { mcpReq }) => {
      const progressToken = mcpReq._meta?.progressToken;
      for (let progress = 1; progress <= to && progressToken !== undefined; progress += 1) {
        await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: to } });
      }
      return `counted to ${to}`;
    },
  ],
  log: [
    takes({}),
    async (_, { mcpReq }) => {
      await mcpReq.log('warning', 'noted');
      return 'logged';
    },
  ],
  change: [
    takes({}),
    async (_, __, { server, publish }) => {
      if (publish !== undefined) publish();
      else {
        await server.sendToolListChanged();
        await server.sendResourceUpdated({ uri: NOTE });
      }
      return 'changed';
    },
  ],
};

/** @param publish announces a change to all who listen; without it the server tells its own client. */
function newServer(publish) {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true },
    prompts: {},
    logging: {},
    completions: {},
  };
  const server = new Server({ name: 'workshop', version: '1' }, { capabilities });
  const on = (method, handle) => server.setRequestHandler(method, ({ params }, context) => handle(params ?? {}, context));
  on('tools/list', () => ({ tools: Object.entries(TOOLS).map(([name, [inputSchema]]) => ({ name, inputSchema })) }));
  on('tools/call', async ({ name, arguments: given }, context) => {
    const said = await TOOLS[name][1](given ?? {}, context, { server, publish });
    return typeof said === 'string' ? { content: [{ type: 'text', text: said }] } : said;
  });
  on('resources/list', () => ({ resources: [{ uri: NOTE, name: 'one', mimeType: 'text/plain' }] }));
  on('resources/read', ({ uri }) => {
    if (uri !== NOTE) throw new ProtocolError(-32602, 'no such note', { uri });
    return { contents: [{ uri, mimeType: 'text/plain', text: 'the first note' }] };
  });
  on('resources/subscribe', () => ({}));
  on('resources/unsubscribe', () => ({}));
  on('logging/setLevel', () => ({}));
  on('prompts/list', () => ({ prompts: [{ name: 'greet', arguments: [{ name: 'name', required: true }] }] }));
  on('prompts/get', ({ arguments: given }) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Hello, ${given?.name}!` } }],
  }));
  on('completion/complete', ({ argument }) => ({
    completion: { values: ['Ada', 'Alan', 'Grace'].filter((name) => name.startsWith(argument.value)) },
  }));
  return server;
}

async function serveStdio() {
  const { serveStdio: serve, StdioServerTransport } = require('@modelcontextprotocol/server/stdio');
  if (eras === 'legacy') await newServer().connect(new StdioServerTransport());
  else serve(() => newServer(), { legacy: eras === 'modern' ? 'reject' : 'serve' });
  process.stdin.once('end', () => process.exit(0));
}

/** Sessions of the handshake revisions, each with a server of its own. */
function withSessions() {
  const { NodeStreamableHTTPServerTransport } = require('@modelcontextprotocol/node');
  const sessions = new Map();
  return async (request, response, body) => {
    const known = sessions.get(request.headers['mcp-session-id']);
    if (known !== undefined) return known.handleRequest(request, response, body);
    const transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, transport),
      onsessionclosed: (id) => void sessions.delete(id),
    });
    await newServer().connect(transport);
    return transport.handleRequest(request, response, body);
  };
}

async function bodyOf(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces).toString() || 'null');
}

function serveHttp() {
  const { toNodeHandler, toWebRequest } = require('@modelcontextprotocol/node');
  const handler = createMcpHandler(() => newServer(announce), { legacy: 'reject' });
  const announce = () => {
    handler.notify.toolsChanged();
    handler.notify.resourceUpdated(NOTE);
  };
  const serveModern = toNodeHandler(handler);
  const serveLegacy = withSessions();
  const serveBoth = async (request, response) => {
    const hasSession = request.method !== 'POST' || request.headers['mcp-session-id'] !== undefined;
    if (hasSession) return serveLegacy(request, response);
    const body = await bodyOf(request);
    if (!(await isLegacyRequest(await toWebRequest(request, body), body))) return serveModern(request, response, body);
    return serveLegacy(request, response, body);
  };
  const serve = { legacy: serveLegacy, modern: serveModern, dual: serveBoth }[eras];
  const listener = createServer((request, response) => void serve(request, response));
  listener.listen(0, '127.0.0.1', () => {
    process.stdout.write(`listening on 127.0.0.1:${listener.address().port}\n`);
  });
  process.once('SIGTERM', () => process.exit(0));
}

await (transportName === 'stdio' ? serveStdio() : serveHttp());
