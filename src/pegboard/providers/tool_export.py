"""Tool definitions in the format of each provider.

format             definition
openai             {"type": "function", "function": {"name", "description", "parameters", "strict"}}
openai-responses   {"type": "function", "name", "description", "parameters", "strict"}
anthropic          {"name", "description", "input_schema"}
gemini             {"name", "description", "parameters"}: put them under one "functionDeclarations"
ollama             {"type": "function", "function": {"name", "description", "parameters"}}
microsoft-ai       {"name", "description", "parameters": {name: {"type", "description", "required"}}}
mcp                the protocol's own form
json-schema        {"name", "input", "output"}
langchain          {"name", "description", "args_schema"}: arguments of StructuredTool, beside the function
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from pegboard.call import Json
from pegboard.protocol.json_values import as_object, texts_in
from pegboard.providers.markdown import Described, write_markdown
from pegboard.providers.schema_dialects import Inexpressible, gemini_schema, open_root, strict_schema
from pegboard.tools.naming import ANY, DOTLESS, GEMINI, NameMap, NameRule

Definition: TypeAlias = dict[str, Json]

# Measured over tool definitions; good enough to keep to a budget, not for billing.
CHARACTERS_PER_TOKEN = 3.54

# Keywords that contain values of the author, not schemas.
_VALUES = frozenset({"default", "examples", "enum", "const"})

log = logging.getLogger("pegboard.tools")


class ListedTool(Struct, frozen=True, kw_only=True):
    """A tool by its definition in a server's list."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Json]
    output_schema: Mapping[str, Json] | None = None

    @classmethod
    def read(cls, definition: Mapping[str, Json]) -> ListedTool:
        """The tool of one item in the result of `tools/list`."""
        output = definition.get("outputSchema")
        return cls(
            name=str(definition.get("name")),
            title=_text(definition.get("title")),
            description=_text(definition.get("description")),
            input_schema=as_object(definition.get("inputSchema")),
            output_schema=as_object(output) if isinstance(output, Mapping) else None,
        )


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


class ExportOptions(Struct, frozen=True, kw_only=True):
    """The options of an export."""

    strict: bool = True
    """OpenAI only: the strict subset for every tool that it can express."""
    description_tokens: int | None = None
    """The limit for each description, estimated at 3.54 characters per token."""


DEFAULT_OPTIONS = ExportOptions()


class Export(Struct, frozen=True):
    """The definitions, notes on what was left out, and the names used."""

    definitions: list[Definition]
    notes: tuple[str, ...]
    names: NameMap


class Format(Struct, frozen=True):
    """One provider's format of a definition, and its rule for names."""

    write: Callable[[Described, str, ExportOptions, list[str]], Definition]
    rule: NameRule = DOTLESS


def export_tools(tools: Iterable[Described], form: str, options: ExportOptions = DEFAULT_OPTIONS) -> Export:
    """Return the definitions of `tools` in the format `form`, one of FORMATS; `options` shorten or simplify them.

    Raises LookupError for an unknown format.
    """
    found = FORMATS.get(form)
    if found is None:
        raise LookupError(f"unknown format {form!r}; use one of {', '.join([*FORMATS, 'markdown'])}")
    listed = list(tools)
    names = NameMap((tool.name for tool in listed), found.rule)
    definitions: list[Definition] = []
    notes: list[str] = []
    for tool in listed:
        own: list[str] = []
        definitions.append(found.write(tool, names.alias(tool.name), options, own))
        notes.extend(f"{tool.name}: {note}" for note in own)
    notes.extend(f"{name}: renamed to {alias}" for name, alias in names.changed().items())
    return Export(definitions, tuple(notes), names)


def export(tools: Iterable[Described], form: str, options: ExportOptions = DEFAULT_OPTIONS) -> list[Definition] | str:
    """Return the definitions of `tools` in the format `form`, or text for `markdown`; `options` are as for `export_tools`.

    Logs what had to be left out.
    """
    if form == "markdown":
        return write_markdown(tools)
    exported = export_tools(tools, form, options)
    for note in exported.notes:
        log.info("%s export: %s", form, note)
    return exported.definitions


def trim(text: str, tokens: int | None) -> str:
    """The text cut to a budget, at the end of a sentence or a word; estimated at 3.54 characters per token."""
    if tokens is None:
        return text
    most = int(tokens * CHARACTERS_PER_TOKEN)
    if len(text) <= most:
        return text
    cut = text[: max(most - 1, 0)]
    sentence = max(cut.rfind(end) for end in (". ", ".\n", "! ", "? ")) + 1
    if sentence > most // 2:
        return cut[:sentence]
    word = max(cut.rfind(" "), cut.rfind("\n"))
    return f"{cut[:word] if word > most // 2 else cut}…"


