// The servers of a gateway: their state, their last output, and how to start, stop and restart them.
import { h } from "./dom.js";
import { changed, count, post, state } from "./store.js";

let problem = "";
let busy = "";

export function serversPage() {
  const { toolboxes, kind } = state.overview;
  if (kind === "board") return h("p", { class: "empty" }, "This is a board: its tools run in this process. Use ", h("code", null, "pegboard up CONFIG"), " to put other servers behind one endpoint.");
  return [problem && h("p", { class: "warning failed", role: "alert" }, problem), toolboxes.map(toolboxCard)];
}

function toolboxCard(toolbox) {
  return h(
    "section",
    { class: "card", key: toolbox.name },
    h("div", { class: "bar" }, h("h2", null, toolbox.name), h("span", { class: "hint" }, toolbox.description)),
    h("div", { class: "servers" }, toolbox.servers.map((server) => serverCard(toolbox.name, server))),
  );
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
          ["target", server.target],
          ["protocol", server.version],
          ["tools", count(server.tools)],
          ["starts", server.kind === "stdio" ? count(server.spawns) : ""],
          ["in flight", server.in_flight ? count(server.in_flight) : ""],
        ]
          .filter(([, value]) => value)
          .map(([label, value]) => [h("dt", null, label), h("dd", null, value)]),
      ),
    server.output && h("details", null, h("summary", null, "Last output"), h("pre", { class: "json" }, server.output)),
    h(
      "div",
      { class: "buttons" },
      stopped
        ? h("button", { onclick: act("start"), disabled: busy === name }, "Start")
        : [h("button", { onclick: act("restart"), disabled: busy === name }, "Restart"), h("button", { onclick: act("stop"), disabled: busy === name }, "Stop")],
    ),
  );
}
