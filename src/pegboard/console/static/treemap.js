// A squarified treemap: toolboxes, then their tools, each as large as its tokens.
import { h, memo } from "./dom.js";
import { count } from "./store.js";

const HEIGHT = 260;
const HEAD = 18;

/** Where the toolboxes and their tools are: a list of labels and tiles. */
export function layOut(tools, width) {
  const lanes = new Map();
  for (const tool of tools) {
    if (!lanes.has(tool.lane)) lanes.set(tool.lane, []);
    lanes.get(tool.lane).push(tool);
  }
  const groups = [...lanes].map(([name, items]) => ({ name, items, size: items.reduce((sum, tool) => sum + tool.tokens, 0) }));
  return squarify(groups.sort((a, b) => b.size - a.size), 0, 0, width, HEIGHT).flatMap(({ item, x, y, width: across, height }) => [
    { label: item.name, text: fitted(`${item.name} ${count(item.size)}`, across), x, y },
    ...squarify([...item.items].sort((a, b) => b.tokens - a.tokens).map((tool) => ({ tool, size: tool.tokens })), x, y + HEAD, across, Math.max(1, height - HEAD)),
  ]);
}

/** The map. A tile is described again when its colour changes. */
export function treemap(placed, colourOf, open, width) {
  return h(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, class: "treemap", role: "img", "aria-label": "Map of the tools by tokens; the list below has the same tools" },
    placed.map((tile) => {
      if (tile.label !== undefined) return memo(tile, [], () => h("text", { key: `label-${tile.label}`, x: tile.x + 3, y: tile.y + 12, class: "lane" }, tile.text));
      const { tool, size } = tile.item;
      return memo(tile, [colourOf(tool)], () =>
        h(
          "g",
          { key: tool.name, class: `tile ${colourOf(tool)}`, onclick: () => open(tool) },
          h("title", null, `${tool.name}: ${count(size)} tokens`),
          h("rect", { x: tile.x + 1, y: tile.y + 1, width: Math.max(0.5, tile.width - 2), height: Math.max(0.5, tile.height - 2), rx: 2 }),
          tile.width > 46 && tile.height > 16 && h("text", { x: tile.x + 5, y: tile.y + 14 }, fitted(tool.tool, tile.width - 6)),
        ),
      );
    }),
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
    let length = 1;
    // The sizes descend: the first is the largest of a row, and the last the smallest.
    let sum = rest[0].size;
    while (length < rest.length && worst(rest[0].size, rest[length].size, sum + rest[length].size, side, scale) <= worst(rest[0].size, rest[length - 1].size, sum, side, scale)) {
      sum += rest[length].size;
      length += 1;
    }
    const row = rest.slice(0, length);
    box = place(row, box, scale, placed);
    rest = rest.slice(row.length);
  }
  return placed;
}

function worst(largest, smallest, total, side, scale) {
  const sum = total * scale;
  return Math.max((side * side * largest * scale) / (sum * sum), (sum * sum) / (side * side * smallest * scale));
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
