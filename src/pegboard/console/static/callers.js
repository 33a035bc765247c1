// Who calls: principals or clients, what they use, how often it fails.
import { h } from "./dom.js";
import { changed, count, kindOf, milliseconds, quantile, shortName, state } from "./store.js";

export function callersPage() {
  if (!state.calls.length) return h("p", { class: "empty" }, "No calls yet. ", h("a", { href: "#connect" }, "Connect an agent"), " to see who calls what.");
  const callers = new Map();
  for (const call of state.calls) {
    const name = call.principal || call.client || "(unnamed)";
    if (!callers.has(name)) callers.set(name, []);
    callers.get(name).push(call);
  }
  return h(
    "section",
    { class: "card" },
    h("div", { class: "bar" }, h("h2", null, "Callers"), h("span", { class: "hint" }, "principals where callers are authenticated, else the names that clients state")),
    h(
      "table",
      null,
      h("thead", null, h("tr", null, ["Caller", "Uses most", "Calls", "Errors", "Repaired", "p95", "Last call"].map((text, index) => h("th", { scope: "col", class: index > 1 ? "number" : "" }, text)))),
      h("tbody", null, [...callers].sort((a, b) => b[1].length - a[1].length).slice(0, 200).map(callerRow)),
    ),
  );
}

function callerRow([name, calls]) {
  const tools = new Map();
  for (const call of calls) tools.set(shortName(call), (tools.get(shortName(call)) || 0) + 1);
  const most = [...tools].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([tool, times]) => `${tool} ${times}`);
  const times = calls.map((call) => call.ms).sort((a, b) => a - b);
  const of = (kind) => calls.filter((call) => kindOf(call) === kind).length;
  const show = () => {
    state.filter = name;
    location.hash = "live";
    changed();
  };
  return h(
    "tr",
    { key: name },
    h("td", { class: "name" }, h("button", { class: "link", title: "Show the calls of this caller", onclick: show }, name)),
    h("td", { class: "hint" }, most.join(", ")),
    h("td", { class: "number" }, count(calls.length)),
    h("td", { class: "number" }, count(of("error"))),
    h("td", { class: "number" }, count(of("repaired"))),
    h("td", { class: "number" }, milliseconds(quantile(times, 0.95))),
    h("td", { class: "number" }, new Date(calls[calls.length - 1].at * 1000).toLocaleTimeString("en-GB")),
  );
}
