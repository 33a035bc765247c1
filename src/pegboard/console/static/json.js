// JSON values as coloured text, and arguments as a difference between what was sent and what ran.
import { h } from "./dom.js";

const LONG = 4000;

export function jsonView(value) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  if (text.length > LONG) return h("pre", { class: "json" }, text.slice(0, LONG), h("span", { class: "hint" }, `\n… ${(text.length - LONG).toLocaleString("en")} more characters`));
  return h("pre", { class: "json" }, parts(text));
}

function parts(text) {
  const pattern = /("(?:\\.|[^"\\])*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  const shown = [];
  let end = 0;
  for (const found of text.matchAll(pattern)) {
    if (found.index > end) shown.push(text.slice(end, found.index));
    const kind = found[1] ? (found[2] ? "key" : "string") : found[3] ? "word" : "number";
    shown.push(h("span", { class: `j-${kind}` }, found[1] || found[0]));
    if (found[2]) shown.push(found[2]);
    end = found.index + found[0].length;
  }
  shown.push(text.slice(end));
  return shown;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** The arguments line by line; what a repair changed is shown before and after. */
export function argumentDiff(sent, ran) {
  if (!isObject(ran) || !isObject(sent)) return jsonView(sent);
  return h("pre", { class: "json diff" }, "{", lines(sent, ran, "  "), "}");
}

function lines(sent, ran, indent) {
  return [...new Set([...Object.keys(sent), ...Object.keys(ran)])].map((name) => {
    const before = JSON.stringify(sent[name]);
    const after = JSON.stringify(ran[name]);
    const key = [indent, h("span", { class: "j-key" }, JSON.stringify(name)), ": "];
    if (before === after) return h("div", null, key, before);
    if (isObject(sent[name]) && isObject(ran[name])) return h("div", null, key, "{", lines(sent[name], ran[name], `${indent}  `), `${indent}}`);
    return h("div", null, key, before !== undefined && h("del", null, before), before !== undefined && after !== undefined && " ", after !== undefined && h("ins", null, after));
  });
}
