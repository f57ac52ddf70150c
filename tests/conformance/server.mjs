// The conformance server in the handshake revisions, on the official TypeScript SDK 1.x. See docs/conformance.md.
//   server.mjs NODE_MODULES http    Streamable HTTP on a free port of 127.0.0.1; prints its URL
//   server.mjs NODE_MODULES stdio
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { PROMPTS, TOOLS, complete, prompts, read, resources, templates, tools } from './behaviour.mjs';

const [folder, transportName] = process.argv.slice(2);
const require = createRequire(`${folder}/`); // this script does not lie beside the SDK
const { Server } = require('@modelcontextprotocol/sdk/server/index.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const RETRY_MS = 500; // what a client that is cut off is told to wait

// --- A session's server ---------------------------------------------------------------------------------------------

const LEVELS = types.LoggingLevelSchema.options; // from debug to emergency

const RESULTS = {
  'elicitation/create': types.ElicitResultSchema,
  'sampling/createMessage': types.CreateMessageResultSchema,
  'roots/list': types.ListRootsResultSchema,
};
const CHANGED = { tools: 'notifications/tools/list_changed', prompts: 'notifications/prompts/list_changed' };

function newServer() {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true },
    prompts: { listChanged: true },
    logging: {},
    completions: {},
  };
  const server = new Server({ name: 'conformance-server', version: '1.0.0' }, { capabilities });
  let lowest = 0;
  const on = (schema, handle) => server.setRequestHandler(schema, ({ params }, extra) => handle(params ?? {}, extra));

  /** What a tool or prompt may do while it is asked. */
  const contextOf = (extra) => ({
    can: (capability) => server.getClientCapabilities()?.[capability] !== undefined,
    async ask(requests) {
      const one = async ([key, request]) => [key, await extra.sendRequest(request, RESULTS[request.method])];
      return Object.fromEntries(await Promise.all(Object.entries(requests).map(one)));
    },
    async log(level, data) {
      if (LEVELS.indexOf(level) < lowest) return;
      await extra.sendNotification({ method: 'notifications/message', params: { level, data, logger: 'conformance' } });
    },
    async progress(progress, total) {
      const progressToken = extra._meta?.progressToken;
      if (progressToken === undefined) return;
      await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total } });
    },
    change: (list) => server.notification({ method: CHANGED[list] }),
    cutOff: () => extra.closeSSEStream?.(),
  });

  on(types.SetLevelRequestSchema, ({ level }) => {
    lowest = LEVELS.indexOf(level);
    return {};
  });
  on(types.CompleteRequestSchema, complete);
  on(types.ListToolsRequestSchema, () => ({ tools: tools() }));
  on(types.CallToolRequestSchema, async (params, extra) => {
    const tool = TOOLS[params.name];
    if (tool === undefined) throw new types.McpError(types.ErrorCode.InvalidParams, `no such tool: ${params.name}`);
    try {
      return { content: await tool[2](params.arguments ?? {}, contextOf(extra)) };
    } catch (error) {
      return { content: [{ type: 'text', text: error.message }], isError: true };
    }
  });

  on(types.ListResourcesRequestSchema, () => ({ resources: resources() }));
  on(types.ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: templates() }));
  on(types.ReadResourceRequestSchema, ({ uri }) => {
    const found = read(uri);
    if (found === undefined) throw new types.McpError(-32002, `no such resource: ${uri}`, { uri });
    return { contents: [found] };
  });
  on(types.SubscribeRequestSchema, () => ({}));
  on(types.UnsubscribeRequestSchema, () => ({}));

  on(types.ListPromptsRequestSchema, () => ({ prompts: prompts() }));
  on(types.GetPromptRequestSchema, async (params, extra) => {
    const prompt = PROMPTS[params.name];
    if (prompt === undefined) throw new types.McpError(types.ErrorCode.InvalidParams, `no such prompt: ${params.name}`);
    return { messages: await prompt[2](params.arguments ?? {}, contextOf(extra)) };
  });
  return server;
}

// --- Transports -----------------------------------------------------------------------------------------------------

async function serveStdio() {
  const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
  await newServer().connect(new StdioServerTransport());
  process.stdin.once('end', () => process.exit(0));
}

/** What a session has sent, in order, for those who come back. A stream's first event, which opens it, has no message. */
class Sent {
  #events = [];

  storeEvent(streamId, message) {
    return Promise.resolve(String(this.#events.push({ streamId, message })));
  }

  getStreamIdForEventId(eventId) {
    return Promise.resolve(this.#events[Number(eventId) - 1]?.streamId);
  }

  async replayEventsAfter(lastEventId, { send }) {
    const streamId = await this.getStreamIdForEventId(lastEventId);
    for (const [at, event] of this.#events.entries()) {
      const isWanted = at >= Number(lastEventId) && event.streamId === streamId && 'jsonrpc' in event.message;
      if (isWanted) await send(String(at + 1), event.message);
    }
    return streamId;
  }
}

/**
 * Read a request as one of the revision that its session agreed on. The suite's own requests name an older one in
 * `server-sse-polling`, for which the SDK would leave out what that scenario looks for.
 */
function setRevision(request, revision) {
  const isName = (word, at) => at % 2 === 0 && word.toLowerCase() === 'mcp-protocol-version';
  const at = request.rawHeaders.findIndex(isName);
  if (at >= 0 && revision !== undefined) request.rawHeaders[at + 1] = revision;
}

function serveHttp() {
  const { createMcpExpressApp } = require('@modelcontextprotocol/sdk/server/express.js');
  const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
  const sessions = new Map();

  const app = createMcpExpressApp({ host: '127.0.0.1' });
  app.all('/mcp', async (request, response) => {
    const id = request.headers['mcp-session-id'];
    if (id !== undefined) {
      const session = sessions.get(id);
      const error = { jsonrpc: '2.0', id: null, error: { code: -32001, message: 'no such session' } };
      if (session === undefined) return void response.status(404).json(error);
      setRevision(request, session.revision);
      return session.transport.handleRequest(request, response, request.body);
    }
    const revision = request.body?.params?.protocolVersion;
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: new Sent(),
      retryInterval: RETRY_MS,
      onsessioninitialized: (minted) => void sessions.set(minted, { transport, revision }),
      onsessionclosed: (closed) => void sessions.delete(closed),
    });
    await newServer().connect(transport);
    return transport.handleRequest(request, response, request.body);
  });

  const listener = app.listen(0, '127.0.0.1', () => {
    process.stdout.write(`listening on http://127.0.0.1:${listener.address().port}/mcp\n`);
  });
  process.once('SIGTERM', () => process.exit(0));
}

await (transportName === 'stdio' ? serveStdio() : serveHttp());
