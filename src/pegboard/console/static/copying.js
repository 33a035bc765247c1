// A call as text to paste elsewhere: curl, Python, pytest.

export const endpoint = () => location.origin + location.pathname.replace(/\/console\/?$/, "/mcp");

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export function asCurl(name, args) {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "curl", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const body = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: args, _meta: meta } };
  return [
    `curl -s ${endpoint()}`,
    "-H 'content-type: application/json'",
    "-H 'accept: application/json, text/event-stream'",
    "-H 'mcp-protocol-version: 2026-07-28'",
    "-H 'mcp-method: tools/call'",
    `-H ${quoted(`mcp-name: ${name}`)}`,
    `-d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n  ");
}

export function asPython(name, args) {
  return `import asyncio

from pegboard import Client


async def main() -> None:
    async with Client(${python(endpoint())}) as client:
        result = await client.call(${python(name)}, ${python(args)})
        print(result.text)


asyncio.run(main())
`;
}

export function asTest(name, args) {
  const words = name.replace(/[^A-Za-z0-9]+/g, "_").toLowerCase();
  return `from pegboard import Client

from server import board  # your board


async def test_${words}_answers() -> None:
    async with Client(board) as client:
        result = await client.call(${python(name)}, ${python(args)})
        assert not result.is_error, result.text
`;
}

function python(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, item]) => `${python(key)}: ${python(item)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** Copy a text, and say so on the button for a moment. */
export async function copy(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy by hand";
  }
  setTimeout(() => (button.textContent = before), 1200);
}
