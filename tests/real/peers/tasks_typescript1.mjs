// The task workshop on the official TypeScript SDK, @modelcontextprotocol/sdk 1.x: tasks of 2025-11-25. See README.md.
//   tasks_typescript1.mjs NODE_MODULES MARKS stdio | http
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import { createRequire } from 'node:module';

const [folder, marks, transportName] = process.argv.slice(2);
const require = createRequire(`${folder}/`); // this script does not lie beside the SDK
const { McpServer } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { InMemoryTaskMessageQueue, InMemoryTaskStore } = require('@modelcontextprotocol/sdk/experimental/tasks');
const types = require('@modelcontextprotocol/sdk/types.js');
const { z } = require('zod');

const POLL_MS = 100;
const FORM = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };

const mark = (line) => fs.appendFileSync(marks, `${line}\n`);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const text = (said) => ({ content: [{ type: 'text', text: said }] });

/** Says when a task is cancelled; the SDK's own store lets the work go on. */
class Store extends InMemoryTaskStore {
  watchers = new Map();

  async updateTaskStatus(id, status, ...rest) {
    await super.updateTaskStatus(id, status, ...rest);
    if (status === 'cancelled') this.watchers.get(id)?.();
  }
}

/** Of each tool that has tasks: whether it must be one, what it takes, and its work, which may ask by `extra`. */
const TOOLS = {
  quick: ['optional', {}, () => pause(50).then(() => text('quick'))],
  must: ['required', {}, () => pause(50).then(() => text('must'))],
  asks: [
    'required',
    {},
    async (_, { extra, taskId }) => {
      const request = { method: 'elicitation/create', params: { message: 'Who?', requestedSchema: FORM } };
      const { content } = await extra.sendRequest(request, types.ElicitResultSchema, { relatedTask: { taskId } });
      return text(`hello ${content?.name}`);
    },
  ],
  slow: [
    'required',
    { label: z.string() },
    async ({ label }, { signal }) => {
      mark(`started ${label}`);
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      mark(`cancelled ${label}`);
      return text('slow');
    },
  ],
  fails: ['required', {}, () => ({ ...text('it failed'), isError: true })],
  breaks: [
    'required',
    {},
    () => {
      throw new Error('it broke');
    },
  ],
};

async function run(extra, taskId, work, given) {
  const aborting = new AbortController();
  store.watchers.set(taskId, () => aborting.abort());
  try {
    const result = await work(given, { extra, taskId, signal: aborting.signal });
    if (aborting.signal.aborted) return;
    await extra.taskStore.storeTaskResult(taskId, result.isError ? 'failed' : 'completed', result);
  } catch (error) {
    if (!aborting.signal.aborted) await extra.taskStore.updateTaskStatus(taskId, 'failed', error.message);
  }
}

const store = new Store();
const taskMessageQueue = new InMemoryTaskMessageQueue();

function newServer() {
  const tasks = { list: {}, cancel: {}, requests: { tools: { call: {} } } };
  const server = new McpServer(
    { name: 'task workshop', version: '1' },
    { capabilities: { tasks }, taskStore: store, taskMessageQueue },
  );
  server.registerTool('plain', { inputSchema: {} }, () => text('plain'));
  for (const [name, [taskSupport, inputSchema, work]] of Object.entries(TOOLS)) {
    server.experimental.tasks.registerToolTask(
      name,
      { inputSchema, execution: { taskSupport } },
      {
        async createTask(given, extra) {
          const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl, pollInterval: POLL_MS });
          void run(extra, task.taskId, work, given);
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
    process.stdout.write(`listening on 127.0.0.1:${listener.address().port}\n`);
  });
  process.once('SIGTERM', () => process.exit(0));
}

await (transportName === 'stdio' ? serveStdio() : serveHttp());
