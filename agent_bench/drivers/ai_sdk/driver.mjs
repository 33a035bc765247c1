// Vercel AI SDK, with @ai-sdk/mcp.
import { readFileSync } from 'node:fs'
import { createMCPClient } from '@ai-sdk/mcp'
import { Experimental_StdioMCPTransport as StdioTransport } from '@ai-sdk/mcp/mcp-stdio'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, stepCountIs } from 'ai'

const job = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const transport = job.command
  ? new StdioTransport({ command: job.command[0], args: job.command.slice(1), env: process.env })
  : { type: 'http', url: job.url }
const client = await createMCPClient({ transport })
const provider = createOpenAICompatible({ name: 'script', baseURL: `${job.model}/v1`, apiKey: 'no-key' })
try {
  await generateText({ model: provider('scripted'), tools: await client.tools(), stopWhen: stepCountIs(200), prompt: job.prompt })
} finally {
  await client.close()
}
