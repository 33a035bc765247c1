// A server on the official TypeScript SDK, 1.x, which knows only the handshake: `server1.mjs http PORT` or `stdio`.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import * as z from 'zod';

function build() {
  const server = new McpServer({ name: 'typescript-1', version: '1.0.0' });
  server.registerTool(
    'add',
    { description: 'Adds two numbers.', inputSchema: { a: z.number(), b: z.number() }, outputSchema: { result: z.number() } },
    async ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }], structuredContent: { result: a + b } }),
  );
  server.registerTool('steps', { inputSchema: { count: z.number() } }, async ({ count }, extra) => {
    const token = extra._meta?.progressToken;
    for (let step = 1; step <= count && token !== undefined; step++) {
      await extra.sendNotification({ method: 'notifications/progress', params: { progressToken: token, progress: step, total: count } });
    }
    return { content: [{ type: 'text', text: 'done' }] };
  });
  server.registerTool('order', {}, async () => {
    // With no word about the request it belongs to: over HTTP it comes on the server's own stream.
    const answer = await server.server.elicitInput({
      message: 'What?',
      requestedSchema: {
        type: 'object',
        properties: { name: { type: 'string' }, count: { type: 'integer', default: 3 } },
        required: ['name'],
      },
    });
    const said = answer.action === 'accept' ? `${answer.content.count} ${answer.content.name}` : answer.action;
    return { content: [{ type: 'text', text: said }] };
  });
  server.registerResource('today', 'memo://today', {}, async (uri) => ({ contents: [{ uri: uri.href, text: 'sunny' }] }));
  server.registerPrompt('review', { argsSchema: { code: z.string() } }, ({ code }) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Review ${code}` } }],
  }));
  return server;
}

if (process.argv[2] === 'stdio') {
  await build().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  createServer(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined && request.headers['mcp-session-id'] !== undefined) {
      response.writeHead(404).end();
      return;
    }
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await build().connect(transport);
    }
    await transport.handleRequest(request, response);
  }).listen(Number(process.argv[3]), '127.0.0.1');
}
