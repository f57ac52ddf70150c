// A server with everything the conformance suite asks a server for, on the official TypeScript SDK. See docs/conformance.md.
//   server.mjs NODE_MODULES http    Streamable HTTP on a free port of 127.0.0.1; prints its URL
//   server.mjs NODE_MODULES stdio
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';

const [folder, transportName] = process.argv.slice(2);
const require = createRequire(`${folder}/`); // this script does not lie beside the SDK
const { Server } = require('@modelcontextprotocol/sdk/server/index.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const STEP_MS = 50; // the suite wants what a tool sends spread over time
const RETRY_MS = 500; // what a client that is cut off is told to wait
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGOoBwAAgQCA05RTSgAAAABJRU5ErkJggg=='; // one grey dot
const WAV = 'UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQgAAAAAACgjAADY3A=='; // half a millisecond

const text = (words) => ({ type: 'text', text: words });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const embedded = (uri, mimeType, words) => ({ type: 'resource', resource: { uri, mimeType, text: words } });
const user = (content) => ({ role: 'user', content });

// --- Tools ----------------------------------------------------------------------------------------------------------

const NOTHING = { type: 'object', properties: {} };
const strings = (...names) => ({
  type: 'object',
  properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])),
  required: names,
});

/** Ask the client's user for the members of a schema. */
async function elicit(extra, message, properties, required = []) {
  const requestedSchema = { type: 'object', properties, required };
  const params = { message, requestedSchema };
  return extra.sendRequest({ method: 'elicitation/create', params }, types.ElicitResultSchema);
}

const DEFAULTS = {
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
};

const options = ['option1', 'option2', 'option3'];
const titled = ['value1', 'value2', 'value3'].map((value, at) => ({ const: value, title: `Value number ${at + 1}` }));
const ENUMS = {
  untitledSingle: { type: 'string', enum: options },
  titledSingle: { type: 'string', oneOf: titled },
  legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['First', 'Second', 'Third'] },
  untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
  titledMulti: { type: 'array', items: { anyOf: titled } },
};

const DIALECT_2020_12 = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: { address: { type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } } },
  properties: { name: { type: 'string' }, address: { $ref: '#/$defs/address' } },
  additionalProperties: false,
};

// name: [description, input schema, what it answers with: content, or a promise of it]
const TOOLS = {
  test_simple_text: ['Answers with text.', NOTHING, () => [text('Only text.')]],
  test_image_content: ['Answers with an image.', NOTHING, () => [image]],
  test_audio_content: ['Answers with a sound.', NOTHING, () => [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }]],
  test_embedded_resource: [
    'Answers with a resource.',
    NOTHING,
    () => [embedded('test://embedded-resource', 'text/plain', 'The text of an embedded resource.')],
  ],
  test_multiple_content_types: [
    'Answers with text, an image and a resource.',
    NOTHING,
    () => [text('Three things:'), image, embedded('test://mixed-content-resource', 'application/json', '{"value": 1}')],
  ],
  test_tool_with_logging: [
    'Logs three times before it answers.',
    NOTHING,
    async (_, extra, session) => {
      for (const words of ['started', 'still at it', 'almost done']) {
        await session.log(extra, 'info', words);
        await sleep(STEP_MS);
      }
      return [text('Logged.')];
    },
  ],
  test_tool_with_progress: [
    'Reports progress three times, where the caller wants it, before it answers.',
    NOTHING,
    async (_, extra) => {
      const progressToken = extra._meta?.progressToken;
      for (const progress of [0, 50, 100]) {
        const params = { progressToken, progress, total: 100 };
        if (progressToken !== undefined) await extra.sendNotification({ method: 'notifications/progress', params });
        await sleep(STEP_MS);
      }
      return [text('Progressed.')];
    },
  ],
  test_error_handling: [
    'Always fails.',
    NOTHING,
    () => {
      throw new Error('this tool always fails');
    },
  ],
  test_sampling: [
    'Has the client ask its model.',
    strings('prompt'),
    async ({ prompt }, extra) => {
      const params = { messages: [user(text(prompt))], maxTokens: 100 };
      const request = { method: 'sampling/createMessage', params };
      const { content } = await extra.sendRequest(request, types.CreateMessageResultSchema);
      return [text(`The model said: ${content.text}`)];
    },
  ],
  test_elicitation: [
    'Has the client ask its user.',
    strings('message'),
    async ({ message }, extra) => {
      const { properties, required } = strings('username', 'email');
      return [text(`The user said: ${JSON.stringify(await elicit(extra, message, properties, required))}`)];
    },
  ],
  test_elicitation_sep1034_defaults: [
    'Asks with a default for every primitive type.',
    NOTHING,
    async (_, extra) => [text(JSON.stringify(await elicit(extra, 'Is this right?', DEFAULTS)))],
  ],
  test_elicitation_sep1330_enums: [
    'Asks with each way to write an enumeration.',
    NOTHING,
    async (_, extra) => [text(JSON.stringify(await elicit(extra, 'Which ones?', ENUMS)))],
  ],
  json_schema_2020_12_tool: ['Its schema says which dialect it is in.', DIALECT_2020_12, () => [text('Called.')]],
  test_reconnection: [
    'Cuts the caller off, where the transport can, and answers whoever comes back.',
    NOTHING,
    async (_, extra) => {
      extra.closeSSEStream?.();
      await sleep(2 * STEP_MS);
      return [text('Here you are again.')];
    },
  ],
};

