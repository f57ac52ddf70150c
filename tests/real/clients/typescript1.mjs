// The official TypeScript client, @modelcontextprotocol/sdk 1.x, carries out a plan. See README.md beside this file.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const PATIENCE_MS = 30_000;
const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const require = createRequire(`${plan.node_modules}/`); // this script does not lie beside the SDK
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { InMemoryTaskStore } = require('@modelcontextprotocol/sdk/experimental/tasks');
const types = require('@modelcontextprotocol/sdk/types.js');

const say = (kind, facts = {}) => process.stdout.write(`${JSON.stringify({ kind, ...facts })}\n`);

/** What a patient user would enter: the default, or something that fits. */
function answerFor(schema) {
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.oneOf) return schema.oneOf[0].const;
  if (schema.type === 'boolean') return true;
  if (schema.type === 'integer' || schema.type === 'number') return schema.minimum ?? 1;
  const formats = { email: 'a@example.com', uri: 'https://example.com/', date: '2026-01-02' };
  return formats[schema.format] ?? 'canned';
}

/** What the server sent of its own accord. */
class Inbox {
  #messages = [];
  #waiting = [];

  put(kind, method, params) {
    say(kind, { method, params });
    this.#messages.push([method, JSON.stringify(params)]);
    this.#waiting = this.#waiting.filter(({ isMet, done }) => !isMet() || done());
  }

  wait(method, contains, count) {
    const isMet = () => this.#messages.filter(([name, text]) => name === method && text.includes(contains)).length >= count;
    return new Promise((resolve) => {
      if (isMet()) resolve({});
      else this.#waiting.push({ isMet, done: () => void resolve({}) });
    });
  }
}

function capabilitiesOf(session) {
  if (session.capabilities !== 'all') return {};
  const both = { roots: { listChanged: true }, sampling: {}, elicitation: { form: {}, url: {} } };
  return session.tasks
    ? { ...both, tasks: { list: {}, cancel: {}, requests: { sampling: { createMessage: {} }, elicitation: { create: {} } } } }
    : both;
}

/** Whoever sits at the client: answers the server's questions, now or as tasks. */
function answerQuestions(client, inbox) {
  const maybeTask = async (request, extra, outcome) => {
    if (request.params.task === undefined) return outcome;
    const task = await extra.taskStore.createTask({ ttl: request.params.task.ttl, pollInterval: 100 });
    await extra.taskStore.storeTaskResult(task.taskId, 'completed', outcome);
    return { task };
  };
  client.setRequestHandler(types.CreateMessageRequestSchema, (request, extra) => {
    inbox.put('asked', request.method, request.params);
    const content = { type: 'text', text: 'canned' };
    return maybeTask(request, extra, { role: 'assistant', model: 'canned', content, stopReason: 'endTurn' });
  });
  client.setRequestHandler(types.ElicitRequestSchema, (request, extra) => {
    inbox.put('asked', request.method, request.params);
    const properties = Object.entries(request.params.requestedSchema?.properties ?? {});
    const content = Object.fromEntries(properties.map(([name, schema]) => [name, answerFor(schema)]));
    return maybeTask(request, extra, request.params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content });
  });
  client.setRequestHandler(types.ListRootsRequestSchema, (request) => {
    inbox.put('asked', request.method, {});
    return { roots: [{ uri: 'file:///tmp/somewhere', name: 'somewhere' }] };
  });
}

