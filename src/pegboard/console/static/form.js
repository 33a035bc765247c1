// Forms made from JSON Schema: switches, sliders, dates, choices, chips, nested objects.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { changed } from "./store.js";

const BUTTONS = 6;
const DEPTH = 6;

/** The schema itself: references resolved, the first alternative that is not null chosen. */
export function resolve(schema, root) {
  let current = schema;
  for (let step = 0; step < 10 && current && typeof current === "object"; step += 1) {
    if (typeof current.$ref === "string" && current.$ref.startsWith("#/")) {
      const found = current.$ref.slice(2).split("/").reduce((part, name) => part?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], root);
      current = { ...found, ...without(current, "$ref") };
    } else if (current.anyOf || current.oneOf) {
      const choices = current.anyOf || current.oneOf;
      const constants = choices.filter((choice) => choice && "const" in choice);
      if (constants.length === choices.length) return { ...without(current, "anyOf", "oneOf"), enum: constants.map((choice) => choice.const) };
      const chosen = choices.find((choice) => choice && choice.type !== "null") || {};
      current = { ...without(current, "anyOf", "oneOf"), ...chosen };
    } else if (current.allOf?.length === 1) current = { ...without(current, "allOf"), ...current.allOf[0] };
    else break;
  }
  return current && typeof current === "object" ? current : {};
}

function without(object, ...names) {
  return Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)));
}

function typeOf(schema) {
  const type = Array.isArray(schema.type) ? schema.type.find((name) => name !== "null") : schema.type;
  return type || (schema.properties ? "object" : schema.enum ? "enum" : "any");
}

/** A first value for a form: defaults, and what is required. */
export function initial(schema, root) {
  const resolved = resolve(schema, root);
  if ("default" in resolved) return structuredClone(resolved.default);
  if (typeOf(resolved) === "object" && resolved.properties) {
    const value = {};
    for (const name of resolved.required || []) {
      const part = initial(resolved.properties[name] || {}, root);
      if (part !== undefined) value[name] = part;
    }
    return value;
  }
  if (resolved.examples?.length) return structuredClone(resolved.examples[0]);
  if (typeOf(resolved) === "boolean") return false;
  if (typeOf(resolved) === "array") return [];
  return undefined;
}

/**
 * The fields of an object. `read` returns its current value, which may be newer than what is shown; `set` gets the new
 * value of the whole object.
 */
export function objectFields(schema, root, read, set, path = "", depth = 0) {
  const resolved = resolve(schema, root);
  const properties = resolved.properties || {};
  const names = Object.keys(properties);
  if (!names.length && depth === 0) return h("p", { class: "hint" }, "This tool takes no arguments.");
  const current = () => (read() && typeof read() === "object" ? read() : {});
  return names.map((name) => {
    const put = (part) => {
      const next = { ...current() };
      if (part === undefined) delete next[name];
      else next[name] = part;
      set(next);
    };
    return field(name, properties[name], root, () => current()[name], put, (resolved.required || []).includes(name), `${path}/${name}`, depth);
  });
}

function field(name, schema, root, read, set, required, path, depth) {
  const resolved = resolve(schema, root);
  const id = `field${path}`;
  const type = typeOf(resolved);
  const nested = type === "object" && resolved.properties && depth < DEPTH;
  return h(
    nested ? "fieldset" : "div",
    { class: type === "boolean" ? "field inline" : "field", key: id },
    h(nested ? "legend" : "label", nested ? null : { for: id }, resolved.title || name, required && h("span", { class: "required", title: "required" }, " *")),
    resolved.description && h("p", { class: "hint", id: `${id}-hint` }, resolved.description),
    control(id, resolved, type, root, read, set, path, depth),
  );
}

function control(id, schema, type, root, read, set, path, depth) {
  const value = read();
  if (schema.enum) return choices(id, schema.enum, value, set);
  if (type === "boolean") {
    return h("input", { id, type: "checkbox", class: "switch", role: "switch", checked: value === true, onchange: (event) => set(event.target.checked) });
  }
  if (type === "integer" || type === "number") return numeric(id, schema, type, value, set);
  if (type === "string") return textual(id, schema, value, set);
  if (type === "array") return list(id, schema, root, read, set, path, depth);
  if (type === "object" && schema.properties && depth < DEPTH) return h("div", { class: "nested" }, objectFields(schema, root, read, set, path, depth + 1));
  if (type === "object" && schema.additionalProperties && typeof schema.additionalProperties === "object" && depth < DEPTH) return map(id, resolve(schema.additionalProperties, root), root, read, set, path, depth);
  return jsonField(id, value, set);
}

function choices(id, options, value, set) {
  if (options.length <= BUTTONS) {
    return h(
      "div",
      { class: "choices", role: "group", id },
      options.map((option) =>
        h("button", { type: "button", "aria-pressed": String(value === option), class: value === option ? "chosen" : "", onclick: () => set(value === option ? undefined : option) }, String(option)),
      ),
    );
  }
  return h(
    "select",
    { id, value: value === undefined ? "" : JSON.stringify(value), onchange: (event) => set(event.target.value === "" ? undefined : JSON.parse(event.target.value)) },
    h("option", { value: "" }, "–"),
    options.map((option) => h("option", { value: JSON.stringify(option) }, String(option))),
  );
}

function numeric(id, schema, type, value, set) {
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  const step = type === "integer" ? 1 : "any";
  const read = (event) => set(event.target.value === "" ? undefined : Number(event.target.value));
  const box = h("input", { id, type: "number", step, min: low, max: high, value: value === undefined || value === null ? "" : String(value), oninput: read });
  if (low === undefined || high === undefined) return box;
  const slider = h("input", { type: "range", "aria-label": "Slider", min: low, max: high, step: type === "integer" ? 1 : (high - low) / 100, value: String(value ?? low), oninput: read });
  return h("div", { class: value === undefined || value === null ? "slider unset" : "slider" }, slider, box);
}

