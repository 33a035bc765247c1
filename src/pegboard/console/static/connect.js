// How to connect each client: one line or one entry to copy.
import { h } from "./dom.js";
import { copy, endpoint } from "./copying.js";
import { state } from "./store.js";

export function connectPage() {
  const url = endpoint();
  const name = state.overview.name;
  const entry = (members) => JSON.stringify(members, null, 2);
  const clients = [
    ["Claude Code", "in a terminal", `claude mcp add --transport http ${name} ${url}`],
    ["Codex CLI", "in a terminal", `codex mcp add ${name} --url ${url}`],
    ["Gemini CLI", "in a terminal", `gemini mcp add -s user -t http ${name} ${url}`],
    ["Cursor", ".cursor/mcp.json", entry({ mcpServers: { [name]: { url } } })],
    ["VS Code", ".vscode/mcp.json", entry({ servers: { [name]: { type: "http", url } } })],
    ["opencode", "opencode.json", entry({ mcp: { [name]: { type: "remote", url, enabled: true } } })],
    ["Python", "", `from pegboard import Client\n\nasync with Client("${url}") as client:\n    print(await client.list_tools())`],
  ];
  return h(
    "div",
    { class: "connect" },
    clients.map(([client, place, text]) =>
      h(
        "section",
        { class: "card", key: client },
        h("div", { class: "bar" }, h("h2", null, client), h("span", { class: "hint" }, place), h("button", { onclick: (event) => copy(event.currentTarget, text) }, "Copy")),
        h("pre", { class: "json" }, text),
      ),
    ),
  );
}
