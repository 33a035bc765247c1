// Judges a server with the official TypeScript SDK, 1.x, which knows only the handshake.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { judge, questions } from './judgement.mjs';

for (const asked of questions()) {
  const [command, ...args] = asked.command;
  const Remote = asked.mode === 'sse' ? SSEClientTransport : StreamableHTTPClientTransport;
  const transport = asked.url ? new Remote(new URL(asked.url)) : new StdioClientTransport({ command, args });
  const client = new Client({ name: 'judge', version: '1' });
  // This generation tells the negotiated revision to its transport and keeps no record of its own.
  let negotiated;
  const tell = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    negotiated = version;
    tell?.(version);
  };

  await judge(
    client,
    transport,
    asked,
    () => negotiated,
    (call, options) => client.callTool(call, undefined, options),
  );
}
