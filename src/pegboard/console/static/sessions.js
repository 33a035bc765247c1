// Sessions and streams: legacy sessions with their streams and event ids, subscriptions, and what was lost or resumed.
import { h, memo } from "./dom.js";
import { changed, count, get, state, timeOfDay } from "./store.js";

const REFRESH = 2000;
let document_ = null;
let asked = 0;
let problem = "";

async function load() {
  if (Date.now() - asked < REFRESH) return;
  asked = Date.now();
  try {
    document_ = await get("sessions");
    problem = "";
  } catch (error) {
    problem = error.message;
  }
  changed();
}

export function sessionsPage() {
  load();
  if (!document_) return h("p", { class: "empty" }, problem || "Loading…");
  return [clients(), sessions(), subscriptions()];
}

const seconds = (value) => (value < 90 ? `${Math.round(value)} s` : value < 5400 ? `${Math.round(value / 60)} min` : `${(value / 3600).toFixed(1)} h`);

function table(heads, rows) {
  return h(
    "table",
    null,
    h("thead", null, h("tr", null, heads.map(([text, number]) => h("th", { scope: "col", class: number ? "number" : "" }, text)))),
    h("tbody", null, rows),
  );
}

/** The clients of the kept calls: modern ones have no session. */
const counted = {};

function countClients() {
  const found = new Map();
  for (const call of state.calls) {
    const key = `${call.client}\n${call.version || ""}\n${call.transport || ""}\n${call.principal}`;
    if (!found.has(key)) found.set(key, { ...call, calls: 0 });
    const known = found.get(key);
    known.calls += 1;
    known.at = call.at;
  }
  return [...found].sort((a, b) => b[1].at - a[1].at).slice(0, 100);
}

function clients() {
  const rows = memo(counted, [state.tick], countClients);
  return h(
    "section",
    { class: "card", key: "clients" },
    h("div", { class: "bar" }, h("h2", null, "Clients"), h("span", { class: "hint" }, "of the latest calls"), h("span", { class: "hint" }, `${count(document_.running)} calls run now, ${count(document_.streaming)} of them stream`)),
    rows.length
      ? table(
          [["Client"], ["Era"], ["Revision"], ["Transport"], ["Principal"], ["Calls", true], ["Last call", true]],
          rows.map(([key, client]) =>
            h(
              "tr",
              { key },
              h("td", { class: "name" }, client.client || "(unnamed)"),
              h("td", null, era(client.version)),
              h("td", null, client.version || "–"),
              h("td", null, client.transport || "–"),
              h("td", null, client.principal || "anonymous"),
              h("td", { class: "number" }, count(client.calls)),
              h("td", { class: "number" }, timeOfDay(client.at)),
            ),
          ),
        )
      : h("p", { class: "empty" }, "No client has called yet. ", h("a", { href: "#connect" }, "Connect one"), "."),
  );
}

function era(version) {
  if (!version) return "–";
  return h("span", { class: `badge ${version >= "2026" ? "ok" : "asked"}` }, version >= "2026" ? "modern" : "legacy");
}

function sessions() {
  const { sessions: open, more_sessions: more } = document_;
  return h(
    "section",
    { class: "card", key: "sessions" },
    h("div", { class: "bar" }, h("h2", null, "Sessions"), h("span", { class: "hint" }, "of legacy clients, in this process; ids are shown as digests")),
    open.length
      ? table(
          [["Session"], ["Client"], ["Revision"], ["Principal"], ["State"], ["Streams: last event"], ["Resumed", true], ["Gaps", true], ["Idle", true]],
          open.map(sessionRow),
        )
      : h("p", { class: "hint" }, "No legacy client is connected. Clients of 2026-07-28 need no session: their calls are on the page ", h("a", { href: "#live" }, "Live"), "."),
    more > 0 && h("p", { class: "hint" }, `${count(more)} more`),
  );
}

function sessionRow(session) {
  const { tally } = session;
  const state_ = [
    session.running && `${session.running} running`,
    session.asking && `${session.asking} asking`,
    session.listening && "listening",
    session.subscribed && `${session.subscribed} resources`,
  ].filter(Boolean);
  const gaps = [tally.lost && `${count(tally.lost)} lost`, tally.refused && `${count(tally.refused)} refused`].filter(Boolean);
  return h(
    "tr",
    { key: session.id },
    h("td", null, h("code", null, session.id)),
    h("td", { class: "name" }, session.client || "(unnamed)"),
    h("td", null, session.version),
    h("td", null, session.principal || "anonymous"),
    h("td", null, state_.join(", ") || "idle"),
    h("td", null, session.streams.length ? session.streams.slice(0, 4).map((stream) => h("code", { class: stream.connected ? "live" : "", title: stream.connected ? "connected" : "ended, or waiting for its client" }, stream.last || "no event", " ")) : "–"),
    h("td", { class: "number" }, tally.opened ? `${count(tally.resumed)} of ${count(tally.opened)}` : "–"),
    h("td", { class: `number ${gaps.length ? "bad" : ""}` }, gaps.join(", ") || "none"),
    h("td", { class: "number" }, seconds(session.idle)),
  );
}

function subscriptions() {
  const { subscriptions: open } = document_;
  return h(
    "section",
    { class: "card", key: "subscriptions" },
    h("div", { class: "bar" }, h("h2", null, "Subscriptions"), h("span", { class: "hint" }, "subscriptions/listen of modern clients")),
    open.length
      ? table(
          [["Principal"], ["Receives"], ["Position", true], ["Behind", true]],
          open.map((one, index) =>
            h(
              "tr",
              { key: String(index) },
              h("td", null, one.principal || "anonymous"),
              h("td", null, Object.entries(one.receives).map(([name, value]) => (Array.isArray(value) ? `${value.length} resources` : name)).join(", ") || "nothing"),
              h("td", { class: "number" }, count(one.position)),
              h("td", { class: `number ${one.behind ? "bad" : ""}` }, count(one.behind)),
            ),
          ),
        )
      : h("p", { class: "hint" }, "No client listens to changes."),
  );
}
