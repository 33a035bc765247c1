// The tools: a map by tokens and latency, a search that ranks as for a model, and a form that calls.
import { gradually, h, memo } from "./dom.js";
import { resultView } from "./call.js";
import { initial, jsonField, objectFields } from "./form.js";
import { changed, count, events, get, milliseconds, pageWidth, post, quantile, state } from "./store.js";
import { layOut, treemap } from "./treemap.js";

const view = { query: "", found: null, forms: new Map(), asJson: false };
let searching = 0;
const drawn = {};
const placed = {};
const times = {};
const rows = {};
const listDrawn = {};

export function toolsPage() {
  const chosen = state.toolByName.get(state.argument);
  if (!state.tools.length) return h("p", { class: "empty" }, "There are no tools yet. Add one to the board, or a server to the configuration.");
  return h(
    "div",
    { class: "split" },
    h("div", { class: "column" }, mapCard(), listCard(chosen)),
    h("div", { class: "column" }, chosen ? formCard(chosen) : h("section", { class: "card" }, h("p", { class: "empty" }, "Choose a tool to call it with a form."))),
  );
}

function latencies() {
  const byTool = new Map();
  for (const call of state.calls) {
    if (!byTool.has(call.name)) byTool.set(call.name, []);
    byTool.get(call.name).push(call.ms);
  }
  return new Map([...byTool].map(([name, values]) => [name, quantile(values.sort((a, b) => a - b), 0.95)]));
}

function mapCard() {
  const width = pageWidth(2);
  const tiles = memo(placed, [state.tools, width], () => layOut(state.tools, width));
  const shown = gradually(tiles, changed);
  return memo(drawn, [state.tick, shown.length, tiles], () => describeMap(shown, width));
}

function describeMap(tiles, width) {
  const p95 = memo(times, [state.tick], latencies);
  return h(
    "section",
    { class: "card", key: "map" },
    h("div", { class: "bar" }, h("h2", null, "Map"), h("span", { class: "hint" }, "area: tokens that the definition costs a model; colour: p95 of its calls")),
    treemap(tiles, (tool) => speed(p95.get(tool.name)), open, width),
    h("span", { class: "legend" }, SPEEDS.map(([name, label]) => h("span", { key: name }, h("i", { class: `dot ${name}` }), label))),
  );
}

const SPEEDS = [
  ["fast", "under 100 ms"],
  ["medium", "under 1 s"],
  ["slow", "slower"],
  ["unused", "not called yet"],
];

function speed(value) {
  if (value === undefined) return "unused";
  return value < 100 ? "fast" : value < 1000 ? "medium" : "slow";
}

function listCard(chosen) {
  const [listed, first] = memo(rows, [view.found, state.tools], () => {
    const all = view.found ? view.found.map((name) => state.toolByName.get(name)).filter(Boolean) : state.tools;
    return [all, all.slice(0, 200)];
  });
  const shown = gradually(first, changed);
  return memo(listDrawn, [view.query, listed, shown.length, chosen], () => describeList(listed, first.length, shown, chosen));
}

function describeList(listed, most, shown, chosen) {
  return h(
    "section",
    { class: "card", key: "list" },
    h(
      "div",
      { class: "bar" },
      h("h2", null, `${count(state.tools.length)} tools`),
      h("input", { type: "search", placeholder: "Search as a model would", "aria-label": "Search tools", value: view.query, oninput: (event) => search(event.target.value) }),
    ),
    h(
      "ul",
      { class: "tools" },
      shown.map((tool) =>
        h(
          "li",
          { key: tool.name },
          h(
            "a",
            { href: `#tools/${encodeURIComponent(tool.name)}`, class: tool === chosen ? "current" : "" },
            h("b", null, tool.tool),
            h("span", { class: "hint" }, tool.lane),
            h("span", { class: "number" }, `${count(tool.tokens)} tok`),
            h("span", { class: "about" }, about(tool).split("\n")[0]),
          ),
        ),
      ),
    ),
    listed.length > most && h("p", { class: "hint" }, `${count(listed.length - most)} more; search to find them.`),
    !listed.length && h("p", { class: "empty" }, "No tool matches."),
  );
}

/** The description, without the name of the server, which is shown beside it. */
function about(tool) {
  return String(tool.description || "").replace(`[${tool.lane}] `, "");
}

async function search(query) {
  view.query = query;
  changed();
  const number = (searching += 1);
  const found = query.trim() ? await get(`search?q=${encodeURIComponent(query)}`) : null;
  if (number === searching) {
    view.found = found;
    changed();
  }
}

function open(tool) {
  location.hash = `tools/${encodeURIComponent(tool.name)}`;
}

