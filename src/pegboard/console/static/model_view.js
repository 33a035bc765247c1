// What the model of each agent sees of a result: measured, see docs/agents.md.
import { AGENTS } from "./agents.js";
import { h } from "./dom.js";
import { changed } from "./store.js";

const LABELS = { text: "text", textBeside: "text", embedded: "resource", link: "link", image: "image", structured: "structured", failed: "error text", refused: "protocol error" };
const MARKS = { yes: ["✓", "ok", "seen"], partly: ["◐", "repaired", "partly seen"], no: ["✕", "error", "not seen"], ended: ["■", "error", "the agent ends"] };
let open = false;

/** The parts of an outcome that agents treat differently. */
function partsOf(call) {
  const { result } = call;
  if (!result) return ["refused"];
  if (result.isError) return ["failed"];
  const blocks = result.content || [];
  const structured = result.structuredContent !== undefined;
  const has = (type) => blocks.some((block) => block.type === type);
  return [
    has("text") && (structured ? "textBeside" : "text"),
    structured && "structured",
    has("image") && "image",
    has("resource") && "embedded",
    has("resource_link") && "link",
  ].filter(Boolean);
}

export function modelView(call) {
  const parts = partsOf(call);
  if (!parts.length || call.method !== "tools/call") return null;
  const all = AGENTS.filter((agent) => parts.every((part) => agent[part] === "yes")).length;
  return h(
    "section",
    { class: "card", key: "models" },
    h("h3", null, "What the model sees"),
    h(
      "p",
      null,
      h("button", { class: "link plain hint", "aria-expanded": String(open), onclick: () => ((open = !open), changed()) }, `${all} of ${AGENTS.length} agents pass everything on ${open ? "▾" : "▸"}`),
    ),
    open &&
      h(
        "table",
        { class: "agents" },
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "Agent"), parts.map((part) => h("th", { scope: "col" }, LABELS[part])))),
        h(
          "tbody",
          null,
          AGENTS.map((agent) =>
            h(
              "tr",
              { key: agent.agent },
              h("th", { scope: "row" }, agent.agent),
              parts.map((part) => {
                const [mark, tone, label] = MARKS[agent[part]] || ["?", "quiet", agent[part]];
                return h("td", null, h("span", { class: `mark ${tone}` }, mark), h("span", { class: "hint" }, ` ${label}`));
              }),
            ),
          ),
        ),
      ),
  );
}
