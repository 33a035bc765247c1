// A bare Node server that does the work of the measured calls and nothing else: `raw_http.mjs http PORT TOOLS`.
import { createServer } from "node:http";

const VERSION = "io.modelcontextprotocol/protocolVersion";
const INFO = { name: "bench", version: "1.0.0" };
const META = { "io.modelcontextprotocol/serverInfo": INFO };

async function add({ a, b }) {
  return a + b;
}

async function answer(message) {
  const modern = message.params?._meta?.[VERSION] !== undefined;
  if (message.method !== "tools/call") {
    return { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: INFO };
  }
  const value = await add(message.params.arguments);
  const content = [{ type: "text", text: String(value) }];
  return modern
    ? { resultType: "complete", _meta: META, content, structuredContent: value }
    : { content, structuredContent: { result: value } };
}

createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", async () => {
    const message = JSON.parse(parts.length === 1 ? parts[0] : Buffer.concat(parts));
    const body = Buffer.from(JSON.stringify({ jsonrpc: "2.0", id: message.id, result: await answer(message) }));
    response.writeHead(200, {
      "content-type": "application/json",
      "content-length": body.length,
      "mcp-session-id": "0".repeat(32),
    });
    response.end(body);
  });
}).listen(Number(process.argv[3]), "127.0.0.1");
