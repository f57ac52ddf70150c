// Mastra: an `Agent` with the tools of `MCPClient`, whose model is a mock of the AI SDK that makes one call and notes
// what it is shown of the result.
import { Agent } from "@mastra/core/agent";
import { MCPClient } from "@mastra/mcp";
import { MockLanguageModelV3 } from "ai/test";
import { content, run } from "./agent.mjs";

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const parts = (...between) =>
  new ReadableStream({
    start(controller) {
      controller.enqueue({ type: "stream-start", warnings: [] });
      for (const part of between) controller.enqueue(part);
      controller.close();
    },
  });
const done = () => ({
  stream: parts(
    { type: "text-start", id: "1" },
    { type: "text-delta", id: "1", delta: "Done." },
    { type: "text-end", id: "1" },
    { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage },
  ),
});

await run(
  async (target) => {
    const server = target.url ? { url: new URL(target.url) } : target;
    const client = new MCPClient({ servers: { isthmus: server } });
    const { tools, errors } = await client.listToolsWithErrors();
    if (errors && Object.keys(errors).length) throw new Error(JSON.stringify(errors));
    const generate = async (doStream) => {
      const model = new MockLanguageModelV3({ doStream });
      const agent = new Agent({ id: "agent", name: "agent", instructions: "Go on.", model, tools });
      const stream = await agent.stream("Go on.", { maxSteps: 2 });
      await stream.consumeStream();
    };
    return {
      tools: async () => {
        let shown;
        await generate(async (options) => {
          shown = options.tools;
          return done();
        });
        return shown.map((tool) => ({ ...tool, parameters: tool.inputSchema }));
      },
      call: async (toolName, args) => {
        let shown;
        await generate(async ({ prompt }) => {
          const last = prompt.at(-1);
          if (last.role !== "tool") {
            const call = { type: "tool-call", toolCallId: "1", toolName, input: JSON.stringify(args) };
            const finish = { type: "finish", finishReason: { unified: "tool-calls", raw: "tool-calls" }, usage };
            return { stream: parts(call, finish) };
          }
          shown = JSON.stringify(last.content[0].output);
          return done();
        });
        return shown;
      },
      read: async (uri) => content((await client.resources.read("isthmus", uri)).contents[0]),
      close: () => client.disconnect(),
    };
  },
  ["@mastra/mcp", "@mastra/core"],
);
