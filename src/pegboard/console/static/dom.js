// A small keyed renderer. Text becomes text nodes and properties, never markup, so nothing that a server sends is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "rect", "circle", "line", "polyline", "g", "text", "title", "tspan"]);

/** Describe an element: `h("button", {onclick, class: "primary"}, "Call")`. */
export function h(tag, props, ...children) {
  const given = props || {};
  work.described += 1;
  return { tag, props: given, key: given.key, children: children.flat(Infinity).filter(isShown) };
}

/** How many elements were described so far: the work of the renderer, for tests. */
export const work = { described: 0 };

/** The description of the last time if the inputs are the same; its elements are then not looked at. `cell` is an object of the caller. */
export function memo(cell, inputs, describe) {
  if (!cell.inputs || inputs.some((input, index) => input !== cell.inputs[index])) {
    cell.inputs = inputs;
    cell.node = describe();
  }
  return cell.node;
}

const PER_DRAWING = 60;
const grown = new WeakMap();
let drawings = 0;

/** The first of many items, and more of them in each drawing until all are shown, so that a long list takes no long task. */
export function gradually(items, changed) {
  const before = grown.get(items);
  // A page that was left begins again.
  const start = before && before.at >= drawings - 1 ? before.shown : 0;
  const shown = Math.min(items.length, start + PER_DRAWING);
  grown.set(items, { at: drawings, shown });
  if (shown === items.length) return items;
  changed();
  return items.slice(0, shown);
}

/** Make the children of an element match a description. */
export function render(root, nodes) {
  drawings += 1;
  patchChildren(root, [nodes].flat(Infinity).filter(isShown));
}

function isShown(child) {
  return child !== null && child !== undefined && child !== false && child !== true;
}

function patchChildren(parent, wanted) {
  const present = parent.rendered || [];
  const reusable = new Map(present.map((entry, index) => [keyOf(entry.node, index), entry]));
  const entries = [];
  let cursor = parent.firstChild;
  wanted.forEach((node, index) => {
    const key = keyOf(node, index);
    let entry = reusable.get(key);
    if (entry && isSameKind(entry.node, node)) {
      reusable.delete(key);
      update(entry, node);
    } else {
      entry = create(node);
    }
    entries.push(entry);
    if (entry.element === cursor) cursor = cursor.nextSibling;
    else parent.insertBefore(entry.element, cursor);
  });
  for (const entry of reusable.values()) {
    release(entry);
    entry.element.remove();
  }
  parent.rendered = entries;
}

function keyOf(node, index) {
  return node.key === undefined ? `#${index}` : node.key;
}

function isSameKind(before, after) {
  return typeof before === typeof after && before.tag === after.tag;
}

function create(node) {
  if (typeof node !== "object") return { node, element: document.createTextNode(String(node)) };
  const element = SVG_TAGS.has(node.tag) ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  const entry = { node: { tag: node.tag, props: {}, children: [] }, element };
  update(entry, node);
  if (node.props.mounted) node.props.mounted(element);
  return entry;
}

function update(entry, node) {
  const before = entry.node;
  if (before === node) return;
  entry.node = node;
  if (typeof node !== "object") {
    if (before !== node) entry.element.data = String(node);
    return;
  }
  const { element } = entry;
  for (const name in before.props) if (!(name in node.props)) setProperty(element, name, undefined);
  for (const name in node.props) {
    if (before.props[name] !== node.props[name] || name === "value" || name === "checked") {
      setProperty(element, name, node.props[name]);
    }
  }
  if (!node.props.own) patchChildren(element, node.children);
}

function release(entry) {
  if (typeof entry.node !== "object") return;
  for (const child of entry.element.rendered || []) release(child);
  if (entry.node.props.removed) entry.node.props.removed(entry.element);
}

function setProperty(element, name, value) {
  if (name === "key" || name === "own" || name === "mounted" || name === "removed") return;
  if (name.startsWith("on")) element[name] = value || null;
  else if (name === "style") {
    element.removeAttribute("style");
    for (const [property, text] of Object.entries(value || {})) element.style.setProperty(property, text);
  } else if (name === "value") {
    if (element.value !== (value ?? "")) element.value = value ?? "";
  } else if (name === "checked" || name === "disabled" || name === "hidden" || name === "indeterminate") {
    element[name] = Boolean(value);
  } else if (value === undefined || value === null || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : value);
}
