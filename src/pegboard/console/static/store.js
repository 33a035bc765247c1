// The state of the page, the requests that change it, and the stream of events that keeps it current.

const KEPT_CALLS = 5000;

export const state = {
  me: { principal: "", rights: [], csrf: "" },
  connected: false,
  overview: null,
  tools: [],
  offers: { resources: [], templates: [], prompts: [] },
  calls: [],
  byNumber: new Map(),
  selected: null,
  details: null,
  page: "live",
  argument: "",
  filter: "",
  paused: null,
  // Counts seconds: what is costly to describe is described again once a second.
  tick: 0,
  toolByName: new Map(),
  inbox: { number: 0, open: 0 },
};

let draw = () => {};
let scheduled = false;

/** Redraw the page soon, once for many changes. */
export function changed() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    draw();
  });
}

export function onChange(callback) {
  draw = callback;
}

/** Whether the person who is signed in has a right in the console. */
export const may = (right) => state.me.rights.includes(right);

export async function get(path) {
  const response = await fetch(`api/${path}`);
  // The person has signed out, or the sign-in has expired.
  if (response.status === 401) location.reload();
  const body = await response.json();
  if (!response.ok) throw new Error(body.error || `The server answered ${response.status}`);
  return body;
}

export async function post(path, body) {
  const response = await fetch(`api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-pegboard-csrf": state.me.csrf },
    body: JSON.stringify(body),
  });
  if (response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || `The server answered ${response.status}`);
  return answer;
}

/** Load what is offered, again after each change. */
export async function loadOffers() {
  state.tools = await get("tools");
  state.toolByName = new Map(state.tools.map((tool) => [tool.name, tool]));
  changed();
  state.offers = {
    resources: (await ask("resources/list")).resources,
    templates: (await ask("resources/templates/list")).resourceTemplates,
    prompts: (await ask("prompts/list")).prompts,
  };
  changed();
}

/** The result of a request that has neither progress nor questions. */
export async function ask(method, params = {}) {
  for await (const [kind, value] of events(await post("call", { method, ...params }))) {
    if (kind === "result") return value;
    if (kind === "error") throw new Error(value.message);
  }
  throw new Error("The server ended the stream");
}

/** The events of a response, as they arrive. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      const kind = lines.find((line) => line.startsWith("event: "));
      if (kind && data.length) yield [kind.slice(7), JSON.parse(data.join("\n"))];
    }
  }
}

/** Show the details of a call, or close them. */
export async function select(number) {
  state.selected = number;
  state.details = null;
  changed();
  if (number === null) return;
  try {
    const details = await get(`calls/${number}`);
    if (state.selected === number) state.details = details;
  } catch (error) {
    if (state.selected === number) state.details = { error: error.message };
  }
  changed();
}

export function follow() {
  const last = state.calls.length ? state.calls[state.calls.length - 1].number : 0;
  const source = new EventSource(`events?after=${last}`);
  source.addEventListener("open", () => {
    state.connected = true;
    changed();
  });
  source.addEventListener("error", () => {
    state.connected = false;
    changed();
    // A restarted server counts its calls from the beginning again.
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, 2000);
  });
  source.addEventListener("calls", (event) => {
    add(JSON.parse(event.data));
    changed();
  });
  source.addEventListener("inbox", (event) => {
    state.inbox = JSON.parse(event.data);
    changed();
  });
  source.addEventListener("state", (event) => {
    const overview = JSON.parse(event.data);
    const before = state.overview;
    if (before && before.since !== overview.since) location.reload();
    state.overview = overview;
    for (const call of state.calls) call.lane ||= overview.name;
    if (!before || before.costs.all !== overview.costs.all || before.costs.tools !== overview.costs.tools) {
      loadOffers().catch(() => {});
    }
    changed();
  });
}

function add(rows) {
  for (const row of rows) {
    if (state.byNumber.has(row.number)) continue;
    // A board is one lane; so are calls of unknown tools.
    row.lane ||= state.overview ? state.overview.name : "";
    state.byNumber.set(row.number, row);
    state.calls.push(row);
  }
  while (state.calls.length > KEPT_CALLS) state.byNumber.delete(state.calls.shift().number);
}

/** The calls that ended in the last seconds; they are kept in that order. */
export function recent(seconds, now = Date.now() / 1000) {
  const { calls } = state;
  let start = calls.length;
  while (start > 0 && endOf(calls[start - 1]) > now - seconds) start -= 1;
  return calls.slice(start);
}

export function endOf(call) {
  return call.at + call.ms / 1000;
}

/** The calls that match the filter: words in the tool, the client or the outcome. */
export function matching(calls) {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return calls;
  return calls.filter((call) => {
    const text = `${call.lane} ${call.name} ${call.client} ${call.principal} ${kindOf(call)}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/** What a call counts as: error, asked, repaired or ok. */
export function kindOf(call) {
  if (["failed", "refused", "cancelled"].includes(call.outcome)) return "error";
  if (call.outcome === "asked" || call.outcome === "task") return "asked";
  return call.repairs ? "repaired" : "ok";
}

/** The width of a chart in pixels, so that its text has the size of other text; `columns` stand side by side on wide screens. */
export function pageWidth(columns = 1) {
  const page = document.querySelector("main")?.clientWidth || 800;
  const column = columns > 1 && innerWidth > 1100 ? (page - 48) / columns : page - 32;
  return Math.max(260, Math.round(column - 30));
}

export function quantile(sorted, share) {
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] : null;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10000 ? 1 : 2)} s`;
  if (value >= 100) return `${Math.round(value)} ms`;
  if (value < 0.1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} µs`;
  return `${value.toFixed(value >= 10 ? 1 : 2)} ms`;
}

// One formatter for all values: `toLocaleString` makes one each time.
const numbers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const times = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

export function count(value) {
  return numbers.format(value);
}

/** The time of day of a moment, given in seconds since 1970. */
export function timeOfDay(at) {
  return times.format(at * 1000);
}

/** The last part of a tool's name, without toolbox and server. */
export function shortName(call) {
  const tool = state.toolByName.get(call.name);
  return tool ? tool.tool : call.name;
}
