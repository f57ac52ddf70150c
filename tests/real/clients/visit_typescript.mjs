// A visit to the workshop by the official TypeScript SDK, 1.x or 2.x, in the era it is told. See peers/README.md.
//   visit_typescript.mjs PLAN
import fs from 'node:fs';
import { createRequire } from 'node:module';

const plan = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
// "auto" and "legacy" are modes of 2.x; 1.x has none. The alias is that of the workshop at a profile.
const { mode, alias = '' } = plan.sessions[0];
const require = createRequire(`${plan.node_modules}/`); // this script does not lie beside the SDK
const PATIENCE_MS = 20_000;
const named = (name) => (alias ? `${alias}__${name}` : name);
const located = (uri) => (alias ? `${alias}+${uri}` : uri);
const NOTE = located('note://one');
const LEVEL = 'io.modelcontextprotocol/logLevel';
const CAPABILITIES = { elicitation: {}, sampling: {}, roots: {} };

const seen = {};
const asked = [];
const progress = [];
const logs = [];
const changes = new Set();
let tell = () => {};

const ANSWERS = {
  'elicitation/create': ({ message }) => {
    asked.push(message);
    return { action: 'accept', content: { colour: 'blue' } };
  },
  'sampling/createMessage': ({ messages }) => {
    asked.push(messages[0].content.text);
    return { role: 'assistant', model: 'canned', content: { type: 'text', text: 'canned' } };
  },
  'roots/list': () => {
    asked.push('roots');
    return { roots: [{ uri: 'file:///tmp/somewhere' }] };
  },
};
const HEARD = {
  'notifications/message': ({ data }) => void logs.push(data),
  'notifications/tools/list_changed': () => void changes.add('tools'),
  'notifications/resources/updated': ({ uri }) => void changes.add(uri),
};

/** The two generations of the SDK name things differently: what is needed of each. */
function generation1() {
  const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
  const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
  const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const types = require('@modelcontextprotocol/sdk/types.js');
  const schemas = {
    'elicitation/create': types.ElicitRequestSchema,
    'sampling/createMessage': types.CreateMessageRequestSchema,
    'roots/list': types.ListRootsRequestSchema,
    'notifications/message': types.LoggingMessageNotificationSchema,
    'notifications/tools/list_changed': types.ToolListChangedNotificationSchema,
    'notifications/resources/updated': types.ResourceUpdatedNotificationSchema,
  };
  const client = new Client({ name: 'visitor', version: '1' }, { capabilities: CAPABILITIES });
  const call = (params, options) => client.callTool(params, undefined, options);
  return { client, call, keyOf: (method) => schemas[method], StdioClientTransport, StreamableHTTPClientTransport };
}

function generation2() {
  const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
  const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');
  const options = { capabilities: CAPABILITIES, versionNegotiation: { mode } };
  const client = new Client({ name: 'visitor', version: '1' }, options);
  const call = (params, requestOptions) => client.callTool(params, requestOptions);
  return { client, call, keyOf: (method) => method, StdioClientTransport, StreamableHTTPClientTransport };
}

const sdk = mode === undefined ? generation1() : generation2();
const { client } = sdk;

async function outcome(work) {
  try {
    return await work();
  } catch (error) {
    if (typeof error.code !== 'number') throw error;
    return { code: error.code };
  }
}

const call = (name, given = {}, options = {}) =>
  outcome(async () => {
    const { content, isError } = await sdk.call({ name: named(name), arguments: given, ...options.params }, options.request);
    return isError ? `error: ${content[0].text}` : content[0].text;
  });

const read = (uri) => outcome(async () => (await client.readResource({ uri })).contents[0].text);

function until(condition) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, PATIENCE_MS);
    tell = () => {
      if (!condition()) return;
      clearTimeout(timer);
      resolve();
    };
    tell();
  });
}

/**
 * Record progress as it comes from the transport. The SDK looks for the callback a moment later, and finds none when
 * the result came in the same piece of the stream: so it is with any server.
 */
function watchProgress(transport) {
  const receive = transport.onmessage;
  transport.onmessage = (message, ...rest) => {
    if (message.method === 'notifications/progress') progress.push([message.params.progress, message.params.total]);
    receive?.(message, ...rest);
  };
}

async function visit() {
  for (const [method, answer] of Object.entries(ANSWERS)) {
    client.setRequestHandler(sdk.keyOf(method), ({ params }) => answer(params));
  }
  for (const [method, hear] of Object.entries(HEARD)) {
    client.setNotificationHandler(sdk.keyOf(method), ({ params }) => {
      hear(params);
      tell();
    });
  }
  const { url, command, env } = plan.target;
  const transport = url
    ? new sdk.StreamableHTTPClientTransport(new URL(url))
    : new sdk.StdioClientTransport({ command: command[0], args: command.slice(1), env });
  const remember = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    seen.revision = version;
    remember?.(version);
  };
  await client.connect(transport);
  watchProgress(transport);
  seen.revision = client.getNegotiatedProtocolVersion?.() ?? seen.revision;
  const isModern = client.getProtocolEra?.() === 'modern';
  seen.server = client.getServerVersion()?.name;
  seen.tools = (await client.listTools()).tools.map(({ name }) => name);
  seen.echo = await call('echo', { text: 'snow \u2603' });
  for (const name of ['form', 'sample', 'where']) seen[name] = await call(name);
  seen.count = await call('count', { to: 2 }, { request: { onprogress: () => {} } });
  if (!isModern) await client.setLoggingLevel('info');
  seen.log = await call('log', {}, isModern ? { params: { _meta: { [LEVEL]: 'info' } } } : {});
  seen.read = await read(NOTE);
  seen.missing = await read(located('note://none'));
  seen.prompt = (await client.getPrompt({ name: named('greet'), arguments: { name: 'Ada' } })).messages[0].content.text;
  const reference = { ref: { type: 'ref/prompt', name: named('greet') }, argument: { name: 'name', value: 'A' } };
  seen.complete = (await client.complete(reference)).completion.values;
  const subscription = isModern
    ? await client.listen({ toolsListChanged: true, resourceSubscriptions: [NOTE] })
    : void (await client.subscribeResource({ uri: NOTE }));
  seen.change = await call('change');
  // A profile does not tell of a list that says the same as before.
  await until(() => changes.has(NOTE) && (alias || changes.size === 2) && logs.length > 0);
  await (isModern ? subscription.close() : client.unsubscribeResource({ uri: NOTE }));
  await transport.terminateSession?.();
  await client.close();
  return { ...seen, asked, progress, logs, changes: [...changes].sort() };
}

console.log(JSON.stringify(await visit()));
