// The servers of a gateway: their state, their last output, and how to start, stop and restart them.
import { h, memo } from "./dom.js";
import { changed, count, get, may, milliseconds, post, quantile, recent, state } from "./store.js";

let problem = "";
let busy = "";
let lock = null;
let loadedFor = null;

/** Load the differences from the lock file when the page opens, and after each change of the servers. */
async function loadLock() {
  const key = JSON.stringify(state.overview.toolboxes.map((toolbox) => toolbox.servers.map((server) => [server.state, server.tools])));
  if (key === loadedFor) return;
  loadedFor = key;
  lock = await get("lock").catch(() => null);
  changed();
}

// -- the switches of single tools ------------------------------------------------------------------------------------

const tools = new Map();

async function loadTools(toolbox, server) {
  const name = `${toolbox}/${server.name}`;
  const known = tools.get(name);
  if (known?.count === server.tools) return;
  tools.set(name, { count: server.tools, list: known?.list || [] });
  tools.set(name, { count: server.tools, list: await get(`server?${new URLSearchParams({ toolbox, server: server.name })}`).catch(() => []) });
  changed();
}

function switches(toolbox, server) {
  const name = `${toolbox}/${server.name}`;
  const list = tools.get(name)?.list || [];
  const turn = (tool, on) => async () => {
    try {
      tools.set(name, { count: server.tools, list: await post("tool", { toolbox, server: server.name, tool, on }) });
      problem = "";
    } catch (error) {
      problem = error.message;
    }
    changed();
  };
  return h(
    "details",
    { ontoggle: (event) => event.target.open && loadTools(toolbox, server) },
    h("summary", null, `Tools: ${count(server.tools - server.off)} of ${count(server.tools)} on`),
    h(
      "div",
      { class: "switches" },
      list.slice(0, 300).map((tool) =>
        h("label", { class: "check", key: tool.name }, h("input", { type: "checkbox", class: "switch", checked: tool.on, disabled: !may("operate"), onchange: turn(tool.name, !tool.on) }), h("span", null, tool.name)),
      ),
    ),
    list.length > 300 && h("p", { class: "hint" }, `${count(list.length - 300)} more; switch them in the configuration file.`),
  );
}

export function serversPage() {
  const { toolboxes, kind } = state.overview;
  if (kind === "board") return h("p", { class: "empty" }, "This is a board: its tools run in this process. Use ", h("code", null, "pegboard up CONFIG"), " to put other servers behind one endpoint.");
  loadLock();
  return [problem && h("p", { class: "warning failed", role: "alert", key: "problem" }, problem), lockCard(), toolboxes.map(toolboxCard)];
}

function lockCard() {
  if (!lock) return null;
  const rows = [
    ...lock.changed.map((item) => ["changed", item, item.words]),
    ...lock.renamed.map((item) => ["renamed", item, [`was ${item.before}`]]),
    ...lock.added.map((item) => ["new", item, []]),
    ...lock.vanished.map((item) => ["removed", item, []]),
  ];
  const flags = new Map();
  for (const flag of lock.flagged) flags.set(flag.name, [...(flags.get(flag.name) || []), `${flag.reason}: ${flag.shown}`]);
  return h(
    "section",
    { class: "card lock", key: "lock" },
    h(
      "div",
      { class: "bar" },
      h("h2", null, "Lock file"),
      h("span", { class: "hint" }, rows.length ? "definitions differ from the accepted ones" : "all definitions are accepted"),
      rows.length > 0 && h("button", { disabled: !may("administer"), onclick: () => accept(rows.map(([, item]) => item.name)) }, "Accept all"),
    ),
    rows.map(([what, item, words]) =>
      h(
        "article",
        { class: "server", key: `${what} ${item.kind} ${item.name}` },
        h("div", { class: "bar" }, h("span", { class: "badge repaired" }, what), h("h3", null, item.name), h("button", { "aria-label": `Accept ${item.name}`, disabled: !may("administer"), onclick: () => accept([item.name]) }, "Accept"), item.kind === "tools" && what !== "removed" && h("button", { class: "danger", "aria-label": `Refuse ${item.name}`, title: "Switch the tool off", disabled: !may("operate"), onclick: () => refuse(item.name) }, "Refuse")),
        words.map((line) => h("p", null, line)),
        (flags.get(item.name) || []).map((line) => h("p", { class: "warning failed" }, line)),
      ),
    ),
  );
}

