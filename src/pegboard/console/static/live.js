// The timeline: a lane for each server, a bar for each call, the last sixty seconds.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { changed, endOf, kindOf, matching, milliseconds, recent, select, shortName, state, timeOfDay } from "./store.js";

const SECONDS = 60;
const LABEL = 150;
const AXIS = 22;
const ROW = 12;
const ROWS = 4;
const FEWEST_ROWS = 2;
const LISTED = 40;

let canvas = null;
let bars = [];
let frame = 0;
let hovered = null;
// The rows that each lane has needed so far: lanes grow, and do not jump back.
const rowsOf = new Map();

export function livePage() {
  const calls = matching(state.calls);
  const listed = calls.slice(-LISTED).reverse();
  return [
    h(
      "section",
      { class: "card", key: "timeline" },
      h(
        "div",
        { class: "bar" },
        h("h2", null, "Live calls"),
        h("span", { class: "hint" }, state.paused ? "paused" : `last ${SECONDS} s`),
        legend(),
        h("input", {
          type: "search",
          placeholder: "Tool, client, error…",
          "aria-label": "Filter calls",
          value: state.filter,
          oninput: (event) => {
            state.filter = event.target.value;
            changed();
          },
        }),
        h(
          "div",
          { class: "buttons" },
          h("button", { class: "pause", "aria-pressed": String(Boolean(state.paused)), onclick: pause }, icon(state.paused ? "play" : "pause"), state.paused ? "Resume" : "Pause"),
          h("a", { class: "button", href: "api/calls.jsonl", download: "calls.jsonl" }, "Export"),
        ),
      ),
      h("div", { class: "timeline", own: true, mounted: mountCanvas, removed: removeCanvas }),
    ),
    h(
      "section",
      { class: "card", key: "list" },
      h("div", { class: "bar" }, h("h2", null, "Latest calls"), h("span", { class: "hint keys" }, "j and k step through them")),
      listed.length
        ? h(
            "table",
            { class: "calls" },
            h("thead", null, h("tr", null, ["Time", "Server", "Tool", "Client", "Outcome", "Took"].map((text) => h("th", { scope: "col", class: text === "Took" ? "number" : "" }, text)))),
            h("tbody", null, listed.map(callRow)),
          )
        : emptyText(),
    ),
  ];
}

function emptyText() {
  if (state.calls.length) return h("p", { class: "empty" }, "No call matches the filter.");
  const [tool] = state.tools;
  return h(
    "div",
    { class: "empty" },
    h("p", null, "No calls yet. Call a tool to see it here:"),
    h("p", null, tool ? h("a", { href: `#tools/${encodeURIComponent(tool.name)}` }, `Try ${tool.tool} in a form`) : "Add a tool or a server first."),
    h("p", null, h("a", { href: "#connect" }, "Or connect an agent")),
  );
}

function callRow(call) {
  const kind = kindOf(call);
  const open = () => select(call.number);
  return h(
    "tr",
    {
      key: `call-${call.number}`,
      class: call.number === state.selected ? "selected" : "",
      tabindex: "0",
      onclick: open,
      onkeydown: (event) => event.key === "Enter" && open(),
    },
    h("td", null, timeOfDay(call.at)),
    h("td", null, call.lane),
    h("td", { class: "name" }, shortName(call)),
    h("td", null, call.principal || call.client),
    h("td", null, h("span", { class: `badge ${kind}` }, kind === "repaired" ? `repaired ${call.repairs}` : call.outcome)),
    h("td", { class: "number" }, milliseconds(call.ms)),
  );
}

function legend() {
  return h(
    "span",
    { class: "legend" },
    [
      ["ok", "ok"],
      ["repaired", "repaired"],
      ["asked", "asked"],
      ["error", "error"],
    ].map(([kind, label]) => h("span", null, h("i", { class: `dot ${kind}` }), label)),
  );
}

function pause() {
  state.paused = state.paused ? null : Date.now() / 1000;
  changed();
}

// -- the canvas ------------------------------------------------------------------------------------------------------

function mountCanvas(element) {
  canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Timeline of the calls of the last minute; the table below lists them");
  element.append(canvas);
  canvas.addEventListener("mousemove", (event) => {
    hovered = barAt(event);
    canvas.style.setProperty("cursor", hovered ? "pointer" : "default");
    canvas.title = hovered ? `${hovered.call.name} ${milliseconds(hovered.call.ms)}` : "";
  });
  canvas.addEventListener("click", (event) => {
    const bar = barAt(event);
    if (bar) select(bar.call.number);
  });
  const loop = () => {
    draw();
    frame = requestAnimationFrame(loop);
  };
  loop();
}

