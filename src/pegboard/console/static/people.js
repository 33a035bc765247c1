// People: who calls and what they use, what a principal may see and why, and the person who is signed in.
import { h, memo } from "./dom.js";
import { changed, count, get, kindOf, may, milliseconds, quantile, shortName, state, timeOfDay } from "./store.js";
import { approvals, audit, connections } from "./inbox.js";

const LISTED = 100;
const view = { form: { principal: "", scopes: "", roles: "" }, shown: null, problem: "", only: true, open: new Set(), opened: 0 };
let principals = [];
let loadedAt = 0;

/** The principals are known by their calls: load them again when there may be new ones. */
async function load() {
  if (Date.now() - loadedAt < 3000) return;
  loadedAt = Date.now();
  principals = await get("people").catch(() => principals);
  changed();
}

export function peoplePage() {
  load();
  return [me(), approvals(), connections(), callers(), viewAs(), may("administer") && audit()];
}

function me() {
  const { me: self } = state;
  const scopes = self.kind === "local" ? "started this server, so needs no scopes" : self.scopes.join(" ") || "no scopes";
  return h(
    "section",
    { class: "card", key: "me" },
    h(
      "div",
      { class: "bar" },
      h("h2", null, "You"),
      h("b", null, self.principal || "anonymous"),
      self.rights.map((right) => h("span", { class: "badge ok", key: right }, right)),
      h("span", { class: "hint" }, [scopes, self.roles.length && `roles: ${self.roles.join(" ")}`].filter(Boolean).join("; ")),
      self.signed_in && h("button", { onclick: signOut }, "Sign out"),
    ),
  );
}

async function signOut() {
  const path = location.pathname.replace(/console\/?$/, "sign-in/out");
  await fetch(path, { method: "POST", headers: { "x-pegboard-csrf": state.me.csrf } });
  location.reload();
}

const drawn = {};

function callers() {
  return memo(drawn, [state.tick, view.opened, state.calls.length > 0, state.tools], describeCallers);
}

function describeCallers() {
  const byCaller = new Map();
  for (const call of state.calls) {
    const name = call.principal || call.client || "(unnamed)";
    if (!byCaller.has(name)) byCaller.set(name, []);
    byCaller.get(name).push(call);
  }
  const heads = ["Caller", "Uses most", "Calls", "Errors", "Repaired", "p95", "Last call"];
  return h(
    "section",
    { class: "card", key: "callers" },
    h("div", { class: "bar" }, h("h2", null, "Callers"), h("span", { class: "hint" }, "principals where callers are authenticated, else the names that clients state")),
    byCaller.size
      ? h(
          "table",
          null,
          h("thead", null, h("tr", null, heads.map((text, index) => h("th", { scope: "col", class: index > 1 ? "number" : "" }, text)))),
          h("tbody", null, [...byCaller].sort((a, b) => b[1].length - a[1].length).slice(0, LISTED).map(callerRows)),
        )
      : h("p", { class: "empty" }, "No calls yet. ", h("a", { href: "#connect" }, "Connect an agent"), " to see who calls what."),
  );
}

function callerRows([name, calls]) {
  const tools = Map.groupBy ? Map.groupBy(calls, (call) => call.name) : groupBy(calls);
  const most = [...tools].sort((a, b) => b[1].length - a[1].length);
  const open = view.open.has(name);
  const toggle = () => {
    open ? view.open.delete(name) : view.open.add(name);
    view.opened += 1;
    changed();
  };
  const show = () => {
    state.filter = name;
    location.hash = "live";
    changed();
  };
  return [
    h(
      "tr",
      { key: name },
      h("td", { class: "name" }, h("button", { class: "link", title: "Show the calls of this caller", onclick: show }, name)),
      h(
        "td",
        { class: "hint" },
        h("button", { class: "link plain", "aria-expanded": String(open), title: "Usage of each tool", onclick: toggle }, open ? "▾ " : "▸ ", most.slice(0, 3).map(([, list]) => `${shortName(list[0])} ${list.length}`).join(", ")),
      ),
      figures(calls),
    ),
    open && most.slice(0, 50).map(([tool, list]) => h("tr", { key: `${name} ${tool}`, class: "inner" }, h("td", null), h("td", null, shortName(list[0])), figures(list))),
  ];
}