async function allPages(name, fetchPage) {
  const found = [];
  let cursor;
  do {
    const page = await fetchPage(cursor === undefined ? undefined : { cursor });
    found.push(...page[name]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
}

async function cancelCall(client, step) {
  const aborter = new AbortController();
  const onprogress = () => aborter.abort('enough');
  const outcome = [];
  try {
    const options = { onprogress, signal: aborter.signal };
    outcome.push(await client.callTool({ name: step.name, arguments: step.arguments }, undefined, options));
  } catch (error) {
    if (!aborter.signal.aborted) throw error;
  }
  return { outcome };
}

async function callAsTask(client, step) {
  const tasks = client.experimental.tasks;
  const seen = { neededInput: false };
  const request = { name: step.name, arguments: step.arguments };
  for await (const message of tasks.callToolStream(request, types.CallToolResultSchema, { task: { ttl: 60_000 } })) {
    if (message.type === 'taskCreated') {
      seen.created = message.task.status;
      seen.id = message.task.taskId;
    } else if (message.type === 'taskStatus') {
      seen.neededInput ||= message.task.status === 'input_required';
    } else if (message.type === 'error') {
      throw message.error;
    } else {
      seen.result = message.result;
    }
  }
  const { id, ...facts } = seen;
  const final = (await tasks.getTask(id)).status;
  const isListed = (await tasks.listTasks()).tasks.some((task) => task.taskId === id);
  return { ...facts, final, isListed };
}

const OPS = {
  tools: (client) => allPages('tools', (page) => client.listTools(page)),
  resources: (client) => allPages('resources', (page) => client.listResources(page)),
  templates: (client) => allPages('resourceTemplates', (page) => client.listResourceTemplates(page)),
  prompts: (client) => allPages('prompts', (page) => client.listPrompts(page)),
  call: async (client, step) => {
    client.isReporting = step.progress === true; // see `watchProgress`
    const onprogress = step.progress ? () => {} : undefined;
    return client.callTool({ name: step.name, arguments: step.arguments }, undefined, { onprogress });
  },
  cancel: cancelCall,
  task: callAsTask,
  read: (client, { uri }) => client.readResource({ uri }),
  subscribe: (client, { uri }) => client.subscribeResource({ uri }),
  unsubscribe: (client, { uri }) => client.unsubscribeResource({ uri }),
  prompt: (client, step) => client.getPrompt({ name: step.name, arguments: step.arguments }),
  complete: (client, { ref, argument, context }) =>
    client.complete({ ref, argument, ...(context ? { context: { arguments: context } } : {}) }),
  ping: (client) => client.ping(),
  level: (client, { level }) => client.setLoggingLevel(level),
  roots_changed: async (client) => void (await client.sendRootsListChanged()) ?? {},
  request: (client, { method, params }) => client.request({ method, params }, types.ResultSchema),
  await: (client, step, inbox) => inbox.wait(step.method, step.contains ?? '', step.count ?? 1),
};

/**
 * Record progress as it comes from the transport. The SDK looks for the callback a moment later, and finds none when
 * the result came in the same piece of the stream: so it is with any server.
 */
function watchProgress(client, transport) {
  const receive = transport.onmessage;
  transport.onmessage = (message, ...rest) => {
    if (message.method === 'notifications/progress' && message.params.progressToken === client.reportingOn) {
      const { progress, total, message: text } = message.params;
      say('progress', { progress, total: total ?? null, message: text ?? null });
    }
    receive?.(message, ...rest);
  };
  const send = transport.send.bind(transport);
  transport.send = (message, ...rest) => {
    if (client.isReporting) client.reportingOn = message.params?._meta?.progressToken;
    return send(message, ...rest);
  };
}

function withinPatience(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing within ${PATIENCE_MS} ms`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function transportTo({ url, command, env }) {
  if (url?.startsWith('sse+')) return new SSEClientTransport(new URL(url.slice('sse+'.length)));
  if (url) return new StreamableHTTPClientTransport(new URL(url));
  return new StdioClientTransport({ command: command[0], args: command.slice(1), env });
}

async function runSession(target, session) {
  const inbox = new Inbox();
  const taskStore = session.tasks ? new InMemoryTaskStore() : undefined;
  const client = new Client({ name: 'typescript1', version: '0' }, { capabilities: capabilitiesOf(session), taskStore });
  if (session.capabilities === 'all') answerQuestions(client, inbox);
  client.fallbackNotificationHandler = async ({ method, params }) => inbox.put('notified', method, params ?? {});
  client.onerror = (error) => say('remark', { text: String(error) });
  const transport = transportTo(target);
  let initialize;
  const request = client.request.bind(client);
  client.request = async (message, ...rest) => {
    const result = await request(message, ...rest);
    if (message.method === 'initialize') initialize = result;
    return result;
  };
  await client.connect(transport);
  watchProgress(client, transport);
  say('begin', { initialize });
  for (const [number, step] of session.steps.entries()) {
    let facts;
    try {
      facts = { result: await withinPatience(Promise.resolve(OPS[step.op](client, step, inbox))) };
    } catch (error) {
      const { code, message, data } = error;
      facts = error instanceof types.McpError ? { error: { code, message, data } } : { trouble: String(error) };
    }
    say('step', { number, op: step.op, ...facts });
  }
  await transport.terminateSession?.();
  await client.close();
  taskStore?.cleanup();
  say('end');
}

for (const session of plan.sessions) await runSession(plan.target, session);