def _describe(tool: Described, options: ExportOptions) -> str:
    return trim(tool.description or tool.title or "", options.description_tokens)


def _trimmed(schema: Json, options: ExportOptions) -> Json:
    """The schema with its descriptions cut to the budget."""
    if options.description_tokens is None:
        return schema
    if isinstance(schema, Mapping):
        return {
            key: trim(value, options.description_tokens)
            if key == "description" and isinstance(value, str)
            else value
            if key in _VALUES
            else _trimmed(value, options)
            for key, value in schema.items()
        }
    return [_trimmed(item, options) for item in schema] if isinstance(schema, list) else schema


def _openai_function(tool: Described, alias: str, options: ExportOptions, notes: list[str]) -> Definition:
    definition: Definition = {"name": alias, "description": _describe(tool, options)}
    if options.strict:
        own: list[str] = []
        try:
            schema = strict_schema(tool.input_schema, own)
        except Inexpressible as reason:
            notes.append(f"not strict, because {reason}")
        else:
            notes.extend(own)
            return {**definition, "parameters": _trimmed(schema, options), "strict": True}
    return {**definition, "parameters": _trimmed(open_root(tool.input_schema, notes), options), "strict": False}


def _openai_chat(tool: Described, alias: str, options: ExportOptions, notes: list[str]) -> Definition:
    return {"type": "function", "function": _openai_function(tool, alias, options, notes)}


def _openai_responses(tool: Described, alias: str, options: ExportOptions, notes: list[str]) -> Definition:
    return {"type": "function", **_openai_function(tool, alias, options, notes)}


def _anthropic(tool: Described, alias: str, options: ExportOptions, notes: list[str]) -> Definition:
    schema = _trimmed(open_root(tool.input_schema, notes), options)
    return {"name": alias, "description": _describe(tool, options), "input_schema": schema}


def _gemini(tool: Described, alias: str, options: ExportOptions, notes: list[str]) -> Definition:
    definition: Definition = {"name": alias, "description": _describe(tool, options)}
    schema = gemini_schema(tool.input_schema, notes)
    # The API rejects an object without properties; a function without arguments has no parameters at all.
    return {**definition, "parameters": _trimmed(schema, options)} if schema.get("properties") else definition


def _ollama(tool: Described, alias: str, options: ExportOptions, notes: list[str]) -> Definition:
    schema = _trimmed(open_root(tool.input_schema, notes), options)
    return {
        "type": "function",
        "function": {"name": alias, "description": _describe(tool, options), "parameters": schema},
    }


def _microsoft(tool: Described, alias: str, options: ExportOptions, notes: list[str]) -> Definition:
    schema = open_root(tool.input_schema, notes)
    required = texts_in(schema.get("required"))
    parameters = {
        name: {
            "type": part.get("type", "object"),
            "description": trim(part.get("description", ""), options.description_tokens),
            "required": name in required,
        }
        for name, part in as_object(schema.get("properties")).items()
        if isinstance(part, Mapping)
    }
    return {"name": alias, "description": _describe(tool, options), "parameters": parameters}


def _mcp(tool: Described, alias: str, options: ExportOptions, _notes: list[str]) -> Definition:
    definition: Definition = {"name": alias}
    if tool.title:
        definition["title"] = tool.title
    if tool.description:
        definition["description"] = _describe(tool, options)
    definition["inputSchema"] = _trimmed(dict(tool.input_schema), options)
    if tool.output_schema is not None:
        definition["outputSchema"] = _trimmed(dict(tool.output_schema), options)
    return definition


def _langchain(tool: Described, alias: str, options: ExportOptions, notes: list[str]) -> Definition:
    schema = _trimmed(open_root(tool.input_schema, notes), options)
    return {"name": alias, "description": _describe(tool, options) or alias, "args_schema": schema}


def _json_schema(tool: Described, alias: str, options: ExportOptions, _notes: list[str]) -> Definition:
    output = None if tool.output_schema is None else _trimmed(dict(tool.output_schema), options)
    return {"name": alias, "input": _trimmed(dict(tool.input_schema), options), "output": output}


FORMATS: dict[str, Format] = {
    "openai": Format(_openai_chat),
    "openai-responses": Format(_openai_responses),
    "anthropic": Format(_anthropic),
    "gemini": Format(_gemini, GEMINI),
    "ollama": Format(_ollama, ANY),
    "microsoft-ai": Format(_microsoft, ANY),
    "mcp": Format(_mcp, ANY),
    "json-schema": Format(_json_schema, ANY),
    "langchain": Format(_langchain),
}
