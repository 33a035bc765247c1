// Lives through a whole session of HTTP with SSE with the official TypeScript client, 1.x; tells what it was told.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const transport = new SSEClientTransport(new URL(process.argv[2]));
let protocol;
const tell = transport.setProtocolVersion.bind(transport);
transport.setProtocolVersion = (version) => tell((protocol = version));

const client = new Client({ name: 'life', version: '1' }, { capabilities: { roots: {} } });
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: 'file:///here' }] }));
const heard = [];
let enough;
const all = new Promise((resolve) => (enough = resolve));
client.fallbackNotificationHandler = async ({ method, params }) => {
  heard.push(`${method} ${params?.uri ?? ''}`.trim());
  if (heard.length === 2) enough();
};

await client.connect(transport);
const names = async () => (await client.listTools()).tools.map((tool) => tool.name);
const before = await names();
const progress = [];
const asked = await client.callTool({ name: 'where', arguments: {} }, undefined, {
  onprogress: (seen) => progress.push([seen.progress, seen.total ?? null, seen.message ?? null]),
});
await client.subscribeResource({ uri: 'notes://one' });
await client.callTool({ name: 'change', arguments: {} });
await all;
const fresh = (await names()).filter((name) => !before.includes(name));
await client.close();
console.log(JSON.stringify({ protocol, progress, roots: asked.content[0].text, heard: heard.sort(), new: fresh }));
