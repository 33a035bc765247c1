// Mastra, with @mastra/mcp.
import { readFileSync } from 'node:fs'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { Agent } from '@mastra/core/agent'
import { MCPClient } from '@mastra/mcp'

const job = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const server = job.command
  ? { command: job.command[0], args: job.command.slice(1), env: process.env }
  : { url: new URL(job.url) }
const client = new MCPClient({ servers: { bench: server } })
const provider = createOpenAICompatible({ name: 'script', baseURL: `${job.model}/v1`, apiKey: 'no-key' })
try {
  const agent = new Agent({
    id: 'bench', name: 'bench', instructions: 'Use the tools.', model: provider('scripted'), tools: await client.listTools(),
  })
  await agent.generate(job.prompt, { maxSteps: 200 })
} finally {
  await client.disconnect()
}
