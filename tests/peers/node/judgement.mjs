// What every JavaScript judge is asked on its command line, and the one line of JSON it answers with.

// Reads `[--mode M] TOOL ARGUMENTS URL`, or `[--mode M] TOOL ARGUMENTS --stdio -- COMMAND…`.
export function question() {
  const words = process.argv.slice(2);
  const cut = words.indexOf('--');
  const command = cut < 0 ? [] : words.splice(cut).slice(1);
  const flag = words.indexOf('--mode');
  const mode = flag < 0 ? 'auto' : words.splice(flag, 2)[1];
  const [tool, json, url] = words.filter((word) => word !== '--stdio');
  if (!json || Boolean(url) === Boolean(command.length)) {
    console.error('usage: [--mode M] TOOL ARGUMENTS (URL | --stdio -- COMMAND…)');
    process.exit(2);
  }
  return { mode, tool, arguments: JSON.parse(json), url, command };
}

// The part that both generations of the SDK share; `call` is theirs to differ in.
export async function judge(client, transport, asked, protocol, call) {
  await client.connect(transport);
  const info = client.getServerVersion();
  const { tools } = await client.listTools();
  const progress = [];
  const onprogress = (seen) => progress.push([seen.progress, seen.total ?? null, seen.message ?? null]);
  const called = await call({ name: asked.tool, arguments: asked.arguments }, { onprogress });
  const verdict = {
    server: info ? { name: info.name, version: info.version } : {},
    protocol: protocol() ?? null,
    tools: tools.map((tool) => tool.name),
    result: called.content?.[0]?.text ?? null,
    structured: called.structuredContent ?? null,
    is_error: called.isError ?? false,
    progress,
  };
  await client.close();
  console.log(JSON.stringify(verdict));
}
