// The details of one call: arguments and repairs, where the time went, the result, and ways to call again.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { argumentDiff, jsonView } from "./json.js";
import { asCurl, asPython, asTest, copy } from "./copying.js";
import { modelView } from "./model_view.js";
import { count, kindOf, milliseconds, select, state } from "./store.js";
import { openForm, run } from "./tools.js";

export function callPanel() {
  const row = state.byNumber.get(state.selected);
  const { details } = state;
  return h(
    "aside",
    { key: "panel", "aria-label": "Call" },
    h(
      "div",
      { class: "bar" },
      h("h2", null, row ? `${row.lane} / ${row.name.split("__").pop()}` : `Call ${state.selected}`),
      row && h("span", { class: `badge ${kindOf(row)}` }, kindOf(row) === "ok" ? row.outcome : kindOf(row)),
      h("button", { class: "quiet", "aria-label": "Close", onclick: () => select(null) }, icon("close")),
    ),
    !details ? h("p", { class: "empty" }, "Loading…") : details.error ? h("p", { class: "empty" }, details.error) : sections(details),
  );
}

const tokens = (number) => `about ${count(number)} ${number === 1 ? "token" : "tokens"}`;

function sections(call) {
  return [
    h(
      "section",
      { class: "card", key: "arguments" },
      h("h3", null, "Arguments"),
      argumentDiff(call.sent, call.ran),
      call.warnings.map((warning) => h("p", { class: "warning" }, warning.message)),
    ),
    call.problem && h("section", { class: "card", key: "problem" }, h("h3", null, "Failed"), h("pre", { class: "json" }, call.problem)),
    h("section", { class: "card", key: "time" }, h("h3", null, `Where the ${milliseconds(call.ms)} went`), waterfall(call)),
    call.result && h("section", { class: "card", key: "result" }, h("h3", null, "Result", h("span", { class: "hint" }, tokens(call.tokens_out))), resultView(call.result)),
    modelView(call),
    h(
      "section",
      { class: "card", key: "from" },
      h("h3", null, "From"),
      h(
        "dl",
        null,
        [
          ["client", call.client],
          ["principal", call.principal],
          ["protocol", `${call.version} over ${call.transport}`],
          ["rule", call.rule],
          ["trace", call.trace],
          ["at", new Date(call.at * 1000).toLocaleString("en-GB")],
          ["arguments", tokens(call.tokens_in)],
        ]
          .filter(([, value]) => value)
          .map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
      ),
    ),
    call.method === "tools/call" && again(call),
  ];
}

const QUEUES = { limit: "limit queue", thread: "thread queue", server: "server queue" };

/** Take the time in queues out of the spans that contain it: limits are before the tool, threads and slots in front of it. */
function showQueues(spans, waited, inner) {
  for (const [kind, label] of Object.entries(QUEUES)) {
    const at = spans.findIndex(([name]) => (kind === "limit" ? ["before", "gateway", inner].includes(name) : name === inner));
    if (!(waited[kind] > 0) || at < 0) continue;
    const [name, start, length] = spans[at];
    const queue = Math.min(waited[kind], length);
    // What comes before a limit is not known apart from what comes after it.
    spans.splice(at, 1, [label, start, queue], [name, start + queue, length - queue]);
  }
}

function waterfall(call) {
  const total = call.ms || 0.001;
  const spans = [];
  // Behind a gateway, a lane is a server: what is not spent there is spent here.
  // A call that was rejected here has not reached it.
  const inner = !call.result && call.problem ? "checks" : call.lane.includes("/") ? "server" : "tool";
  if (call.tool_ms !== null && (call.before_ms ?? null) === null) {
    const server = Math.min(total, call.tool_ms);
    spans.push(["gateway", 0, total - server], [inner, total - server, server]);
  } else if (call.tool_ms !== null) {
    const start = Math.min(call.before_ms, total);
    const end = Math.min(total, start + call.tool_ms);
    spans.push(["before", 0, start], [inner, start, end - start], ["after", end, total - end]);
  } else spans.push([inner, 0, total]);
  showQueues(spans, call.waited_ms || {}, inner);
  return h(
    "div",
    { class: "waterfall" },
    spans.map(([name, start, length]) =>
      h(
        "div",
        null,
        h("span", null, name),
        h("span", { class: "track" }, h("i", { class: name === inner ? "ok" : name.endsWith("queue") ? "repaired" : "", style: { left: `${(100 * start) / total}%`, width: `${Math.max(0.6, (100 * length) / total)}%` } })),
        h("span", { class: "number" }, milliseconds(length)),
      ),
    ),
    call.tool_ms === null && h("p", { class: "hint" }, "There is no middleware around it."),
  );
}

/** The content of a result: texts, images, links, structured content. */
export function resultView(result) {
  const blocks = result.content || result.contents || [];
  const structured = result.structuredContent;
  const shown = blocks.map(blockView);
  if (structured !== undefined) shown.push(h("details", { open: !blocks.length || undefined }, h("summary", null, "Structured content"), jsonView(structured)));
  if (result.messages) shown.push(jsonView(result.messages));
  if (result.resultType === "input_required") shown.push(h("p", { class: "warning" }, "The call asks its caller, and continues with the answer."), jsonView(result.inputRequests));
  if (result.shortened) shown.push(h("p", { class: "hint" }, result.shortened));
  return h("div", { class: result.isError ? "result failed" : "result" }, shown.length ? shown : h("p", { class: "hint" }, "Nothing was returned."));
}

const IMAGES = /^image\/(png|jpeg|gif|webp)$/;

function blockView(block) {
  if (block.type === "image" && IMAGES.test(block.mimeType)) return h("img", { src: `data:${block.mimeType};base64,${block.data}`, alt: "Image of the result" });
  if (block.type === "resource_link") return h("p", null, "Link: ", h("code", null, block.uri));
  const text = block.text ?? block.resource?.text;
  if (typeof text === "string") {
    try {
      const value = JSON.parse(text);
      if (typeof value === "object" && value !== null) return jsonView(value);
    } catch {
      // Plain text.
    }
    return h("pre", { class: "json" }, text);
  }
  return jsonView(block);
}

function again(call) {
  const args = call.sent && typeof call.sent === "object" ? call.sent : {};
  return h(
    "section",
    { class: "card", key: "again" },
    h("h3", null, "Again"),
    h(
      "div",
      { class: "buttons" },
      h(
        "button",
        {
          class: "primary replay",
          onclick: () => {
            openForm(call.name, args);
            run(call.name);
          },
        },
        "Replay",
      ),
      h("button", { onclick: () => openForm(call.name, args) }, "Edit and call"),
      [
        ["Copy as curl", asCurl],
        ["Copy as Python", asPython],
        ["Copy as pytest", asTest],
      ].map(([label, write]) => h("button", { onclick: (event) => copy(event.currentTarget, write(call.name, args)) }, label)),
    ),
  );
}
