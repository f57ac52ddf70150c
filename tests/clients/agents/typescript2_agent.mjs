// @modelcontextprotocol/client 2.x. A host shows the content of a result to its model.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { content, run } from "./agent.mjs";

await run(
  async (target) => {
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    const client = new Client({ name: "agent", version: "1" });
    await client.connect(
      target.url ? new StreamableHTTPClientTransport(new URL(target.url)) : new StdioClientTransport(target),
    );
    return {
      tools: async () =>
        (await client.listTools()).tools.map((tool) => ({ ...tool, parameters: tool.inputSchema })),
      call: async (name, args) => JSON.stringify((await client.callTool({ name, arguments: args })).content),
      read: async (uri) => content((await client.readResource({ uri })).contents[0]),
      close: () => client.close(),
    };
  },
  ["@modelcontextprotocol/client"],
);