// --- Resources and prompts ------------------------------------------------------------------------------------------

const TEMPLATE = /^test:\/\/template\/([^/]+)\/data$/;
const RESOURCES = {
  'test://static-text': { mimeType: 'text/plain', text: 'Text that stays as it is.' },
  'test://static-binary': { mimeType: 'image/png', blob: PNG },
  'test://watched-resource': { mimeType: 'text/plain', text: 'Text that one may subscribe to.' },
};

function read(uri) {
  const id = TEMPLATE.exec(uri)?.[1];
  if (id !== undefined) return { uri, mimeType: 'application/json', text: JSON.stringify({ id }) };
  if (uri in RESOURCES) return { uri, ...RESOURCES[uri] };
  throw new types.McpError(-32002, `no such resource: ${uri}`);
}

// name: [description, argument names, what it answers with]
const PROMPTS = {
  test_simple_prompt: ['Text without arguments.', [], () => [user(text('Say something simple.'))]],
  test_prompt_with_arguments: [
    'Text with two arguments.',
    ['arg1', 'arg2'],
    ({ arg1, arg2 }) => [user(text(`Say ${arg1}, then ${arg2}.`))],
  ],
  test_prompt_with_embedded_resource: [
    'A resource and text.',
    ['resourceUri'],
    ({ resourceUri }) => [
      user(embedded(resourceUri, 'text/plain', 'The text of a resource in a prompt.')),
      user(text('Say what is in it.')),
    ],
  ],
  test_prompt_with_image: ['An image and text.', [], () => [user(image), user(text('Say what it shows.'))]],
};

// --- A session's server ---------------------------------------------------------------------------------------------

const LEVELS = types.LoggingLevelSchema.options; // from debug to emergency

function newServer() {
  const capabilities = { tools: {}, resources: { subscribe: true }, prompts: {}, logging: {}, completions: {} };
  const server = new Server({ name: 'conformance-server', version: '1.0.0' }, { capabilities });
  const subscribed = new Set();
  let lowest = 0;
  const session = {
    async log(extra, level, data) {
      if (LEVELS.indexOf(level) < lowest) return;
      await extra.sendNotification({ method: 'notifications/message', params: { level, data, logger: 'conformance' } });
    },
  };
  const on = (schema, handle) => server.setRequestHandler(schema, ({ params }, extra) => handle(params ?? {}, extra));

  on(types.SetLevelRequestSchema, ({ level }) => {
    lowest = LEVELS.indexOf(level);
    return {};
  });
  on(types.CompleteRequestSchema, ({ argument }) => {
    const values = ['tester', 'testimony', 'text'].filter((value) => value.startsWith(argument.value));
    return { completion: { values, total: values.length, hasMore: false } };
  });

  on(types.ListToolsRequestSchema, () => ({
    tools: Object.entries(TOOLS).map(([name, [description, inputSchema]]) => ({ name, description, inputSchema })),
  }));
  on(types.CallToolRequestSchema, async (params, extra) => {
    const tool = TOOLS[params.name];
    if (tool === undefined) throw new types.McpError(types.ErrorCode.InvalidParams, `no such tool: ${params.name}`);
    try {
      return { content: await tool[2](params.arguments ?? {}, extra, session) };
    } catch (error) {
      return { content: [text(error.message)], isError: true };
    }
  });

  on(types.ListResourcesRequestSchema, () => ({
    resources: Object.entries(RESOURCES).map(([uri, { mimeType }]) => ({ uri, name: uri.slice(7), mimeType })),
  }));
  on(types.ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' }],
  }));
  on(types.ReadResourceRequestSchema, ({ uri }) => ({ contents: [read(uri)] }));
  on(types.SubscribeRequestSchema, ({ uri }) => {
    subscribed.add(uri);
    return {};
  });
  on(types.UnsubscribeRequestSchema, ({ uri }) => {
    subscribed.delete(uri);
    return {};
  });

  on(types.ListPromptsRequestSchema, () => ({
    prompts: Object.entries(PROMPTS).map(([name, [description, names]]) => ({
      name,
      description,
      arguments: names.map((argument) => ({ name: argument, required: true })),
    })),
  }));
  on(types.GetPromptRequestSchema, (params) => {
    const prompt = PROMPTS[params.name];
    if (prompt === undefined) throw new types.McpError(types.ErrorCode.InvalidParams, `no such prompt: ${params.name}`);
    return { messages: prompt[2](params.arguments ?? {}) };
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