async function accept(names) {
  try {
    lock = await post("accept", { names });
    problem = "";
  } catch (error) {
    problem = error.message;
  }
  changed();
}

/** A definition that is not wanted: its tool is switched off, until a person switches it on again. */
async function refuse(name) {
  const [toolbox, server, ...tool] = name.split("/");
  try {
    tools.set(`${toolbox}/${server}`, { count: -1, list: await post("tool", { toolbox, server, tool: tool.join("/"), on: false }) });
    problem = "";
    loadedFor = null;
  } catch (error) {
    problem = error.message;
  }
  changed();
}

function toolboxCard(toolbox) {
  return h(
    "section",
    { class: "card", key: toolbox.name },
    h("div", { class: "bar" }, h("h2", null, toolbox.name), h("span", { class: "hint" }, toolbox.description)),
    h("div", { class: "servers" }, toolbox.servers.map((server) => serverCard(toolbox.name, server))),
  );
}

/** A command without the folders of its files; the title has them. */
function shortened(command) {
  return command.split(" ").map((word) => (/^(?:\/|[A-Za-z]:\\)/.test(word) ? word.split(/[\\/]/).pop() : word)).join(" ");
}

const counted = {};

/** The calls of each server in the last minute, counted once a second. */
function lastMinute() {
  return memo(counted, [state.tick], () => {
    const times = new Map();
    for (const call of recent(60)) {
      if (!times.has(call.lane)) times.set(call.lane, []);
      times.get(call.lane).push(call.ms);
    }
    return times;
  });
}

function describeCalls(lane) {
  const times = (lastMinute().get(lane) || []).sort((a, b) => a - b);
  return times.length ? `${count(times.length)} in the last minute, p95 ${milliseconds(quantile(times, 0.95))}` : "none in the last minute";
}

const TONES = { ready: "ok", connecting: "repaired", idle: "repaired", stopped: "quiet", failed: "error", needs_login: "repaired" };

function serverCard(toolbox, server) {
  const name = `${toolbox}/${server.name}`;
  const act = (action) => async () => {
    problem = "";
    busy = name;
    changed();
    try {
      state.overview = await post("server", { toolbox, server: server.name, action });
    } catch (error) {
      problem = error.message;
    }
    busy = "";
    changed();
  };
  const stopped = server.state === "stopped";
  return h(
    "article",
    { class: "server", key: name },
    h("div", { class: "bar" }, h("h3", null, server.name), h("span", { class: `badge ${TONES[server.state] || "quiet"}` }, server.state.replace("_", " "))),
    server.problem && h("p", { class: "warning failed" }, server.problem),
    !stopped &&
      h(
        "dl",
        null,
        [
          ["kind", server.kind],
          ["target", server.kind === "stdio" ? h("span", { title: server.target }, shortened(server.target)) : server.target],
          ["protocol", server.version],
          ["calls", describeCalls(name)],
          ["starts", server.kind === "stdio" ? count(server.spawns) : ""],
          ["in flight", server.in_flight ? count(server.in_flight) : ""],
          ["login", server.login ? `${server.login.replace("_", " ")}${server.state === "needs_login" ? ": needed" : ""}` : ""],
          ["breaker", server.retry ? `open after ${server.failures} failures; next try in ${server.retry} s` : server.failures ? `closed, ${server.failures} failures in a row` : "closed"],
        ]
          .filter(([, value]) => value)
          .map(([label, value]) => [h("dt", null, label), h("dd", null, value)]),
      ),
    !stopped && server.tools > 0 && switches(toolbox, server),
    server.output && h("details", null, h("summary", null, "Output (stderr)"), h("pre", { class: "json" }, server.output)),
    h(
      "div",
      { class: "buttons" },
      stopped
        ? h("button", { onclick: act("start"), disabled: busy === name || !may("operate") }, "Start")
        : [["restart", "Restart"], ["stop", "Stop"]].map(([action, label]) => h("button", { onclick: act(action), disabled: busy === name || !may("operate"), title: may("operate") ? null : "needs the scope console.operate" }, label)),
    ),
  );
}
