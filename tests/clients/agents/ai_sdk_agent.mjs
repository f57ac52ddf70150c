// The AI SDK of Vercel: `createMCPClient` and `generateText`, whose model is a mock that makes one call and notes what
// it is shown of the result.
import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport } from "@ai-sdk/mcp/mcp-stdio";
import { generateText, isStepCount } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { content, run } from "./agent.mjs";

const said = (reason, part) => ({
  finishReason: { unified: reason, raw: reason },
  usage: { inputTokens: {}, outputTokens: {} },
  content: [part],
  warnings: [],
});

await run(
  async (target) => {
    const transport = target.url ? { type: "http", url: target.url } : new Experimental_StdioMCPTransport(target);
    const client = await createMCPClient({ transport });
    const tools = await client.tools();
    const generate = (doGenerate) =>
      generateText({
        model: new MockLanguageModelV4({ doGenerate }),
        tools,
        stopWhen: isStepCount(2),
        prompt: "Go on.",
      });
    return {
      tools: async () => {
        let shown;
        await generate(async (options) => {
          shown = options.tools;
          return said("stop", { type: "text", text: "Done." });
        });
        return shown.map((tool) => ({ ...tool, parameters: tool.inputSchema }));
      },
      call: async (toolName, args) => {
        let shown;
        await generate(async ({ prompt }) => {
          const last = prompt.at(-1);
          if (last.role !== "tool") {
            return said("tool-calls", { type: "tool-call", toolCallId: "1", toolName, input: JSON.stringify(args) });
          }
          shown = JSON.stringify(last.content[0].output);
          return said("stop", { type: "text", text: "Done." });
        });
        return shown;
      },
      read: async (uri) => content((await client.readResource({ uri })).contents[0]),
      close: () => client.close(),
    };
  },
  ["@ai-sdk/mcp", "ai"],
);