function removeCanvas() {
  cancelAnimationFrame(frame);
  canvas = null;
  bars = [];
}

function barAt(event) {
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left;
  const y = event.clientY - box.top;
  for (let index = bars.length - 1; index >= 0; index -= 1) {
    const bar = bars[index];
    if (x >= bar.x - 2 && x <= bar.x + bar.width + 2 && y >= bar.y - 2 && y <= bar.y + ROW) return bar;
  }
  return null;
}

function laneNames(calls) {
  const names = new Set(state.overview.toolboxes.flatMap((toolbox) => toolbox.servers.map((server) => `${toolbox.name}/${server.name}`)));
  if (!names.size) names.add(state.overview.name);
  for (const call of calls) names.add(call.lane);
  return [...names];
}

function draw() {
  if (!canvas || !state.overview) return;
  const now = state.paused || Date.now() / 1000;
  const shown = matching(recent(SECONDS, now).filter((call) => call.at <= now));
  const lanes = laneNames(shown);
  const heights = lanes.map((lane) => (rowsOf.get(lane) || FEWEST_ROWS) * (ROW + 2) + 12);
  const width = canvas.parentElement.clientWidth;
  const height = AXIS + heights.reduce((sum, value) => sum + value, 0);
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.setProperty("height", `${height}px`);
  }
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const label = width < 560 ? 84 : LABEL;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const left = (at) => label + ((at - (now - SECONDS)) / SECONDS) * (width - label - 8);
  left.start = label;
  const step = width < 560 ? 20 : 10;
  for (let back = SECONDS; back >= 0; back -= step) {
    const x = left(now - back);
    context.strokeStyle = colour("--line");
    context.beginPath();
    context.moveTo(x, AXIS - 4);
    context.lineTo(x, height);
    context.stroke();
    context.fillStyle = colour("--quiet");
    context.textAlign = back === SECONDS ? "left" : back === 0 ? "right" : "center";
    context.fillText(back === 0 ? "now" : `−${back} s`, x, 8);
  }
  context.textAlign = "left";
  const colours = { ok: colour("--ok"), repaired: colour("--repaired"), asked: colour("--asked"), error: colour("--error") };
  bars = [];
  let top = AXIS;
  lanes.forEach((lane, index) => {
    const laneHeight = heights[index];
    context.strokeStyle = colour("--line");
    context.beginPath();
    context.moveTo(0, top + laneHeight - 0.5);
    context.lineTo(width, top + laneHeight - 0.5);
    context.stroke();
    context.fillStyle = colour("--text");
    context.fillText(fitted(context, width < 560 ? lane.split("/").pop() : lane, label - 12), 0, top + laneHeight / 2 - 2);
    drawLane(context, shown, lane, top + 6, left, colours);
    top += laneHeight;
  });
}

function drawLane(context, calls, lane, top, left, colours) {
  const ends = [];
  for (const call of calls) {
    if (call.lane !== lane) continue;
    const x = Math.max(left(call.at), left.start);
    const width = Math.max(4, left(endOf(call)) - x);
    let row = ends.findIndex((end) => end <= x);
    if (row < 0) row = ends.length < ROWS ? ends.length : ends.indexOf(Math.min(...ends));
    ends[row] = x + width + 1;
    const bar = { call, x, y: top + row * (ROW + 2), width };
    bars.push(bar);
    context.fillStyle = colours[kindOf(call)];
    context.globalAlpha = call.number === state.selected || hovered?.call === call ? 1 : 0.85;
    context.beginPath();
    context.roundRect(bar.x, bar.y, bar.width, ROW, Math.min(3, bar.width / 2));
    context.fill();
    context.globalAlpha = 1;
    if (call.number === state.selected) {
      context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--text");
      context.strokeRect(bar.x - 1.5, bar.y - 1.5, bar.width + 3, ROW + 3);
    }
  }
  noteRows(lane, ends.length);
}

function noteRows(lane, rows) {
  if (rows > (rowsOf.get(lane) || FEWEST_ROWS)) rowsOf.set(lane, Math.min(ROWS, rows));
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let shown = text;
  while (shown.length > 4 && context.measureText(`${shown}…`).width > width) shown = shown.slice(0, -1);
  return `${shown}…`;
}
