// What every JavaScript judge is asked on its command line, and the lines of JSON it answers with.

// Reads the one argument: a JSON list of `{mode, tool, arguments, url}` or `{mode, tool, arguments, command}`.
export function questions() {
  return JSON.parse(process.argv[2]).map((asked) => ({ command: [], ...asked }));
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
