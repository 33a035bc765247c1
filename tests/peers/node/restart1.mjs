// Calls before and after a restart of the server with the official TypeScript client, 1.x; tells what it sent and got.
// With a second tool, that one is called too and is under way when the server is restarted.
import { once } from 'node:events';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [url, tool, cut] = process.argv.slice(2);
const posted = [];
const transport = new StreamableHTTPClientTransport(new URL(url), {
  fetch: (where, init) => {
    if (init.method === 'POST') posted.push([JSON.parse(init.body).method, init.headers.get('mcp-session-id')]);
    return fetch(where, init);
  },
  // Its own default gives up after two tries, which a slow start outlasts.
  reconnectionOptions: {
    initialReconnectionDelay: 100,
    maxReconnectionDelay: 500,
    reconnectionDelayGrowFactor: 1.5,
    maxRetries: 100,
  },
});
const client = new Client({ name: 'restart', version: '1' });
await client.connect(transport);
const call = async (name, options) => (await client.callTool({ name, arguments: {} }, undefined, options)).content[0].text;

const before = await call(tool);
let running;
if (cut) {
  const begun = new Promise((resolve) => {
    running = call(cut, { onprogress: resolve }).catch((error) => error.code);
  });
  await begun;
}
console.log('called');
await once(process.stdin, 'data');
const after = await call(tool);
const ended = cut ? await running : null;
await client.close();
console.log(JSON.stringify({ posted, texts: [before, after], ended }));
process.exit();
