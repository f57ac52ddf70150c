// What the conformance suites ask a server for, whatever era it is served in: no SDK is named here. See docs/conformance.md.
//
// A tool is given its arguments and a context:
//   ask(requests, isSealed)  the client's answers to requests, both by key; sealed, the client is handed a state with them
//   can(capability)          whether the client has declared a capability
//   log(level, data), progress(value, total), change(list), cutOff()
import { setTimeout as sleep } from 'node:timers/promises';

const STEP_MS = 50; // the suite wants what a tool sends spread over time
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

/** A request for the members of a schema. */
const form = (message, properties, required = []) => ({
  method: 'elicitation/create',
  params: { message, requestedSchema: { type: 'object', properties, required } },
});
const sample = (words, maxTokens = 100) => ({
  method: 'sampling/createMessage',
  params: { messages: [user(text(words))], maxTokens },
});
const ROOTS = { method: 'roots/list', params: {} };
const STRING = { type: 'string' };
const NAME = form('What is your name?', { name: STRING }, ['name']);
const CONFIRM = form('Please confirm', { ok: { type: 'boolean' } }, ['ok']);

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
  $defs: {
    address: {
      $anchor: 'addressDef',
      type: 'object',
      properties: { street: { type: 'string' }, city: { type: 'string' } },
    },
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

// name: [description, input schema, what it answers with: content, or a promise of it]
export const TOOLS = {
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
    async (_, { log }) => {
      for (const words of ['started', 'still at it', 'almost done']) {
        await log('info', words);
        await sleep(STEP_MS);
      }
      return [text('Logged.')];
    },
  ],
  test_tool_with_progress: [
    'Reports progress three times, where the caller wants it, before it answers.',
    NOTHING,
    async (_, { progress }) => {
      for (const value of [0, 50, 100]) {
        await progress(value, 100);
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
    async ({ prompt }, { ask }) => {
      const { model } = await ask({ model: sample(prompt) });
      return [text(`The model said: ${model.content.text}`)];
    },
  ],
  test_elicitation: [
    'Has the client ask its user.',
    strings('message'),
    async ({ message }, { ask }) => {
      const { properties, required } = strings('username', 'email');
      return [text(`The user said: ${JSON.stringify((await ask({ user: form(message, properties, required) })).user)}`)];
    },
  ],
  test_elicitation_sep1034_defaults: [
    'Asks with a default for every primitive type.',
    NOTHING,
    async (_, { ask }) => [text(JSON.stringify((await ask({ user: form('Is this right?', DEFAULTS) })).user))],
  ],
  test_elicitation_sep1330_enums: [
    'Asks with each way to write an enumeration.',
    NOTHING,
    async (_, { ask }) => [text(JSON.stringify((await ask({ user: form('Which ones?', ENUMS) })).user))],
  ],
  json_schema_2020_12_tool: ['Its schema says which dialect it is in.', DIALECT_2020_12, () => [text('Called.')]],
  test_reconnection: [
    'Cuts the caller off, where the transport can, and answers whoever comes back.',
    NOTHING,
    async (_, { cutOff }) => {
      cutOff?.();
      await sleep(2 * STEP_MS);
      return [text('Here you are again.')];
    },
  ],

  // Asked for by the suite of 2026-07-28, as what it calls an input_required result.
  test_input_required_result_elicitation: [
    'Asks for a name.',
    NOTHING,
    async (_, { ask }) => [text(`Hello, ${(await ask({ user_name: NAME })).user_name.content?.name}!`)],
  ],
  test_input_required_result_sampling: [
    'Asks the model.',
    NOTHING,
    async (_, { ask }) => {
      const { capital_question: said } = await ask({ capital_question: sample('What is the capital of France?') });
      return [text(said.content.text)];
    },
  ],
  test_input_required_result_list_roots: [
    'Asks for the roots.',
    NOTHING,
    async (_, { ask }) => [text(JSON.stringify((await ask({ client_roots: ROOTS })).client_roots.roots))],
  ],
  test_input_required_result_request_state: [
    'Asks, and wants its state back with the answer.',
    NOTHING,
    async (_, { ask }) => {
      await ask({ confirm: CONFIRM }, true);
      return [text('state-ok')];
    },
  ],
  test_input_required_result_tampered_state: [
    'Asks, and takes no state but its own.',
    NOTHING,
    async (_, { ask }) => {
      await ask({ confirm: CONFIRM }, true);
      return [text('Nobody has changed it.')];
    },
  ],
  test_input_required_result_multiple_inputs: [
    'Asks three questions at once.',
    NOTHING,
    async (_, { ask }) => {
      const questions = { user_name: NAME, greeting: sample('Generate a greeting', 50), client_roots: ROOTS };
      const { user_name: name, greeting, client_roots: roots } = await ask(questions, true);
      return [text(`${greeting.content.text}, ${name.content?.name}, at ${roots.roots[0]?.uri}!`)];
    },
  ],
  test_input_required_result_multi_round: [
    'Asks two questions, one after the other.',
    NOTHING,
    async (_, { ask }) => {
      const { step1 } = await ask({ step1: form('Step 1: What is your name?', { name: STRING }, ['name']) }, true);
      const colour = form('Step 2: What is your favorite color?', { color: STRING }, ['color']);
      const { step2 } = await ask({ step2: colour }, true);
      return [text(`${step1.content?.name} likes ${step2.content?.color}.`)];
    },
  ],
  test_input_required_result_capabilities: [
    'Asks whatever the client can answer.',
    NOTHING,
    async (_, { ask, can }) => {
      const all = { user_name: ['elicitation', NAME], model: ['sampling', sample('Say something.')] };
      const fitting = Object.entries(all).filter(([, [capability]]) => can(capability));
      const answers = await ask(Object.fromEntries(fitting.map(([key, [, question]]) => [key, question])));
      return [text(JSON.stringify(Object.keys(answers)))];
    },
  ],
  test_missing_capability: [
    'Cannot do without the model.',
    NOTHING,
    async (_, { ask }) => [text((await ask({ model: sample('Say something.') })).model.content.text)],
  ],
  test_streaming_elicitation: [
    'Asks for a name.',
    NOTHING,
    async (_, { ask }) => [text((await ask({ user_name: NAME })).user_name.action)],
  ],
  test_logging_tool: [
    'Logs before it answers.',
    NOTHING,
    async (_, { log }) => {
      await log('info', 'logged');
      return [text('Logged.')];
    },
  ],
  test_trigger_tool_change: ['Changes its own description.', NOTHING, (_, { change }) => changed(change, 'tools')],
  test_trigger_prompt_change: ['Changes that of a prompt.', NOTHING, (_, { change }) => changed(change, 'prompts')],
  test_header: [
    'Takes an argument that is repeated in a header.',
    { type: 'object', properties: { region: { ...STRING, 'x-mcp-header': 'Region' } }, required: ['region'] },
    ({ region }) => [text(`In ${region}.`)],
  ],
};

async function changed(change, list) {
  const entry = list === 'tools' ? TOOLS.test_trigger_tool_change : PROMPTS.test_simple_prompt;
  entry[0] += ' Again.';
  await change(list);
  return [text('Changed.')];
}

// --- Resources and prompts ------------------------------------------------------------------------------------------

const TEMPLATE = /^test:\/\/template\/([^/]+)\/data$/;
const RESOURCES = {
  'test://static-text': { mimeType: 'text/plain', text: 'Text that stays as it is.' },
  'test://static-binary': { mimeType: 'image/png', blob: PNG },
  'test://watched-resource': { mimeType: 'text/plain', text: 'Text that one may subscribe to.' },
};

/** The contents of a resource; undefined if there is none. */
export function read(uri) {
  const id = TEMPLATE.exec(uri)?.[1];
  if (id !== undefined) return { uri, mimeType: 'application/json', text: JSON.stringify({ id }) };
  return uri in RESOURCES ? { uri, ...RESOURCES[uri] } : undefined;
}

// name: [description, argument names, what it answers with]
export const PROMPTS = {
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
  test_input_required_result_prompt: [
    'Asks what it is about.',
    [],
    async (_, { ask }) => {
      const question = form('What context should the prompt use?', { context: STRING }, ['context']);
      return [user(text(`It is about ${(await ask({ user_context: question })).user_context.content?.context}.`))];
    },
  ],
};

// --- What lists and completions answer ------------------------------------------------------------------------------

export const tools = () =>
  Object.entries(TOOLS).map(([name, [description, inputSchema]]) => ({ name, description, inputSchema }));
export const resources = () =>
  Object.entries(RESOURCES).map(([uri, { mimeType }]) => ({ uri, name: uri.slice(7), mimeType }));
export const templates = () => [
  { uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' },
];
export const prompts = () =>
  Object.entries(PROMPTS).map(([name, [description, names]]) => ({
    name,
    description,
    arguments: names.map((argument) => ({ name: argument, required: true })),
  }));

export function complete({ argument }) {
  const values = ['tester', 'testimony', 'text'].filter((value) => value.startsWith(argument.value));
  return { completion: { values, total: values.length, hasMore: false } };
}
