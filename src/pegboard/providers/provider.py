"""A set of tools for one model provider's API.

    provider = Provider("anthropic", tools)
    message = client.messages.create(tools=provider.definitions, …)
    for request in provider.parse(message): …

`parse` takes the provider's whole response, its message, the list of calls, or all events of a stream, as dicts or as
objects of the provider's package. Each call becomes a `ToolCallRequest` with the tool's real name, its repaired
arguments, and the repairs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from pegboard.call import Call, Json, Reply
from pegboard.errors import DeclarationError
from pegboard.logs.printable import printable
from pegboard.protocol.json_values import as_object
from pegboard.providers.markdown import Described
from pegboard.providers.provider_stream import assemble
from pegboard.providers.tool_export import DEFAULT_OPTIONS, Definition, ExportOptions, export_tools
from pegboard.repair.repairer import ParseError, ParseWarning
from pegboard.schema.problems import format_keys
from pegboard.tools.argument_parser import ParsedArguments
from pegboard.tools.parameters import ToolCallRequest, digest_of
from pegboard.tools.relayed_tool import RelayedTool

MISSING = "tool_definition_missing"
_ABSENT = frozenset({"null_left_out", "null_replaced_by_default"})

# A number keeps its digits as they were sent.
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode

log = logging.getLogger("pegboard.tools.parse")


class TokenUsage(Struct, frozen=True):
    """The tokens of one response: `prompt` in all, of which `cached` came from a cache, and `completion`."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0


def read_usage(provider: str, response: Json) -> TokenUsage | None:
    """The usage in a whole response; None if it has none."""
    whole = as_object(response)
    member = "usageMetadata" if provider == "gemini" else "usage"
    found = whole if provider == "ollama" else as_object(whole.get(member) or whole.get("usage_metadata"))
    prompt, completion, cached, added = _MEMBERS[provider]
    if not any(_count(found, name) for name in (*prompt, *completion)):
        return None
    at_hand = _count(found, *cached)
    return TokenUsage(
        prompt=sum(_count(found, name) for name in prompt) + (at_hand if added else 0),
        completion=sum(_count(found, name) for name in completion),
        cached=at_hand,
    )


def _count(usage: Mapping[str, Json], *path: str) -> int:
    """The number at this path, or under its name in snake_case, as the provider's own package writes it; else 0."""
    found: Json = usage
    for name in path:
        inside = as_object(found)
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
        found = inside.get(name, inside.get(snake))
    return found if type(found) is int and found > 0 else 0


# By provider: the counts of the prompt, of the completion, the path of the cached ones, and whether those are extra.
_MEMBERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], bool]] = {
    "openai": (("prompt_tokens",), ("completion_tokens",), ("prompt_tokens_details", "cached_tokens"), False),
    "openai-responses": (("input_tokens",), ("output_tokens",), ("input_tokens_details", "cached_tokens"), False),
    "anthropic": (
        ("input_tokens", "cache_creation_input_tokens"),
        ("output_tokens",),
        ("cache_read_input_tokens",),
        True,
    ),
    "gemini": (
        ("promptTokenCount",),
        ("candidatesTokenCount", "thoughtsTokenCount"),
        ("cachedContentTokenCount",),
        False,
    ),
    "ollama": (("prompt_eval_count",), ("eval_count",), ("cached",), False),
}


class Parsing(Described, Protocol):
    """A tool that parses its own arguments."""

    def parse(self, raw: bytes, /) -> ParsedArguments:
        """Parse the arguments of a call, with repair."""


class ProviderCall(Struct, frozen=True):
    """A call as a provider sent it: arguments as JSON text, or as values."""

    name: str
    id: str
    arguments: Json


