// The conformance server in 2026-07-28 only, on the official TypeScript SDK 2.x. See docs/conformance.md.
//   server2.mjs NODE_MODULES http    Streamable HTTP on a free port of 127.0.0.1; prints its URL
//   server2.mjs NODE_MODULES stdio
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { PROMPTS, TOOLS, complete, prompts, read, resources, templates } from './behaviour.mjs';

const [folder, transportName] = process.argv.slice(2);
const require = createRequire(`${folder}/`); // this script does not lie beside the SDK
const sdk = require('@modelcontextprotocol/server');

const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';
const state = sdk.createRequestStateCodec({ key: randomBytes(32) });

// --- Asking by results ----------------------------------------------------------------------------------------------

/** Thrown by a question whose answer has not come: the client answers it and asks everything again. */
class Asked extends Error {
  constructor(inputRequests, answers) {
    super('asked');
    Object.assign(this, { inputRequests, answers });
  }
}

const isObject = (value) => typeof value === 'object' && value !== null;
const IS_ANSWER = {
  'elicitation/create': (answer) => typeof answer.action === 'string',
  'sampling/createMessage': (answer) => isObject(answer.content),
  'roots/list': (answer) => Array.isArray(answer.roots),
};

/** What a tool or prompt may do while it is asked: a question that is answered already returns, any other one throws. */
function contextOf({ mcpReq }, announce) {
  const earlier = mcpReq.requestState() ?? {};
  const answers = { ...earlier, ...mcpReq.inputResponses };
  return {
    can: (capability) => mcpReq.envelope?.[CAPABILITIES]?.[capability] !== undefined,
    async ask(requests, isSealed = false) {
      const isOpen = ([key, { method }]) => !(isObject(answers[key]) && IS_ANSWER[method](answers[key]));
      const open = Object.entries(requests).filter(isOpen);
      if (open.length > 0) throw new Asked(Object.fromEntries(open), isSealed ? answers : undefined);
      return Object.fromEntries(Object.keys(requests).map((key) => [key, answers[key]]));
    },
    log: (level, data) => mcpReq.log(level, data, 'conformance'),
    async progress(progress, total) {
      const progressToken = mcpReq._meta?.progressToken;
      if (progressToken === undefined) return;
      await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total } });
    },
    change: announce,
  };
}

/** What is answered, or what is asked instead. */
async function answered(work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Asked)) throw error;
    const { inputRequests, answers } = error;
    const sealed = answers === undefined ? {} : { requestState: await state.mint(answers) };
    return sdk.inputRequired({ inputRequests, ...sealed });
  }
}

// --- A request's server ---------------------------------------------------------------------------------------------

function newServer(announce) {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true },
    prompts: { listChanged: true },
    logging: {},
    completions: {},
  };
  const options = { capabilities, requestState: { verify: state.verify } };
  const mcp = new sdk.McpServer({ name: 'conformance-server', version: '1.0.0' }, options);
  for (const [name, [description, schema, work]] of Object.entries(TOOLS)) {
    // The SDK's higher half: it is that one which compares an argument with the header that repeats it.
    mcp.registerTool(name, { description, inputSchema: sdk.fromJsonSchema(schema) }, (given, context) =>
      answered(async () => ({ content: await work(given ?? {}, contextOf(context, announce)) })),
    );
  }
  const on = (method, handle) => mcp.server.setRequestHandler(method, ({ params }, context) => handle(params ?? {}, context));
  on('completion/complete', complete);
  on('resources/list', () => ({ resources: resources() }));
  on('resources/templates/list', () => ({ resourceTemplates: templates() }));
  on('resources/read', ({ uri }) => {
    const found = read(uri);
    if (found === undefined) throw new sdk.ProtocolError(-32602, `no such resource: ${uri}`, { uri });
    return { contents: [found] };
  });
  on('prompts/list', () => ({ prompts: prompts() }));
  on('prompts/get', ({ name, arguments: given }, context) => {
    const prompt = PROMPTS[name];
    if (prompt === undefined) throw new sdk.ProtocolError(-32602, `no such prompt: ${name}`);
    return answered(async () => ({ messages: await prompt[2](given ?? {}, contextOf(context, announce)) }));
  });
  return mcp;
}

// --- Transports -----------------------------------------------------------------------------------------------------

function serveStdio() {
  const { serveStdio: serve } = require('@modelcontextprotocol/server/stdio');
  const factory = () => {
    const mcp = newServer((list) => (list === 'tools' ? mcp.sendToolListChanged() : mcp.sendPromptListChanged()));
    return mcp;
  };
  serve(factory, { legacy: 'reject' });
  process.stdin.once('end', () => process.exit(0));
}

function serveHttp() {
  const { localhostHostValidation, localhostOriginValidation, toNodeHandler } = require('@modelcontextprotocol/node');
  const announce = (list) => (list === 'tools' ? handler.notify.toolsChanged() : handler.notify.promptsChanged());
  const handler = sdk.createMcpHandler(() => newServer(announce), { legacy: 'reject' });
  const serve = toNodeHandler(handler);
  const isLocal = [localhostHostValidation(), localhostOriginValidation()];
  const listener = createServer((request, response) => {
    if (isLocal.every((check) => check(request, response))) void serve(request, response);
  });
  listener.listen(0, '127.0.0.1', () => {
    process.stdout.write(`listening on http://127.0.0.1:${listener.address().port}/mcp\n`);
  });
  process.once('SIGTERM', () => process.exit(0));
}

(transportName === 'stdio' ? serveStdio : serveHttp)();
