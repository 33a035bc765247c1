// What the tools cost a model: each mode against common context windows, and each toolbox; leave tools out to see the difference.
import { gradually, h, memo } from "./dom.js";
import { changed, count, state } from "./store.js";

const WINDOWS = [
  ["128k", 128_000],
  ["200k", 200_000],
  ["1M", 1_000_000],
];
const left = new Set();
const cells = new Map();
const grouped = {};
let toggled = 0;

export function tokensPage() {
  const { costs } = state.overview;
  const shown = state.tools.filter((tool) => !left.has(tool.name));
  const chosen = shown.reduce((sum, tool) => sum + tool.tokens, 0);
  const modes = [["all", costs.all, "every tool is listed"]];
  if (costs.dynamic !== undefined) modes.push(["dynamic", costs.dynamic, "at the start of a session; opened toolboxes are added"]);
  for (const [name, tokens] of Object.entries(costs.opened || {})) modes.push([`dynamic + ${name}`, tokens, `once a model has opened ${name}`]);
  if (costs.proxy !== undefined) modes.push(["proxy", costs.proxy, "four meta-tools find, open and use all others"]);
  if (left.size) modes.push(["selection", chosen, `${count(shown.length)} of ${count(state.tools.length)} tools`]);
  const most = Math.max(1, ...modes.map(([, tokens]) => tokens));
  return [
    h(
      "section",
      { class: "card", key: "modes" },
      h("div", { class: "bar" }, h("h2", null, "What the tool list costs a model"), h("span", { class: "hint" }, "estimated tokens, in every request of a conversation")),
      h(
        "table",
        { class: "modes" },
        h("thead", null, h("tr", null, ["Mode", "", "Tokens", ...WINDOWS.map(([name]) => `of ${name}`), ""].map((text, index) => h("th", { scope: "col", class: index > 1 ? "number" : "" }, text)))),
        h(
          "tbody",
          null,
          modes.map(([name, tokens, about]) =>
            h(
              "tr",
              { key: name },
              h("th", { scope: "row" }, name),
              h("td", { class: "wide" }, h("div", { class: "meter" }, h("i", { style: { width: `${(100 * tokens) / most}%` } }))),
              h("td", { class: "number" }, count(tokens)),
              WINDOWS.map(([, size]) => h("td", { class: "number" }, `${((100 * tokens) / size).toFixed(tokens / size < 0.01 ? 2 : 1)}%`)),
              h("td", { class: "hint" }, about),
            ),
          ),
        ),
      ),
    ),
    memo(grouped, [state.tools], lanes).map(([lane, tools, first]) => {
      if (!cells.has(lane)) cells.set(lane, {});
      const part = gradually(first, changed);
      return memo(cells.get(lane), [tools, toggled, part.length], () => laneCard(lane, tools, part));
    }),
  ];
}

function lanes() {
  const lanes = new Map();
  for (const tool of state.tools) {
    if (!lanes.has(tool.lane)) lanes.set(tool.lane, []);
    lanes.get(tool.lane).push(tool);
  }
  return [...lanes].map(([lane, tools]) => [lane, tools, tools.slice(0, 300)]);
}

function laneCard(lane, tools, shown) {
  const all = tools.reduce((sum, tool) => sum + tool.tokens, 0);
  const on = tools.filter((tool) => !left.has(tool.name));
  const toggle = (names, off) => {
    for (const name of names) off ? left.add(name) : left.delete(name);
    toggled += 1;
    changed();
  };
  return h(
    "section",
    { class: "card", key: lane },
    h(
      "div",
      { class: "bar" },
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", checked: on.length === tools.length, indeterminate: on.length > 0 && on.length < tools.length, onchange: (event) => toggle(tools.map((tool) => tool.name), !event.target.checked) }),
        h("h2", null, lane),
      ),
      h("span", { class: "hint" }, `${count(on.reduce((sum, tool) => sum + tool.tokens, 0))} of ${count(all)} tokens`),
    ),
    h(
      "div",
      { class: "toggles" },
      shown.map((tool) =>
        h(
          "label",
          { class: "check", key: tool.name },
          h("input", { type: "checkbox", checked: !left.has(tool.name), onchange: (event) => toggle([tool.name], !event.target.checked) }),
          tool.tool,
          h("span", { class: "hint" }, count(tool.tokens)),
        ),
      ),
    ),
  );
}