class Provider:
    """Tools for one model provider: definitions for its API, and its tool calls as requests.

    name: openai, openai-responses, anthropic, gemini or ollama.
    tools: tools of this program, or definitions of another server's tools: `await client.list_tools()`.
    options: how their definitions are shortened or simplified.
    """

    def __init__(
        self, name: str, tools: Iterable[Parsing | Mapping[str, Any]], options: ExportOptions = DEFAULT_OPTIONS
    ) -> None:
        if name not in READERS:
            raise LookupError(f"unknown provider {name!r}; use one of {', '.join(READERS)}")
        self.name = name
        usable = (_remote_tool(tool) if isinstance(tool, Mapping) else tool for tool in tools)
        self._tools: dict[str, Parsing] = {tool.name: tool for tool in usable if tool is not None}
        exported = export_tools(self._tools.values(), name, options)
        self.definitions: list[Definition] = exported.definitions
        self.notes = exported.notes
        self.names = exported.names
        self._strict = {
            str(definition.get("name") or as_object(definition.get("function")).get("name"))
            for definition in exported.definitions
            if definition.get("strict") or as_object(definition.get("function")).get("strict")
        }

    def parse(self, payload: Any) -> list[ToolCallRequest]:
        """The tool calls in a provider's response, in order; an empty list if there are none."""
        return [self._request(sent) for sent in READERS[self.name](assemble(self.name, _plain(payload)))]

    def usage(self, payload: Any) -> TokenUsage | None:
        """The tokens that a response, or the events of its stream, report; None if they report none."""
        return read_usage(self.name, assemble(self.name, _plain(payload)))

    def answer(self, request: ToolCallRequest, text: str, *, is_error: bool = False) -> dict[str, Json]:
        """The message item that returns the result of a call to the provider."""
        alias = request.tool_name
        if request.tool_name in self._tools:
            alias = self.names.alias(request.tool_name)
        return _write_answer(self.name, request.tool_call_id, alias, text, is_error)

    def _request(self, sent: ProviderCall) -> ToolCallRequest:
        name = self.names.name(sent.name)
        text = _text(sent.arguments)
        tool = self._tools.get(name)
        if tool is None:
            return _without_definition(name, sent.id, text)
        parsed = tool.parse(text.encode("utf-8", "replace"))
        if sent.name in self._strict and (absent := {note.path for note in parsed.warnings if note.code in _ABSENT}):
            # Every argument of a strict definition is required, and null is how a model leaves one out.
            text = _encode(_without_nulls(_decode(text), absent, ())).decode("utf-8")
            parsed = tool.parse(text.encode("utf-8"))
        for warning in parsed.warnings:
            log.debug("%s: %s (%s)", name, warning.message, warning.code)
        return ToolCallRequest(
            tool_name=name,
            tool_call_id=sent.id,
            arguments=parsed.arguments,
            raw_arguments=text,
            warnings=parsed.warnings,
            errors=parsed.errors,
            parsed_digest=digest_of(parsed.arguments),
        )


def _remote_tool(definition: Mapping[str, Any]) -> Parsing | None:
    """A tool of another server, whose arguments are parsed here; None, with a warning, if its definition is invalid."""
    try:
        return RelayedTool(definition, _not_run, source="a tool of a server")
    except DeclarationError as problem:
        log.warning("left out: %s", printable(str(problem)[:300]))
        return None


async def _not_run(call: Call, parsed: ParsedArguments) -> Reply:
    raise NotImplementedError("a provider parses calls; a ToolExecutor runs them")


def _without_definition(name: str, call_id: str, text: str) -> ToolCallRequest:
    """A call of an unknown tool: parsed without a schema, with a warning."""
    message = f"unknown tool {name[:64]!r}; its arguments were parsed without a schema"
    log.warning("%s", message)
    arguments: Mapping[str, Json] = {}
    errors: tuple[ParseError, ...] = ()
    try:
        value = msgspec.json.decode(text)
    except ValueError:
        errors = (ParseError("", "json_parse_error", "the arguments are not JSON", text[:200]),)
    else:
        if isinstance(value, dict):
            arguments = value
        else:
            errors = (ParseError("", "arguments_must_be_object", "the arguments are not an object", value),)
    return ToolCallRequest(
        tool_name=name,
        tool_call_id=call_id,
        arguments=arguments,
        raw_arguments=text,
        warnings=(ParseWarning("", MISSING, message, name, None),),
        errors=errors,
        parsed_digest=digest_of(arguments),
    )


def _without_nulls(value: Json, absent: Container[str], keys: tuple[str | int, ...]) -> Json:
    """The value without the nulls at these paths."""
    match value:
        case dict():
            return {
                name: _without_nulls(inner, absent, (*keys, name))
                for name, inner in value.items()
                if inner is not None or format_keys((*keys, name)) not in absent
            }
        case list():
            return [_without_nulls(inner, absent, (*keys, place)) for place, inner in enumerate(value)]
        case _:
            return value


