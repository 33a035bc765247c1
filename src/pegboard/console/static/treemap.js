// A squarified treemap: toolboxes, then their tools, each as large as its tokens.
import { h } from "./dom.js";

const HEIGHT = 260;
const HEAD = 18;

export function treemap(tools, colourOf, open, width) {
  const lanes = new Map();
  for (const tool of tools) {
    if (!lanes.has(tool.lane)) lanes.set(tool.lane, []);
    lanes.get(tool.lane).push(tool);
  }
  const groups = [...lanes].map(([name, items]) => ({ name, items, size: items.reduce((sum, tool) => sum + tool.tokens, 0) }));
  const placed = squarify(groups.sort((a, b) => b.size - a.size), 0, 0, width, HEIGHT);
  return h(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, class: "treemap", role: "img", "aria-label": "Map of the tools by tokens; the list below has the same tools" },
    placed.map(({ item, x, y, width: across, height }) => [
      h("text", { key: `label-${item.name}`, x: x + 3, y: y + 12, class: "lane" }, fitted(`${item.name} ${item.size.toLocaleString("en")}`, across)),
      squarify([...item.items].sort((a, b) => b.tokens - a.tokens).map((tool) => ({ tool, size: tool.tokens })), x, y + HEAD, across, Math.max(1, height - HEAD)).map((tile) =>
        h(
          "g",
          { key: tile.item.tool.name, class: `tile ${colourOf(tile.item.tool)}`, onclick: () => open(tile.item.tool) },
          h("title", null, `${tile.item.tool.name}: ${tile.item.size} tokens`),
          h("rect", { x: tile.x + 1, y: tile.y + 1, width: Math.max(0.5, tile.width - 2), height: Math.max(0.5, tile.height - 2), rx: 2 }),
          tile.width > 46 && tile.height > 16 && h("text", { x: tile.x + 5, y: tile.y + 14 }, fitted(tile.item.tool.tool, tile.width - 6)),
        ),
      ),
    ]),
  );
}

function fitted(text, width) {
  const most = Math.floor(width / 6.2);
  return text.length <= most ? text : most < 3 ? "" : `${text.slice(0, most - 1)}…`;
}

function squarify(items, x, y, width, height) {
  const total = items.reduce((sum, item) => sum + item.size, 0) || 1;
  const scale = (width * height) / total;
  const placed = [];
  let rest = items;
  let box = { x, y, width, height };
  while (rest.length) {
    const side = Math.min(box.width, box.height);
    let row = [rest[0]];
    while (row.length < rest.length && worst([...row, rest[row.length]], side, scale) <= worst(row, side, scale)) row = rest.slice(0, row.length + 1);
    box = place(row, box, scale, placed);
    rest = rest.slice(row.length);
  }
  return placed;
}

function worst(row, side, scale) {
  const sum = row.reduce((total, item) => total + item.size, 0) * scale;
  const sizes = row.map((item) => item.size * scale);
  return Math.max((side * side * Math.max(...sizes)) / (sum * sum), (sum * sum) / (side * side * Math.min(...sizes)));
}

function place(row, box, scale, placed) {
  const sum = row.reduce((total, item) => total + item.size, 0) * scale;
  const wide = box.width >= box.height;
  const thickness = sum / (wide ? box.height : box.width) || 0;
  let offset = 0;
  for (const item of row) {
    const length = (item.size * scale) / (thickness || 1);
    placed.push(wide ? { item, x: box.x, y: box.y + offset, width: thickness, height: length } : { item, x: box.x + offset, y: box.y, width: length, height: thickness });
    offset += length;
  }
  return wide
    ? { ...box, x: box.x + thickness, width: Math.max(0, box.width - thickness) }
    : { ...box, y: box.y + thickness, height: Math.max(0, box.height - thickness) };
}