const FORMATS = { date: "date", "date-time": "datetime-local", time: "time", email: "email", uri: "url" };

function textual(id, schema, value, set) {
  const kind = FORMATS[schema.format];
  const shown = schema.format === "date-time" && typeof value === "string" ? value.replace(/(Z|[+-]\d\d:\d\d)$/, "").slice(0, 16) : value;
  if (kind) {
    return h("input", {
      id,
      type: kind,
      value: shown ?? "",
      oninput: (event) => {
        const text = event.target.value;
        set(text === "" ? undefined : schema.format === "date-time" ? `${text}:00Z` : text);
      },
    });
  }
  const long = (schema.maxLength ?? 0) > 200 || String(value ?? "").length > 80;
  return h(long ? "textarea" : "input", {
    id,
    type: long ? null : "text",
    rows: long ? "4" : null,
    placeholder: schema.examples?.length ? `for example ${String(schema.examples[0])}` : null,
    value: value ?? "",
    oninput: (event) => set(event.target.value),
  });
}

function list(id, schema, root, read, set, path, depth) {
  const current = () => (Array.isArray(read()) ? read() : []);
  const items = current();
  const of = resolve(schema.items || {}, root);
  const kind = typeOf(of);
  if (of.enum) {
    return h(
      "div",
      { class: "choices", role: "group", id },
      of.enum.map((option) => {
        const chosen = items.includes(option);
        return h("button", { type: "button", "aria-pressed": String(chosen), class: chosen ? "chosen" : "", onclick: () => set(chosen ? current().filter((item) => item !== option) : [...current(), option]) }, String(option));
      }),
    );
  }
  if (kind === "string" || kind === "integer" || kind === "number") return chips(id, kind, current, set);
  const replace = (index) => (part) => set(current().map((item, at) => (at === index ? part : item)));
  return h(
    "div",
    { class: "list", id },
    items.map((_, index) =>
      h(
        "div",
        { class: "item", key: `${path}/${index}` },
        control(`${id}-${index}`, of, kind, root, () => current()[index], replace(index), `${path}/${index}`, depth + 1),
        h("button", { type: "button", class: "quiet", "aria-label": "Remove", onclick: () => set(current().filter((_, at) => at !== index)) }, icon("close")),
      ),
    ),
    h("button", { type: "button", onclick: () => set([...current(), initial(of, root) ?? null]) }, icon("plus"), "Add"),
  );
}

/** An object whose names the caller chooses: a row for each name. */
function map(id, of, root, read, set, path, depth) {
  const current = () => (read() && typeof read() === "object" ? read() : {});
  const add = (event) => {
    const name = event.target.value.trim();
    if (!name || name in current()) return;
    event.target.value = "";
    set({ ...current(), [name]: initial(of, root) ?? null });
  };
  return h(
    "div",
    { class: "list" },
    Object.keys(current()).map((name) =>
      h(
        "div",
        { class: "item", key: `${path}/${name}` },
        h(
          "div",
          { class: "field" },
          h("label", { for: `${id}-${name}` }, name),
          control(`${id}-${name}`, of, typeOf(of), root, () => current()[name], (part) => set({ ...current(), [name]: part ?? null }), `${path}/${name}`, depth + 1),
        ),
        h("button", { type: "button", class: "quiet", "aria-label": `Remove ${name}`, onclick: () => set(without(current(), name)) }, icon("close")),
      ),
    ),
    h("input", { id, type: "text", placeholder: "Type a name, press Enter", onkeydown: (event) => event.key === "Enter" && (event.preventDefault(), add(event)), onblur: add }),
  );
}

function chips(id, kind, current, set) {
  const add = (event) => {
    const text = event.target.value.trim();
    if (!text) return;
    const item = kind === "string" ? text : Number(text);
    if (kind !== "string" && Number.isNaN(item)) return;
    event.target.value = "";
    set([...current(), item]);
  };
  return h(
    "div",
    { class: "chips" },
    current().map((item, index) =>
      h("span", { class: "chip", key: `chip-${index}` }, String(item), h("button", { type: "button", class: "quiet", "aria-label": `Remove ${item}`, onclick: () => set(current().filter((_, at) => at !== index)) }, icon("close"))),
    ),
    h("input", {
      id,
      type: "text",
      placeholder: "Type a value, press Enter",
      onkeydown: (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault();
        add(event);
      },
      onblur: add,
    }),
  );
}

export function jsonField(id, value, set) {
  return h("textarea", {
    id,
    rows: "6",
    class: "code",
    spellcheck: "false",
    "aria-label": "JSON",
    placeholder: "JSON",
    value: value === undefined ? "" : typeof value === "string" && value.startsWith("\u0000") ? value.slice(1) : JSON.stringify(value, null, 2),
    oninput: (event) => {
      const text = event.target.value;
      try {
        event.target.setCustomValidity("");
        const parsed = text.trim() === "" ? undefined : JSON.parse(text);
        if (JSON.stringify(parsed, null, 2) === text || text.trim() === "") set(parsed);
        else event.target.pending = parsed;
      } catch {
        event.target.setCustomValidity("This is not valid JSON");
      }
    },
    onchange: (event) => {
      if (event.target.pending !== undefined) {
        set(event.target.pending);
        event.target.pending = undefined;
      }
      changed();
    },
  });
}
