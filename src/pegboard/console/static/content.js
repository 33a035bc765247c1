// Resources and prompts: read a resource, fill in a prompt, look at the messages.
import { h } from "./dom.js";
import { resultView } from "./call.js";
import { objectFields } from "./form.js";
import { ask, changed, state } from "./store.js";

const view = { results: new Map(), values: new Map() };

export function contentPage() {
  const { resources, templates, prompts } = state.offers;
  if (!resources.length && !templates.length && !prompts.length) {
    return h("p", { class: "empty" }, "There are no resources and no prompts. Add them with ", h("code", null, "@board.resource"), " and ", h("code", null, "@board.prompt"), ".");
  }
  return [
    prompts.length > 0 && section("Prompts", prompts.slice(0, 200).map(promptCard)),
    resources.length > 0 && section("Resources", resources.slice(0, 200).map((resource) => resourceCard(resource))),
    templates.length > 0 && section("Resource templates", templates.slice(0, 200).map(templateCard)),
  ];
}

function section(title, cards) {
  return h("section", { class: "card", key: title }, h("h2", null, title), h("div", { class: "servers" }, cards));
}

function card(key, title, about, fields, label, request) {
  const result = view.results.get(key);
  const run = async (event) => {
    event.preventDefault();
    try {
      const { method, ...params } = request();
      view.results.set(key, await ask(method, params));
    } catch (error) {
      view.results.set(key, { isError: true, content: [{ type: "text", text: error.message }] });
    }
    changed();
  };
  return h(
    "article",
    { class: "server", key },
    h("h3", null, title),
    about && h("p", { class: "hint" }, about.replace(/^\[[^\]]*\] /, "")),
    h("form", { onsubmit: run }, fields, h("div", { class: "buttons" }, h("button", { "aria-label": `${label} ${title}` }, label))),
    result && resultView(result),
  );
}

function fieldsOf(key, names, argument) {
  const schema = { type: "object", properties: Object.fromEntries(names.map((name) => [name, { type: "string", ...argument(name) }])) };
  const set = (value) => {
    view.values.set(key, value);
    changed();
  };
  return names.length ? objectFields(schema, schema, () => view.values.get(key) || {}, set, `/${key}`) : null;
}

function promptCard(prompt) {
  const key = `prompt ${prompt.name}`;
  const listed = prompt.arguments || [];
  const fields = fieldsOf(key, listed.map((argument) => argument.name), (name) => ({ description: listed.find((argument) => argument.name === name).description }));
  return card(key, prompt.title || prompt.name, prompt.description, fields, "Get", () => ({ method: "prompts/get", name: prompt.name, arguments: view.values.get(key) || {} }));
}

function resourceCard(resource) {
  return card(`resource ${resource.uri}`, resource.title || resource.name || resource.uri, resource.uri, null, "Read", () => ({ method: "resources/read", uri: resource.uri }));
}

function templateCard(template) {
  const key = `template ${template.uriTemplate}`;
  const names = [...template.uriTemplate.matchAll(/\{[+#./;?&]?([^}*:]+)/g)].flatMap((found) => found[1].split(","));
  const expand = () => {
    const values = view.values.get(key) || {};
    return template.uriTemplate.replace(/\{[+#./;?&]?([^}]+)\}/g, (_, list) => list.split(",").map((name) => encodeURIComponent(values[name.replace(/[*:].*/, "")] ?? "")).join(","));
  };
  return card(key, template.title || template.name || template.uriTemplate, template.uriTemplate, fieldsOf(key, names, () => ({})), "Read", () => ({ method: "resources/read", uri: expand() }));
}
