// A server on the official TypeScript SDK, 2.x, of both eras: `server2.mjs http PORT` or `stdio`.
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { createMcpHandler, inputRequired, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

function build() {
  const server = new McpServer({ name: 'typescript-2', version: '1.0.0' });
  server.registerTool(
    'add',
    {
      description: 'Adds two numbers.',
      inputSchema: z.object({ a: z.number(), b: z.number() }),
      outputSchema: z.object({ result: z.number() }),
    },
    async ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }], structuredContent: { result: a + b } }),
  );
  server.registerTool('steps', { inputSchema: z.object({ count: z.number() }) }, async ({ count }, ctx) => {
    const token = ctx.mcpReq._meta?.progressToken;
    for (let step = 1; step <= count && token !== undefined; step++) {
      await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken: token, progress: step, total: count } });
    }
    return { content: [{ type: 'text', text: 'done' }] };
  });
  server.registerTool('order', { inputSchema: z.object({}) }, async (_, ctx) => {
    const told = ctx.mcpReq.inputResponses?.order;
    if (told === undefined) {
      return inputRequired({
        inputRequests: {
          order: inputRequired.elicit({
            message: 'What?',
            requestedSchema: {
              type: 'object',
              properties: { name: { type: 'string' }, count: { type: 'integer', default: 3 } },
              required: ['name'],
            },
          }),
        },
      });
    }
    return { content: [{ type: 'text', text: `${told.content.count} ${told.content.name}` }] };
  });
  server.registerResource('today', 'memo://today', {}, async (uri) => ({ contents: [{ uri: uri.href, text: 'sunny' }] }));
  server.registerPrompt('review', { argsSchema: z.object({ code: z.string() }) }, ({ code }) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Review ${code}` } }],
  }));
  return server;
}

if (process.argv[2] === 'stdio') {
  serveStdio(build);
} else {
  const handler = createMcpHandler(build);
  createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length > 0 ? Buffer.concat(chunks) : undefined;
    const asked = new Request(`http://127.0.0.1${request.url}`, { method: request.method, headers: request.headers, body });
    const answer = await handler.fetch(asked);
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body === null) response.end();
    else Readable.fromWeb(answer.body).pipe(response);
  }).listen(Number(process.argv[3]), '127.0.0.1');
}
