// The conformance server of tasks in 2025-11-25, on the official TypeScript SDK 1.x. See docs/conformance.md.
//   tasks.mjs NODE_MODULES http    Streamable HTTP on a free port of 127.0.0.1; prints its URL
//   tasks.mjs NODE_MODULES stdio
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

const [folder, transportName] = process.argv.slice(2);
const require = createRequire(`${folder}/`); // this script does not lie beside the SDK
const { McpServer } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { InMemoryTaskMessageQueue, InMemoryTaskStore } = require('@modelcontextprotocol/sdk/experimental/tasks');
const { ElicitResultSchema } = require('@modelcontextprotocol/sdk/types.js');
const { z } = require('zod');

const POLL_MS = 100;
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000).unref());
const text = (said) => ({ content: [{ type: 'text', text: said }] });

function question(message, field, type) {
  const requestedSchema = { type: 'object', properties: { [field]: { type } }, required: [field] };
  return { method: 'elicitation/create', params: { message, requestedSchema } };
}

/** Of each tool that has tasks: whether it must be one, what it takes, and its work; and what it does before. */
const TOOLS = {
  slow_compute: [
    'optional',
    { seconds: z.number(), label: z.string().optional() },
    ({ seconds, label }) => pause(seconds).then(() => text(`computed ${label}`)),
  ],
  failing_job: ['required', {}, () => pause(1).then(() => ({ ...text('the job failed'), isError: true }))],
  protocol_error_job: [
    'required',
    {},
    () => {
      throw new Error('the job broke');
    },
  ],
  confirm_delete: [
    'required',
    { filename: z.string() },
    async ({ filename }, ask) => {
      await ask(question(`Delete ${filename}?`, 'confirm', 'boolean'));
      return text(`deleted ${filename}`);
    },
  ],
  multi_input: [
    'required',
    {},
    async (_, ask) => {
      await Promise.all(['first', 'second'].map((key) => ask(question(`The ${key} name?`, 'name', 'string'))));
      return text('both are known');
    },
  ],
  test_tool_with_task: [
    'required',
    {},
    (_, __, { content }) => text(`Hello, ${content.name}!`),
    (ask) => ask(question('Who are you?', 'name', 'string')),
  ],
};

async function run({ sendRequest, taskStore }, taskId, work, given, known) {
  const ask = (request) => sendRequest(request, ElicitResultSchema, { relatedTask: { taskId } });
  try {
    const result = await work(given, ask, known);
    await taskStore.storeTaskResult(taskId, result.isError ? 'failed' : 'completed', result);
  } catch (error) {
    await taskStore.updateTaskStatus(taskId, 'failed', error.message).catch(() => {}); // it may be over
  }
}

const taskStore = new InMemoryTaskStore();
const taskMessageQueue = new InMemoryTaskMessageQueue();

function newServer() {
  const tasks = { list: {}, cancel: {}, requests: { tools: { call: {} } } };
  const options = { capabilities: { tasks }, taskStore, taskMessageQueue };
  const server = new McpServer({ name: 'conformance-server', version: '1.0.0' }, options);
  server.registerTool('greet', { inputSchema: { name: z.string() } }, ({ name }) => text(`Hello, ${name}!`));
  for (const [name, [taskSupport, inputSchema, work, before]] of Object.entries(TOOLS)) {
    server.experimental.tasks.registerToolTask(
      name,
      { inputSchema, execution: { taskSupport } },
      {
        async createTask(given, extra) {
          const known = await before?.((request) => extra.sendRequest(request, ElicitResultSchema));
          const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl, pollInterval: POLL_MS });
          void run(extra, task.taskId, work, given, known);
          return { task };
        },
        getTask: (_, extra) => extra.taskStore.getTask(extra.taskId),
        getTaskResult: (_, extra) => extra.taskStore.getTaskResult(extra.taskId),
      },
    );
  }
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
    process.stdout.write(`listening on http://127.0.0.1:${listener.address().port}/mcp\n`);
  });
  process.once('SIGTERM', () => process.exit(0));
}

await (transportName === 'stdio' ? serveStdio() : serveHttp());