function figures(calls) {
  const times = calls.map((call) => call.ms).sort((a, b) => a - b);
  const kinds = new Map();
  for (const call of calls) kinds.set(kindOf(call), (kinds.get(kindOf(call)) || 0) + 1);
  const of = (kind) => kinds.get(kind) || 0;
  return [
    h("td", { class: "number" }, count(calls.length)),
    h("td", { class: "number" }, count(of("error"))),
    h("td", { class: "number" }, count(of("repaired"))),
    h("td", { class: "number" }, milliseconds(quantile(times, 0.95))),
    h("td", { class: "number" }, timeOfDay(calls[calls.length - 1].at)),
  ];
}

function groupBy(calls) {
  const groups = new Map();
  for (const call of calls) groups.set(call.name, [...(groups.get(call.name) || []), call]);
  return groups;
}

// -- view as ---------------------------------------------------------------------------------------------------------

async function look(event) {
  event?.preventDefault();
  try {
    view.shown = await get(`view?${new URLSearchParams(view.form)}`);
    view.problem = "";
  } catch (error) {
    view.problem = error.message;
  }
  changed();
}

function viewAs() {
  const field = (name, label, hint) =>
    h(
      "label",
      { class: "inline" },
      label,
      h("input", { value: view.form[name], placeholder: hint, autocomplete: "off", list: name === "principal" ? "principals" : null, oninput: (event) => choose(name, event.target.value) }),
    );
  return h(
    "section",
    { class: "card", key: "view" },
    h("div", { class: "bar" }, h("h2", null, "View as"), h("span", { class: "hint" }, "what a principal may see and use, and the rule that decides")),
    h("form", { class: "row", onsubmit: look }, field("principal", "Principal", "ann"), field("scopes", "Scopes", "notes.read notes.write"), field("roles", "Roles", "nurse"), h("button", { class: "primary" }, "Look")),
    h("datalist", { id: "principals" }, principals.map((known) => h("option", { key: known.id, value: known.id }))),
    view.problem && h("p", { class: "warning failed" }, view.problem),
    view.shown && verdicts(),
  );
}

/** A known principal brings its scopes and roles along. */
function choose(name, value) {
  view.form[name] = value;
  const known = name === "principal" && principals.find((one) => one.id === value);
  if (known) view.form = { principal: known.id, scopes: known.scopes.join(" "), roles: known.roles.join(" "), kind: known.kind };
  changed();
}

const TONES = { allow: "ok", deny: "repaired", hide: "error" };

function verdicts() {
  const { items, rights } = view.shown;
  const hidden = items.filter((item) => item.effect !== "allow");
  const shown = (view.only && hidden.length ? hidden : items).slice(0, LISTED);
  return [
    h(
      "div",
      { class: "bar", key: "summary" },
      h("b", null, `${count(items.length - hidden.length)} of ${count(items.length)} allowed`),
      h("span", { class: "hint" }, rights.length ? `console: ${rights.join(", ")}` : "no access to the console"),
      hidden.length > 0 &&
        h("label", { class: "check" }, h("input", { type: "checkbox", checked: view.only, onchange: (event) => ((view.only = event.target.checked), changed()) }), "only what is denied or hidden"),
    ),
    items.length
      ? h(
          "table",
          { key: "verdicts" },
          h("thead", null, h("tr", null, ["Item", "Kind", "Verdict", "Rule"].map((text) => h("th", { scope: "col" }, text)))),
          h(
            "tbody",
            null,
            shown.map((item) =>
              h(
                "tr",
                { key: `${item.kind} ${item.name}` },
                h("td", { class: "name" }, item.name),
                h("td", null, item.kind),
                h("td", null, h("span", { class: `badge ${TONES[item.effect]}` }, item.effect === "deny" && item.scopes.length ? `needs ${item.scopes.join(" ")}` : item.effect)),
                h("td", { class: "hint rule" }, item.rule),
              ),
            ),
          ),
        )
      : h("p", { class: "empty" }, "There are no tools, prompts and resources yet."),
  ];
}
