// How to connect each client: one line or one entry to copy.
import { h } from "./dom.js";
import { copy, endpoint } from "./copying.js";
import { changed, get, state } from "./store.js";

let texts = null;
let problem = "";

async function load() {
  try {
    texts = await get("clients");
  } catch (error) {
    problem = error.message;
  }
  changed();
}

export function connectPage() {
  if (!texts && !problem) load();
  if (!texts) return h("p", { class: "empty" }, problem || "Loading…");
  const url = endpoint();
  // Where API keys are accepted, each client sends one; elsewhere clients log in themselves.
  const headers = state.overview.keys ? `, headers={"Authorization": "Bearer YOUR_KEY"}` : "";
  const python = ["Python", "", `from pegboard import Client\n\nasync with Client("{url}"${headers}) as client:\n    print(await client.list_tools())`];
  const clients = [...texts, python].map(([client, place, text]) => [client, place, text.replaceAll("{url}", url)]);
  return h(
    "div",
    { class: "connect" },
    state.overview.keys && h("p", { class: "hint wide", key: "keys" }, "Each client also sends the header Authorization: Bearer KEY. The operator makes a key: ", h("code", null, "pegboard keys add NAME")),
    clients.map(([client, place, text]) =>
      h(
        "section",
        { class: "card", key: client },
        h("div", { class: "bar" }, h("h2", null, client), h("span", { class: "hint", title: place }, place), h("button", { onclick: (event) => copy(event.currentTarget, text) }, "Copy")),
        h("pre", { class: "json" }, text),
      ),
    ),
  );
}
