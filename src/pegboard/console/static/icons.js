// The icons of the console, drawn as strokes on a 24-unit grid.
import { h } from "./dom.js";

const PATHS = {
  live: "M3 12h4l3-8 4 16 3-8h4",
  tools: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  content: "M6 3h9l4 4v14H6zM14 3v5h5M9 13h7M9 17h7",
  people: "M12 12a4 4 0 100-8 4 4 0 000 8zM4 21c0-4 3.6-6 8-6s8 2 8 6",
  tokens: "M4 19V9M10 19V5M16 19v-7M22 19H2",
  latency: "M3 17l5-6 4 3 4-8 5 6",
  servers: "M4 5h16v5H4zM4 14h16v5H4zM8 7.5h.01M8 16.5h.01",
  sessions: "M4 7h9M4 7l3-3M4 7l3 3M20 17h-9M20 17l-3-3M20 17l-3 3M17 7h3M4 17h3",
  connect: "M9 15l6-6M7 12l-2 2a3.5 3.5 0 005 5l2-2M12 7l2-2a3.5 3.5 0 015 5l-2 2",
  theme: "M12 3a9 9 0 000 18zM12 3a9 9 0 010 18",
  close: "M6 6l12 12M18 6L6 18",
  pause: "M8 5v14M16 5v14",
  play: "M7 4l13 8-13 8z",
  plus: "M12 5v14M5 12h14",
};

export function icon(name) {
  return h(
    "svg",
    { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" },
    h("path", { d: PATHS[name] }),
  );
}