/** Show the form of a tool with these arguments. */
export function openForm(name, args) {
  view.forms.set(name, { ...emptyForm(), value: structuredClone(args) });
  location.hash = `tools/${encodeURIComponent(name)}`;
}

function emptyForm() {
  return { value: {}, running: false, events: [], result: null, problem: "", question: null, progress: null, took: null };
}

function formOf(tool) {
  if (!view.forms.has(tool.name)) view.forms.set(tool.name, { ...emptyForm(), value: initial(tool.inputSchema || {}, tool.inputSchema || {}) || {} });
  return view.forms.get(tool.name);
}

function formCard(tool) {
  const form = formOf(tool);
  const schema = tool.inputSchema || {};
  const set = (value) => {
    form.value = value;
    changed();
  };
  return h(
    "section",
    { class: "card form", key: `form-${tool.name}` },
    h("div", { class: "bar" }, h("h2", null, tool.title || tool.tool), hints(tool), h("span", { class: "hint" }, tool.lane)),
    h("p", null, about(tool)),
    h(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          run(tool.name);
        },
      },
      view.asJson ? jsonField("arguments", form.value, set) : objectFields(schema, schema, () => form.value, set),
      h(
        "div",
        { class: "buttons" },
        h("button", { class: "primary", disabled: form.running }, form.running ? "Running…" : "Call"),
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(view.asJson),
            onclick: () => {
              view.asJson = !view.asJson;
              changed();
            },
          },
          view.asJson ? "Form" : "JSON",
        ),
      ),
    ),
    outcome(form),
  );
}

/** What the server says about the effect of a tool. */
function hints(tool) {
  const { readOnlyHint, destructiveHint } = tool.annotations || {};
  if (readOnlyHint) return h("span", { class: "badge ok" }, "reads only");
  return destructiveHint ? h("span", { class: "badge error" }, "destructive") : null;
}

function outcome(form) {
  return h(
    "div",
    { class: "outcome", "aria-live": "polite" },
    form.progress &&
      h("div", { class: "progress" }, h("progress", { value: String(form.progress.done), max: form.progress.total ? String(form.progress.total) : null }), h("span", null, form.progress.message || "")),
    form.events.map((event) => h("p", { class: "hint" }, `${event.level}: ${typeof event.data === "string" ? event.data : JSON.stringify(event.data)}`)),
    form.question && questionView(form),
    form.problem && h("p", { class: "warning failed" }, form.problem),
    form.result && h("h3", null, "Result", h("span", { class: "hint" }, milliseconds(form.took))),
    form.result && resultView(form.result),
    repairs(form.result),
  );
}

function repairs(result) {
  const warnings = result?._meta?.["dev.pegboard/parseWarnings"] || [];
  return warnings.map((warning) => h("p", { class: "warning" }, `Repaired ${warning.message}`));
}

function questionView(form) {
  const { question } = form;
  const answer = async (action) => {
    form.question = null;
    changed();
    await post("answer", { id: question.id, action, content: question.value }).catch((error) => (form.problem = error.message));
    changed();
  };
  const set = (value) => {
    question.value = value;
    changed();
  };
  return h(
    "form",
    {
      class: "question",
      onsubmit: (event) => {
        event.preventDefault();
        answer("accept");
      },
    },
    h("h3", null, "The tool asks"),
    h("p", null, question.message),
    question.url ? h("p", null, h("code", null, question.url)) : objectFields(question.schema, question.schema, () => question.value, set, "/question"),
    h(
      "div",
      { class: "buttons" },
      h("button", { class: "primary" }, "Answer"),
      h("button", { type: "button", onclick: () => answer("decline") }, "Decline"),
      h("button", { type: "button", onclick: () => answer("cancel") }, "Cancel"),
    ),
  );
}

/** Call a tool with the values of its form; progress, logs and questions arrive meanwhile. */
export async function run(name) {
  const form = view.forms.get(name);
  Object.assign(form, { running: true, events: [], result: null, problem: "", question: null, progress: null });
  changed();
  const began = performance.now();
  try {
    const response = await post("call", { method: "tools/call", name, arguments: form.value });
    for await (const [kind, value] of events(response)) {
      if (kind === "progress") form.progress = value;
      else if (kind === "log") form.events = [...form.events.slice(-20), value];
      else if (kind === "question") form.question = { ...value, value: initial(value.schema, value.schema) || {} };
      else if (kind === "result") form.result = value;
      else if (kind === "error") form.problem = value.message;
      changed();
    }
  } catch (error) {
    form.problem = error.message;
  }
  form.took = performance.now() - began;
  form.running = false;
  form.progress = null;
  changed();
}
