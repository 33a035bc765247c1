// Opens and closes a toolbox of each gateway it is given with the official TypeScript client, 1.x; prints what it was shown.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

for (const [target, ...args] of JSON.parse(process.argv[2])) {
  const transport = args.length
    ? new StdioClientTransport({ command: target, args })
    : new StreamableHTTPClientTransport(new URL(target));
  const client = new Client({ name: 'visitor', version: '1' });
  let tellChanged;
  client.fallbackNotificationHandler = async ({ method }) => {
    if (method === 'notifications/tools/list_changed') tellChanged();
  };

  await client.connect(transport);
  const names = async () => (await client.listTools()).tools.map((tool) => tool.name);
  const change = async (how) => {
    const changed = new Promise((resolve) => (tellChanged = resolve));
    await client.callTool({ name: `workbench_${how}_toolbox`, arguments: { toolbox_name: 'office' } });
    await changed;
    return names();
  };

  const before = await names();
  const opened = await change('open');
  const called = await client.callTool({ name: 'office__hello__add', arguments: { a: 2, b: 3 } });
  const closed = await change('close');
  await client.close();
  console.log(JSON.stringify({ before, opened, result: called.content[0].text, closed }));
}
