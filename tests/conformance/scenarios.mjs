// What a client does in each scenario of the conformance suites, whatever era it speaks. See docs/conformance.md.
// The two generations of the SDK share the calls that are made here, but for the one that takes a question.
import assert from 'node:assert/strict';

const given = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');

/** What a tool answers. */
async function call(client, name, args = {}) {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, result.content[0]?.text);
  return result;
}

// name: what is done with a client that is connected, the tools that it lists, and a way to take a question
const SCENARIOS = {
  async initialize() {},
  async 'request-metadata'() {},
  async 'json-schema-ref-no-deref'() {},
  async tools_call(client) {
    assert.match((await call(client, 'add_numbers', { a: 4, b: 38 })).content[0].text, /42/);
  },
  async 'elicitation-sep1034-client-defaults'(client) {
    await call(client, 'test_client_elicitation_defaults');
  },
  async 'sse-retry'(client) {
    await call(client, 'test_reconnection');
  },
  async 'sep-2322-client-request-state'(client, _, onQuestion) {
    let isFirst = true;
    onQuestion(async () => {
      // Between a question and its answer another call comes and goes: the state belongs to the first one only.
      if (isFirst) await call(client, 'test_mrtr_unrelated');
      isFirst = false;
      return { action: 'accept', content: { confirmed: true } };
    });
    await call(client, 'test_mrtr_echo_state');
    await call(client, 'test_mrtr_no_state');
    // A result that does not say what it is: an older server's complete one, which the SDK may refuse.
    await client.callTool({ name: 'test_mrtr_no_result_type', arguments: {} }).catch(() => {});
  },
  async 'http-standard-headers'(client, tools) {
    for (const { name } of tools) await call(client, name);
    for (const { uri } of (await client.listResources()).resources) await client.readResource({ uri });
    for (const { name } of (await client.listPrompts()).prompts) await client.getPrompt({ name });
  },
  async 'http-custom-headers'(client) {
    for (const { name, arguments: args } of given.toolCalls) await call(client, name, args);
  },
  async 'http-invalid-tool-headers'(client, tools) {
    for (const { name } of tools) await call(client, name, { region: 'here' });
  },
  async 'json-schema-2020-12-preservation'(client, tools) {
    const { inputSchema } = tools.find(({ name }) => name === 'json_schema_2020_12_tool');
    await call(client, 'json_schema_echo', { schema: inputSchema });
  },
};

/** @param onQuestion takes the handler that answers the server's questions from then on. */
export async function run(client, transport, onQuestion) {
  const scenario = process.env.MCP_CONFORMANCE_SCENARIO;
  const play = SCENARIOS[scenario];
  assert.ok(play, `nothing is known about the scenario ${scenario}`);
  onQuestion(() => ({ action: 'accept', content: {} })); // the SDK fills in the defaults
  await client.connect(transport);
  const tools = client.getServerCapabilities()?.tools === undefined ? [] : (await client.listTools()).tools;
  await play(client, tools, onQuestion);
  await client.close();
}
