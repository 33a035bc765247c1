// LangChain.js, with @langchain/mcp-adapters.
import { readFileSync } from 'node:fs'
import { MultiServerMCPClient } from '@langchain/mcp-adapters'
import { ChatOpenAI } from '@langchain/openai'
import { createAgent } from 'langchain'

const job = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const server = job.command
  ? { transport: 'stdio', command: job.command[0], args: job.command.slice(1), env: process.env }
  : { transport: 'http', url: job.url }
const client = new MultiServerMCPClient({ mcpServers: { bench: server } })
const model = new ChatOpenAI({ model: 'scripted', apiKey: 'no-key', configuration: { baseURL: `${job.model}/v1` } })
try {
  const agent = createAgent({ model, tools: await client.getTools() })
  await agent.invoke({ messages: [{ role: 'user', content: job.prompt }] }, { recursionLimit: 200 })
} finally {
  await client.close()
}
