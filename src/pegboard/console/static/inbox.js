// What concerns the person who is signed in: approvals that wait for them, their connections, and the audit log.
import { h } from "./dom.js";
import { changed, count, get, post, state } from "./store.js";

const view = { outcome: "", approvals: null, reasons: new Map(), problem: "", records: null, audit: false };
let loadedFor = null;

/** Load the approvals when the stream says that they changed. */
async function load() {
  if (loadedFor === state.inbox) return;
  loadedFor = state.inbox;
  try {
    view.approvals = await get("approvals");
    view.problem = "";
  } catch (error) {
    view.problem = error.message;
  }
  changed();
}

export function approvals() {
  load();
  const { open = [], mine = [] } = view.approvals || {};
  return h(
    "section",
    { class: "card", key: "approvals" },
    h("div", { class: "bar" }, h("h2", null, "Approvals"), h("span", { class: "hint" }, open.length ? `${count(open.length)} wait for you` : "calls that wait for a person")),
    view.problem && h("p", { class: "warning failed", role: "alert" }, view.problem),
    open.map(requestCard),
    mine.length > 0 && h("h3", null, "Your requests"),
    mine.map((request) =>
      h("p", { key: `mine ${request.id}` }, h("span", { class: `badge ${{ approved: "ok", used: "ok", refused: "error" }[request.state] || "asked"}` }, request.state), ` ${request.place} `, h("span", { class: "hint" }, request.decided_by ? `by ${request.decided_by}` : request.wanted)),
    ),
    !open.length && !mine.length && h("p", { class: "hint" }, "Nothing waits for you. A rule with ", h("code", null, "approve"), " lets calls wait for a person."),
  );
}

function requestCard(request) {
  const decide = (approve) => async () => {
    try {
      view.approvals = await post("approval", { id: request.id, approve, reason: view.reasons.get(request.id) || "" });
      view.problem = "";
    } catch (error) {
      view.problem = error.message;
    }
    changed();
  };
  const left = Math.max(0, request.expires - Date.now() / 1000);
  return h(
    "article",
    { class: "server waiting", key: request.id },
    h("div", { class: "bar" }, h("h3", null, request.place), h("span", { class: "hint" }, `expires in ${left < 90 ? `${Math.round(left)} s` : `${Math.round(left / 60)} min`}`)),
    h("p", null, h("b", null, request.requester || "An anonymous caller"), " wants to call it", request.client ? ` with ${request.client}` : "", "; ", request.wanted, "."),
    h("pre", { class: "json" }, request.arguments),
    h("p", { class: "hint" }, request.rule),
    h("input", { placeholder: "Reason (optional)", "aria-label": `Reason for ${request.place}`, maxlength: "500", value: view.reasons.get(request.id) || "", oninput: (event) => view.reasons.set(request.id, event.target.value) }),
    h("div", { class: "buttons" }, h("button", { class: "primary", onclick: decide(true) }, "Approve"), h("button", { class: "danger", onclick: decide(false) }, "Refuse")),
  );
}

// -- the connections of the person -----------------------------------------------------------------------------------

let listed = null;
let askedAt = 0;

async function loadConnections() {
  if (Date.now() - askedAt < 5000) return;
  askedAt = Date.now();
  listed = await get("connections").catch(() => null);
  changed();
}

export function connections() {
  loadConnections();
  if (!listed) return null;
  return h(
    "section",
    { class: "card", key: "connections" },
    h("div", { class: "bar" }, h("h2", null, "Your connections"), h("span", { class: "hint" }, "servers that each person logs in to")),
    view.outcome && h("p", { class: "hint", role: "status" }, view.outcome),
    h(
      "table",
      null,
      h("thead", null, h("tr", null, ["Server", "By", "State", ""].map((text) => h("th", { scope: "col" }, text)))),
      h(
        "tbody",
        null,
        listed.map((one) =>
          h(
            "tr",
            { key: `${one.toolbox}/${one.server}` },
            h("td", { class: "name" }, `${one.toolbox}/${one.server}`),
            h("td", null, one.kind === "oauth" ? "login" : "key"),
            h("td", null, one.since === null ? h("span", { class: "badge repaired" }, "not connected") : [h("span", { class: "badge ok" }, "connected"), h("span", { class: "hint" }, ` since ${new Date(one.since * 1000).toLocaleString("en-GB")}`)]),
            h(
              "td",
              { class: "number" },
              one.since === null
                ? h("button", { class: "primary", "aria-label": `Connect ${one.server}`, onclick: () => change(one, "connect") }, "Connect")
                : h("button", { class: "danger", "aria-label": `Remove ${one.server}`, onclick: () => change(one, "remove") }, "Remove"),
            ),
          ),
        ),
      ),
    ),
  );
}

async function change({ toolbox, server }, action) {
  try {
    const answer = await post("connection", { toolbox, server, action });
    if (action === "connect") location.assign(location.pathname.replace(/\/console\/?$/, "") + answer.outcome);
    listed = answer.connections;
    view.outcome = action === "remove" ? answer.outcome : "";
  } catch (error) {
    view.problem = error.message;
  }
  changed();
}

// -- the audit log ---------------------------------------------------------------------------------------------------

async function showAudit() {
  view.audit = !view.audit;
  changed();
  if (!view.audit) return;
  try {
    view.records = await get("audit");
    view.problem = "";
  } catch (error) {
    view.problem = error.message;
  }
  changed();
}

const OUTCOMES = { ok: "ok", failed: "error", refused: "error", cancelled: "error" };

export function audit() {
  const { records } = view.records || {};
  return h(
    "section",
    { class: "card", key: "audit" },
    h("div", { class: "bar" }, h("h2", null, "Audit log"), h("span", { class: "hint" }, view.records?.path || "calls and decisions, as they were recorded"), h("button", { "aria-expanded": String(view.audit), onclick: showAudit }, view.audit ? "Hide" : "Show")),
    view.audit && view.records === null && h("p", { class: "empty" }, "There is no audit log. Add the middleware ", h("code", null, "Audit"), " to the configuration to record calls and decisions."),
    view.audit &&
      records &&
      (records.length
        ? h(
            "table",
            null,
            h("thead", null, h("tr", null, ["Time", "Action", "About", "Principal", "From", "Outcome", "Rule"].map((text) => h("th", { scope: "col" }, text)))),
            h(
              "tbody",
              null,
              records.map((record) =>
                h(
                  "tr",
                  { key: `${record.at} ${record.number} ${record.hash}` },
                  h("td", null, record.at.replace("T", " ").slice(0, 19)),
                  h("td", { class: "name" }, record.action),
                  h("td", null, [record.toolbox, record.server, record.name].filter(Boolean).join("/")),
                  h("td", null, record.principal || "anonymous"),
                  h("td", null, [record.transport, record.address].filter(Boolean).join(" ")),
                  h("td", null, h("span", { class: `badge ${OUTCOMES[record.outcome] || "asked"}` }, record.outcome)),
                  h("td", { class: "hint" }, record.rule || ""),
                ),
              ),
            ),
          )
        : h("p", { class: "empty" }, "No record yet.")),
  );
}
