// The same tools on the official TypeScript SDK, over stdio: `typescript_sdk.mjs stdio PORT TOOLS`.
import { createRequire } from "node:module";

const require = createRequire(new URL("../../tests/peers/node/package.json", import.meta.url));
const { McpServer } = require("@modelcontextprotocol/server");
const { serveStdio } = require("@modelcontextprotocol/server/stdio");
const z = require("zod");

serveStdio(() => {
  const server = new McpServer({ name: "bench", version: "1.0.0" });
  server.registerTool(
    "add",
    { description: "Adds two numbers.", inputSchema: z.object({ a: z.number(), b: z.number() }), outputSchema: z.object({ result: z.number() }) },
    async ({ a, b }) => ({ content: [{ type: "text", text: String(a + b) }], structuredContent: { result: a + b } }),
  );
  return server;
});
