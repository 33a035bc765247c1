// How long calls take: p50, p95 and p99 over time and for each tool.
import { h } from "./dom.js";
import { count, kindOf, milliseconds, quantile, shortName, state } from "./store.js";

const BUCKETS = 60;
const WIDTH = 800;
const HEIGHT = 180;
const LINES = [
  ["p50", 0.5],
  ["p95", 0.95],
  ["p99", 0.99],
];

export function latencyPage() {
  const { calls } = state;
  if (!calls.length) return h("p", { class: "empty" }, "No calls yet. ", h("a", { href: "#tools" }, "Call a tool"), " to measure it.");
  return [
    h("section", { class: "card", key: "chart" }, h("div", { class: "bar" }, h("h2", null, "Latency over time"), h("span", { class: "hint" }, `${count(calls.length)} calls since ${new Date(calls[0].at * 1000).toLocaleTimeString("en-GB")}`), legend()), chart(calls)),
    h("section", { class: "card", key: "table" }, h("h2", null, "By tool"), table(calls)),
  ];
}

function legend() {
  return h("span", { class: "legend" }, LINES.map(([name]) => h("span", null, h("i", { class: `dot ${name}` }), name)));
}

function chart(calls) {
  // Calls are in the order in which they ended.
  const starts = calls.map((call) => call.at);
  const first = Math.min(...starts);
  const span = Math.max(1, Math.max(...starts) - first);
  const buckets = Array.from({ length: BUCKETS }, () => []);
  for (const call of calls) buckets[Math.min(BUCKETS - 1, Math.floor(((call.at - first) / span) * BUCKETS))].push(call.ms);
  buckets.forEach((values) => values.sort((a, b) => a - b));
  const most = Math.max(...calls.map((call) => call.ms), 1);
  const low = Math.min(...calls.map((call) => call.ms), most);
  const scale = (value) => HEIGHT - 18 - (Math.log(value / low + 1e-9) / Math.log(most / low + 1e-9)) * (HEIGHT - 30);
  return h(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": "Latency over time; the table below has the figures" },
    [low, Math.sqrt(low * most), most].map((value, index) => [
      h("line", { key: `grid-${index}`, x1: 60, x2: WIDTH, y1: scale(value), y2: scale(value), class: "grid" }),
      h("text", { key: `scale-${index}`, x: 54, y: scale(value) + 4, class: "scale" }, milliseconds(value)),
    ]),
    LINES.map(([name, share]) =>
      h("polyline", {
        key: name,
        class: `line ${name}`,
        points: buckets
          .map((values, index) => [60 + ((index + 0.5) / BUCKETS) * (WIDTH - 60), quantile(values, share)])
          .filter(([, value]) => value !== null)
          .map(([x, value]) => `${x.toFixed(1)},${scale(value).toFixed(1)}`)
          .join(" "),
      }),
    ),
  );
}

function table(calls) {
  const byTool = new Map();
  for (const call of calls) {
    if (!byTool.has(call.name)) byTool.set(call.name, []);
    byTool.get(call.name).push(call);
  }
  const rows = [...byTool].sort((a, b) => b[1].length - a[1].length).slice(0, 200);
  return h(
    "table",
    null,
    h("thead", null, h("tr", null, ["Tool", "Server", "Calls", "Errors", "Repaired", ...LINES.map(([name]) => name)].map((text, index) => h("th", { scope: "col", class: index > 1 ? "number" : "" }, text)))),
    h(
      "tbody",
      null,
      rows.map(([name, list]) => {
        const times = list.map((call) => call.ms).sort((a, b) => a - b);
        const of = (kind) => list.filter((call) => kindOf(call) === kind).length;
        return h(
          "tr",
          { key: name },
          h("td", { class: "name" }, shortName(list[0])),
          h("td", null, list[0].lane),
          h("td", { class: "number" }, count(list.length)),
          h("td", { class: "number" }, count(of("error"))),
          h("td", { class: "number" }, count(of("repaired"))),
          LINES.map(([, share]) => h("td", { class: "number" }, milliseconds(quantile(times, share)))),
        );
      }),
    ),
  );
}
