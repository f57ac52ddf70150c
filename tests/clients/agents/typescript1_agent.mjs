// @modelcontextprotocol/sdk 1.x. A host shows the content of a result to its model.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { content, run } from "./agent.mjs";

await run(
  async (target) => {
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
  ["@modelcontextprotocol/sdk"],
);
