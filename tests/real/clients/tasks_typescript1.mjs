// A visit to the task workshop by the official TypeScript SDK, 1.x: tasks of 2025-11-25. See peers/README.md.
//   tasks_typescript1.mjs PLAN
import fs from 'node:fs';
import { createRequire } from 'node:module';

const plan = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const { marks, label, leave, task } = plan.sessions[0]; // of `task` the SDK makes its own if there is none
const require = createRequire(`${plan.node_modules}/`); // this script does not lie beside the SDK
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const PATIENCE_MS = 20_000;
const asked = [];
const client = new Client({ name: 'visitor', version: '1' }, { capabilities: { elicitation: {} } });
const { tasks } = client.experimental;

async function outcome(work) {
  try {
    return await work();
  } catch (error) {
    if (typeof error.code !== 'number') throw error;
    return { code: error.code };
  }
}

const textOf = ({ content: [part], isError }) => (isError ? `error: ${part?.text}` : (part?.text ?? 'nothing'));
const stream = (params) => tasks.callToolStream(params, undefined, { task });
const result = (id) => outcome(async () => textOf(await tasks.getTaskResult(id, types.CallToolResultSchema)));

/** See a task through as the SDK would have it: its id, its first and its last status, and what came of it. */
async function through(name) {
  const seen = { statuses: [] };
  for await (const message of stream({ name, arguments: {} })) {
    if (message.type === 'taskCreated') seen.id = message.task.taskId;
    if (message.task !== undefined) seen.statuses.push(message.task.status);
    if (message.type === 'result') seen.text = textOf(message.result);
    if (message.type === 'error') seen.error = message.error.code;
  }
  return { ...seen, first: seen.statuses[0], last: seen.statuses.at(-1) };
}

async function begin(given) {
  const messages = stream({ name: 'slow', arguments: { label: given } });
  const { value } = await messages.next();
  await messages.return();
  if (value.type !== 'taskCreated') throw value.error;
  const giveUpAt = Date.now() + PATIENCE_MS;
  while (!fs.readFileSync(marks, 'utf8').split('\n').includes(`started ${given}`)) {
    if (Date.now() > giveUpAt) throw new Error('the work was not begun');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return value.task.taskId;
}

async function visit(seen) {
  seen.offers = Object.fromEntries(
    (await client.listTools()).tools.map(({ name, execution }) => [name, execution?.taskSupport ?? null]),
  );
  seen.plain = textOf(await client.callTool({ name: 'plain', arguments: {} }));
  const quick = await through('quick');
  seen.quick = [quick.first, quick.last, quick.text];
  const must = await through('must');
  seen.must = [must.first, must.last, must.text];
  seen.asks = (await through('asks')).text;
  for (const name of ['fails', 'breaks']) {
    const { id, last } = await through(name);
    seen[name] = [last, await result(id)];
  }
  const raw = () => tasks.getTaskResult(must.id, types.CallToolResultSchema);
  const [once, twice] = [await raw(), await raw()];
  seen.again = JSON.stringify(once) === JSON.stringify(twice) && textOf(once) === must.text;
  seen.related = once._meta?.['io.modelcontextprotocol/related-task']?.taskId === must.id;
  const id = await begin(`cancel ${label}`);
  seen.working = (await tasks.getTask(id)).status;
  seen.cancel = (await tasks.cancelTask(id)).status;
  seen.cancelled = [(await tasks.getTask(id)).status, await result(id)];
  seen.late = await outcome(() => tasks.cancelTask(id));
  seen.unknown = await outcome(() => tasks.getTask('nothing'));
  const listed = [];
  let page;
  do {
    page = await tasks.listTasks(page?.nextCursor);
    listed.push(...page.tasks.map(({ taskId }) => taskId));
  } while (page.nextCursor !== undefined);
  seen.listed = [quick.id, must.id, id].every((one) => listed.includes(one)) ? listed.length : listed;
  return { ...seen, asked };
}

client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => {
  asked.push(params.message);
  return { action: 'accept', content: { name: 'Ada' } };
});
const { url, command, env } = plan.target;
const transport = url
  ? new StreamableHTTPClientTransport(new URL(url))
  : new StdioClientTransport({ command: command[0], args: command.slice(1), env });
await client.connect(transport);
console.log(JSON.stringify(leave ? {} : await visit({})));
await begin(`leave ${label}`);
if (leave) await new Promise(() => setInterval(() => {}, PATIENCE_MS)); // to be killed
await transport.terminateSession?.();
await client.close();
