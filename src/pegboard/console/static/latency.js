// How long calls take: p50, p95 and p99 over time and for each tool, and how much of it is spent here.
import { h, memo } from "./dom.js";
import { icon } from "./icons.js";
import { changed, count, kindOf, milliseconds, pageWidth, quantile, shortName, state, timeOfDay } from "./store.js";

const HEIGHT = 200;
const LEFT = 64;
const LISTED = 60;
const drawn = {};
let chosen = "";
const LINES = [
  ["p50", 0.5],
  ["p95", 0.95],
  ["p99", 0.99],
];

export function latencyPage() {
  const { calls } = state;
  if (!calls.length) return h("p", { class: "empty" }, "No calls yet. ", h("a", { href: "#tools" }, "Call a tool"), " to measure it.");
  return memo(drawn, [state.tick, pageWidth(), state.tools, chosen], () => h("div", { class: "column", key: "latency" }, sections(calls)));
}

function choose(name) {
  chosen = chosen === name ? "" : name;
  changed();
}

function sections(calls) {
  const shown = calls.filter((call) => !chosen || call.name === chosen);
  return [
    h(
      "section",
      { class: "card", key: "chart" },
      h(
        "div",
        { class: "bar" },
        h("h2", null, "Latency over time"),
        chosen ? h("button", { class: "chip", onclick: () => choose("") }, shown.length ? shortName(shown[0]) : chosen, icon("close")) : h("span", { class: "hint" }, "all tools"),
        h("span", { class: "hint" }, `${count(shown.length)} calls, logarithmic`),
        legend(),
      ),
      shown.length ? chart(shown) : h("p", { class: "empty" }, "Its calls are not kept any more."),
    ),
    h(
      "section",
      { class: "card", key: "table" },
      h("div", { class: "bar" }, h("h2", null, "By tool"), h("span", { class: "hint" }, `choose a tool to see it over time; ${isGateway() ? "gateway: all that is not spent at the server" : "overhead: middleware around the tool"}`)),
      table(calls),
    ),
  ];
}

const isGateway = () => state.overview.kind === "gateway";
const sorted = (values) => values.sort((a, b) => a - b);
/** The time of a call that is not spent in its tool or server; null if that was not measured. */
const here = (call) => (call.tool_ms === null || call.tool_ms === undefined ? null : Math.max(0.001, call.ms - call.tool_ms));
const hereName = () => (isGateway() ? "gateway p95" : "overhead p95");

function legend() {
  return h("span", { class: "legend" }, [...LINES, ["here"]].map(([name]) => h("span", { key: name }, h("i", { class: `dot ${name}` }), name === "here" ? hereName() : name)));
}

/** The calls in a few parts of equal length: with few calls few parts, or the lines would be one. */
function split(calls, first, span) {
  const parts = Array.from({ length: Math.max(4, Math.min(60, Math.round(calls.length / 10))) }, () => []);
  for (const call of calls) parts[Math.min(parts.length - 1, Math.floor(((call.at - first) / span) * parts.length))].push(call);
  return parts;
}

/** Powers of ten between two values; the values themselves if there are none. */
function ticks(low, most) {
  const powers = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(most); power += 1) powers.push(10 ** power);
  return powers.length > 1 ? powers : [low, most];
}

/** A duration without zeros at its end. */
function onScale(value) {
  const [number, unit] = milliseconds(value).split(" ");
  return `${Number(number)} ${unit}`;
}

/** Where the times are written below a chart, as shares of its width. */
const times = (width) => (width > 600 ? [0, 0.25, 0.5, 0.75, 1] : [0, 1]);

function chart(calls) {
  const width = pageWidth();
  // Calls are in the order in which they ended.
  let first = Infinity;
  let last = 0;
  let low = Infinity;
  let most = 0.01;
  for (const call of calls) {
    first = Math.min(first, call.at);
    last = Math.max(last, call.at);
    low = Math.min(low, here(call) ?? call.ms, call.ms);
    most = Math.max(most, call.ms);
  }
  low = Math.max(0.001, Math.min(low, most / 2));
  const parts = split(calls, first, Math.max(1, last - first));
  const y = (value) => HEIGHT - 30 - (Math.log(Math.max(value, low) / low) / Math.log(most / low)) * (HEIGHT - 44);
  const line = (name, valueOf) => {
    const points = parts
      .map((part, index) => [LEFT + ((index + 0.5) / parts.length) * (width - LEFT - 8), valueOf(part)])
      .filter(([, value]) => value !== null)
      .map(([x, value]) => `${x.toFixed(1)},${y(value).toFixed(1)}`);
    return h("polyline", { key: name, class: `line ${name}`, points: points.join(" ") });
  };
  return h(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, class: "chart", role: "img", "aria-label": "Latency over time; the table below has the figures" },
    ticks(low, most).map((value, index) => [
      h("line", { key: `grid-${index}`, x1: LEFT, x2: width, y1: y(value), y2: y(value), class: "grid" }),
      h("text", { key: `scale-${index}`, x: LEFT - 8, y: y(value) + 4, class: "scale" }, onScale(value)),
    ]),
    times(width).map((share) => h("text", { key: `time-${share}`, x: LEFT + share * (width - LEFT - 4), y: HEIGHT - 8, class: `scale ${share === 0 ? "start" : share < 1 ? "middle" : ""}` }, timeOfDay(first + share * (last - first)))),
    line("here", (part) => quantile(sorted(part.map(here).filter((value) => value !== null)), 0.95)),
    // The highest first and widest: lines that coincide are all visible.
    [...LINES].reverse().map(([name, share]) => line(name, (part) => quantile(sorted(part.map((call) => call.ms)), share))),
  );
}

function table(calls) {
  const byTool = new Map();
  for (const call of calls) {
    if (!byTool.has(call.name)) byTool.set(call.name, []);
    byTool.get(call.name).push(call);
  }
  const rows = [...byTool].sort((a, b) => b[1].length - a[1].length);
  const heads = ["Tool", "Server", "Calls", "Errors", "Repaired", ...LINES.map(([name]) => name), isGateway() ? "Server p95" : "Tool p95", isGateway() ? "Gateway p95" : "Overhead p95"];
  return [
    h(
      "table",
      { key: "tools" },
      h("thead", null, h("tr", null, heads.map((text, index) => h("th", { scope: "col", class: index > 1 ? "number" : "" }, text)))),
      h("tbody", null, rows.slice(0, LISTED).map(([name, list]) => row(name, list))),
    ),
    rows.length > LISTED && h("p", { class: "hint", key: "more" }, `${count(rows.length - LISTED)} more tools with fewer calls`),
  ];
}

function row(name, list) {
  const times = sorted(list.map((call) => call.ms));
  const measured = list.filter((call) => here(call) !== null);
  const of = (kind) => list.filter((call) => kindOf(call) === kind).length;
  return h(
    "tr",
    { key: name, class: chosen === name ? "selected" : "" },
    h("td", { class: "name" }, h("button", { class: "link", "aria-pressed": String(chosen === name), onclick: () => choose(name) }, shortName(list[0]))),
    h("td", null, list[0].lane),
    h("td", { class: "number" }, count(list.length)),
    h("td", { class: "number" }, count(of("error"))),
    h("td", { class: "number" }, count(of("repaired"))),
    LINES.map(([, share]) => h("td", { class: "number" }, milliseconds(quantile(times, share)))),
    h("td", { class: "number" }, milliseconds(quantile(sorted(measured.map((call) => call.tool_ms)), 0.95))),
    h("td", { class: "number" }, milliseconds(quantile(sorted(measured.map(here)), 0.95))),
  );
}