def _text(arguments: Json) -> str:
    if isinstance(arguments, str):
        # A call without arguments streams no text at all.
        return arguments if arguments.strip() else "{}"
    return msgspec.json.encode({} if arguments is None else arguments).decode("utf-8")


def _plain(payload: Any) -> Json:
    """A payload as dicts and lists, whichever package its objects come from."""
    dump = getattr(payload, "model_dump", None)
    if dump is not None and not isinstance(payload, type):
        return dump(mode="json", exclude_none=True)
    if isinstance(payload, Mapping):
        return {key: _plain(value) for key, value in payload.items()}
    if isinstance(payload, list | tuple | Iterator):
        return [_plain(item) for item in payload]
    return payload


def _objects(value: Json) -> list[Mapping[str, Json]]:
    """The objects in a list, or a single object in place of a list."""
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, Mapping)]


def _inside(payload: Json, *steps: str | int) -> Json:
    """The value at this path; the payload itself if the first step is missing."""
    if not isinstance(payload, Mapping) or steps[0] not in payload:
        return payload
    found: Json = payload
    for step in steps:
        if isinstance(step, int):
            found = found[step] if isinstance(found, list) and len(found) > step else None
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _read_openai(payload: Json) -> Iterator[ProviderCall]:
    message = _inside(payload, "choices", 0, "message")
    only = as_object(message).get("function_call")
    if isinstance(only, Mapping):
        yield _named(only, "", 0)
    calls = _inside(message, "tool_calls")
    for place, call in enumerate(_objects(calls)):
        function, custom = call.get("function"), call.get("custom")
        if isinstance(function, Mapping):
            yield _named(function, call.get("id"), place)
        elif isinstance(custom, Mapping):
            yield ProviderCall(str(custom.get("name", "")), str(call.get("id") or ""), custom.get("input"))


def _read_openai_responses(payload: Json) -> Iterator[ProviderCall]:
    for place, item in enumerate(_objects(_inside(payload, "output"))):
        if item.get("type") == "function_call":
            yield _named(item, item.get("call_id") or item.get("id"), place)


def _read_anthropic(payload: Json) -> Iterator[ProviderCall]:
    blocks = _objects(_inside(payload, "content"))
    for place, block in enumerate(blocks):
        if block.get("type") == "tool_use":
            yield ProviderCall(
                str(block.get("name", "")), str(block.get("id") or _numbered(block, place)), block.get("input")
            )


def _read_gemini(payload: Json) -> Iterator[ProviderCall]:
    content = _inside(payload, "candidates", 0, "content")
    for place, part in enumerate(_objects(_inside(content, "parts"))):
        call = part.get("functionCall") or part.get("function_call")
        if isinstance(call, Mapping):
            yield ProviderCall(
                str(call.get("name", "")), str(call.get("id") or _numbered(call, place)), call.get("args")
            )


def _read_ollama(payload: Json) -> Iterator[ProviderCall]:
    calls = _inside(_inside(payload, "message"), "tool_calls")
    for place, call in enumerate(_objects(calls)):
        function = call.get("function")
        if isinstance(function, Mapping):
            yield _named(function, call.get("id"), place)


def _named(call: Mapping[str, Json], call_id: Json, place: int) -> ProviderCall:
    return ProviderCall(str(call.get("name", "")), str(call_id or _numbered(call, place)), call.get("arguments"))


def _numbered(call: Mapping[str, Json], place: int) -> str:
    """An id for a provider without ids: the position of the call in its message."""
    return f"{call.get('name', 'call')}-{place}"


def _write_answer(provider: str, call_id: str, name: str, text: str, is_error: bool) -> dict[str, Json]:
    match provider:
        case "openai":
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case "openai-responses":
            return {"type": "function_call_output", "call_id": call_id, "output": text}
        case "anthropic":
            block: dict[str, Json] = {"type": "tool_result", "tool_use_id": call_id, "content": text}
            return {**block, "is_error": True} if is_error else block
        case "gemini":
            return {"functionResponse": {"name": name, "response": {"error" if is_error else "output": text}}}
    return {"role": "tool", "tool_name": name, "content": text}


READERS: dict[str, Callable[[Json], Iterator[ProviderCall]]] = {
    "openai": _read_openai,
    "openai-responses": _read_openai_responses,
    "anthropic": _read_anthropic,
    "gemini": _read_gemini,
    "ollama": _read_ollama,
}
