// Judges a server with the official TypeScript client, 2.x.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { judge, questions } from './judgement.mjs';

for (const asked of questions()) {
  const [command, ...args] = asked.command;
  const transport = asked.url ? new StreamableHTTPClientTransport(new URL(asked.url)) : new StdioClientTransport({ command, args });
  // `modern` pins the revision: no probe, and no way back to the handshake.
  const mode = asked.mode === 'modern' ? { pin: '2026-07-28' } : asked.mode;
  const client = new Client({ name: 'judge', version: '1' }, { versionNegotiation: { mode } });

  await judge(
    client,
    transport,
    asked,
    () => client.getNegotiatedProtocolVersion(),
    (call, options) => client.callTool(call, options),
  );
}
