// Judges a server with the command line of the official Inspector, one run a method.
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { questions } from './judgement.mjs';

const launcher = fileURLToPath(import.meta.resolve('@modelcontextprotocol/inspector/package.json')).replace(
  'package.json',
  'clients/launcher/build/index.js',
);

function inspect(asked, ...method) {
  const flags = ['--cli', '--format', 'json', '--stored-auth-only', '--protocol-era', asked.mode];
  const target = asked.url ? ['--transport', 'http', '--server-url', asked.url] : ['--transport', 'stdio'];
  const command = asked.command.length ? ['--', ...asked.command] : [];
  const words = [launcher, ...flags, ...target, '--method', ...method, ...command];
  return JSON.parse(execFileSync(process.execPath, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })).result;
}

for (const asked of questions()) {
  const opened = inspect(asked, 'initialize');
  const listed = inspect(asked, 'tools/list');
  const called = inspect(asked, 'tools/call', '--tool-name', asked.tool, '--tool-args-json', JSON.stringify(asked.arguments));
  console.log(
    JSON.stringify({
      server: { name: opened.serverInfo.name, version: opened.serverInfo.version },
      protocol: opened.protocolVersion,
      tools: listed.tools.map((tool) => tool.name),
      result: called.content?.[0]?.text ?? null,
      structured: called.structuredContent ?? null,
      is_error: called.isError ?? false,
      // This client does not show progress.
      progress: [],
    }),
  );
}
