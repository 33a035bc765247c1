// The frame of the console: header, navigation, pages, details, keyboard.
import { h, memo, render } from "./dom.js";
import { icon } from "./icons.js";
import { callPanel } from "./call.js";
import { connectPage } from "./connect.js";
import { contentPage } from "./content.js";
import { latencyPage } from "./latency.js";
import { livePage } from "./live.js";
import { peoplePage } from "./people.js";
import { serversPage } from "./servers.js";
import { sessionsPage } from "./sessions.js";
import { changed, count, follow, get, kindOf, matching, milliseconds, onChange, pageWidth, quantile, recent, select, state } from "./store.js";
import { tokensPage } from "./tokens.js";
import { toolsPage } from "./tools.js";

const PAGES = [
  ["live", "Live", livePage],
  ["tools", "Tools", toolsPage],
  ["content", "Content", contentPage],
  ["tokens", "Tokens", tokensPage],
  ["latency", "Latency", latencyPage],
  ["servers", "Servers", serversPage],
  ["people", "People", peoplePage],
  ["sessions", "Sessions", sessionsPage],
  ["connect", "Connect", connectPage],
];

function readLocation() {
  const [page, ...rest] = location.hash.slice(1).split("/");
  state.page = PAGES.some(([name]) => name === page) ? page : "live";
  state.argument = decodeURIComponent(rest.join("/"));
  changed();
}

const head = {};

function header() {
  // The figures of many calls are counted once a second.
  const calls = state.calls.length < 100 ? state.calls.length : 100;
  return memo(head, [state.tick, state.overview, state.inbox, state.connected, calls], describeHeader);
}

function describeHeader() {
  const { overview } = state;
  const last = recent(60);
  const finished = last.map((call) => call.ms).sort((a, b) => a - b);
  const share = (kind) => (last.length ? `${((100 * last.filter((call) => kindOf(call) === kind).length) / last.length).toFixed(1)}%` : "–");
  const servers = overview ? overview.toolboxes.flatMap((toolbox) => toolbox.servers) : [];
  const ready = servers.filter((server) => server.state === "ready").length;
  const figure = (value, label) => h("span", { class: "figure" }, h("b", null, value), " ", label);
  return h(
    "header",
    { key: "header" },
    h("h1", null, overview ? overview.name : "Pegboard"),
    servers.length > 0 &&
      h("a", { class: `badge ${ready === servers.length ? "ok" : "repaired"}`, href: "#servers" }, `${ready} of ${servers.length} servers up`),
    state.inbox.open > 0 && h("a", { class: "badge asked", href: "#people" }, state.inbox.open === 1 ? "1 call waits for you" : `${state.inbox.open} calls wait for you`),
    !state.connected && h("span", { class: "badge error", role: "status" }, "disconnected"),
    figure(count(last.length), "calls/min"),
    figure(milliseconds(quantile(finished, 0.5)), "p50"),
    figure(share("error"), "errors"),
    figure(share("repaired"), "repaired"),
    overview &&
      figure(
        overview.costs.proxy === undefined ? count(overview.costs.all) : `${count(overview.costs.proxy)} / ${count(overview.costs.all)}`,
        overview.costs.proxy === undefined ? "tokens for all tools" : "tokens: proxy mode / all tools",
      ),
    h("button", { class: "quiet theme", title: "Switch between light and dark", "aria-label": "Switch between light and dark", onclick: switchTheme }, icon("theme")),
  );
}

function navigation() {
  return h(
    "nav",
    { key: "nav", "aria-label": "Pages" },
    PAGES.map(([name, label]) =>
      h("a", { href: `#${name}`, class: state.page === name ? "current" : "", "aria-current": state.page === name ? "page" : null }, icon(name), h("span", null, label)),
    ),
  );
}

function page() {
  const [name, label, view] = PAGES.find(([known]) => known === state.page);
  return h("main", { key: `page-${name}`, "aria-label": label, tabindex: "-1" }, state.overview ? view() : h("p", { class: "empty" }, "Connecting…"));
}

let drawnWidth = 0;

function drawPage() {
  render(document.getElementById("app"), [header(), navigation(), page(), state.selected !== null && callPanel()]);
  document.getElementById("app").classList.toggle("with-panel", state.selected !== null);
  // Charts are drawn for the width of the page, which the panel and the window change.
  if (pageWidth() !== drawnWidth) {
    drawnWidth = pageWidth();
    changed();
  }
}

function switchTheme() {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  sessionStorage.setItem("theme", document.documentElement.dataset.theme);
  changed();
}

function onKey(event) {
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "Escape") {
    if (typing) typing.blur();
    else if (state.selected !== null) select(null);
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const number = Number(event.key);
  if (number >= 1 && number <= PAGES.length) location.hash = PAGES[number - 1][0];
  else if (event.key === "/") {
    const field = document.querySelector("input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (event.key === "j" || event.key === "k") step(event.key === "j" ? -1 : 1);
  else if (event.key === " " && state.page === "live" && event.target === document.body) {
    event.preventDefault();
    document.querySelector("button.pause")?.click();
  } else if (event.key === "r" && state.selected !== null) document.querySelector("button.replay")?.click();
}

/** Select the next older or newer call. */
function step(direction) {
  const calls = matching(state.calls);
  if (!calls.length) return;
  const at = calls.findIndex((call) => call.number === state.selected);
  const next = at < 0 ? calls.length - 1 : Math.min(calls.length - 1, Math.max(0, at + direction));
  select(calls[next].number);
}

const theme = sessionStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
onChange(drawPage);
addEventListener("hashchange", readLocation);
addEventListener("resize", changed);
addEventListener("keydown", onKey);
state.me = await get("me");
readLocation();
follow();
setInterval(() => {
  state.tick += 1;
  changed();
}, 1000);
