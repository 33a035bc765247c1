"""Turns what a tool returned into the result of its call.

Theory of operation. A `ResultWriter` is compiled once per tool. If the type of a value alone proves that it fits the
output schema (a finite float for {"type": "number"}), it is written at once. Every other value is encoded once, by
msgspec; the text block is that JSON (a lone string stays plain), and structured content is that JSON decoded again: a
private copy, exactly what will be sent, and what is validated against the schema.

`structuredContent` is sent if the tool declares an output schema or the author set it in a `ToolResult`; it is never
guessed. A value that cannot be sent as JSON, or does not fit the schema, raises `ResultProblem`: its text is for the
author, and the model never sees any part of the value.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from pegboard.argument_problems import ParseWarning
from pegboard.call import Done, EncodedResult, Json, RequestId
from pegboard.errors import (
    InternalFailure,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseFailure,
    Refusal,
    ToolError,
)
from pegboard.limits import Limits
from pegboard.media import Content
from pegboard.next_action import NextActions, read_actions
from pegboard.protocol.content import Block, joined_text, note_block, text_block
from pegboard.protocol.json_values import as_list, as_object, texts_in
from pegboard.schema.jsonschema_backend import LENIENT
from pegboard.schema.plain_json import (
    UNWRITABLE,
    ContentInside,
    ResultProblem,
    UnawaitedResult,
    as_plain,
    check_numbers,
    decode,
    encode,
    find_problem,
)
from pegboard.schema.problems import describe_problems_of as explain_problems
from pegboard.schema.types.constraints import REMARKS
from pegboard.schema.types.pydantic_types import Dump, dump_dataclass, is_pydantic_dataclass
from pegboard.schema.validator import Validator
from pegboard.schema.wording import clip_value
from pegboard.tools.answer_suggestions import add_suggestions
from pegboard.tools.message import JsonRpcMessage

PARSE_ERRORS = "dev.pegboard/parseErrors"
PARSE_WARNINGS = "dev.pegboard/parseWarnings"
SKIPPED = "dev.pegboard/skipped"

RepairNotes: TypeAlias = Literal["text", "meta", "off"]
"""Where a result reports the repairs of its arguments: for the model and programs, for programs alone, or not at all."""

RESULT_BYTES = Limits().result_bytes

# A timedelta may be negative or have a fraction, which ISO 8601 allows and the format "duration" does not.
RESULT_FORMATS = LENIENT - {"duration"}
"""The formats of an output schema that are checked."""
# A tool returns few types, but one that creates classes as it runs must not fill our memory.
_TYPES_KEPT = 64
_log = logging.getLogger("pegboard.tools")
_WORDS = {True: "true", False: "false", None: "null"}

# The repairs that a note for the model lists.
_NOTED = 5

# Beyond this, a float cannot represent every integer.
_EXACT = 2**53


class ToolResult:
    """A result written by the author: content, structured content, metadata, or an error for the model.

    content: text, a content object such as `Image`, any JSON value, or a list of these.
    structured: the structured content, a JSON value or an object with fields.
    is_error: whether the result is an error for the model.
    skipped: whether the tool decided not to act; sent as `_meta["dev.pegboard/skipped"]`, and the status of a record.
    insights: what the model should notice about the result, as sentences; added as a note and to `_meta`.
    next_actions: tools to call next: a name, a NextAction, or several of them; added as a note and to `_meta`.
    meta: sent to the client as `_meta`.
    metadata: for the embedding program, in the execution record; never sent.
    """

    __slots__ = ("content", "insights", "is_error", "meta", "metadata", "next_actions", "skipped", "structured")

    def __init__(
        self,
        content: Any = None,
        *,
        structured: Any = UNSET,
        is_error: bool = False,
        skipped: bool = False,
        insights: str | Iterable[str] = (),
        next_actions: NextActions = (),
        meta: Mapping[str, Json] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.content = content
        self.structured = structured
        self.is_error = is_error
        self.skipped = skipped
        self.meta = {SKIPPED: True, **(meta or {})} if skipped else meta
        self.metadata = metadata or {}
        self.insights = (insights,) if isinstance(insights, str) else tuple(insights)
        self.next_actions = read_actions(next_actions)

    def __repr__(self) -> str:
        return f"ToolResult({self.content!r}, is_error={self.is_error})"


def is_wrapped(output_schema: Mapping[str, Json]) -> bool:
    """Whether revisions before 2026-07-28, whose output schemas are objects, need this one in {"result": …}."""
    return output_schema.get("type") != "object"


class ResultWriter:
    """Converts the return values of one tool into a Done."""

    __slots__ = ("_dump", "_limit", "_name", "_schema", "_validator", "_wrapped", "_writers")

    def __init__(
        self,
        output_schema: Mapping[str, Json] | None = None,
        name: str = "the tool",
        *,
        limit: int = RESULT_BYTES,
        dump: Dump | None = None,
    ) -> None:
        self._dump = dump
        self._name = name
        self._limit = limit
        self._schema = output_schema
        self._validator = None if output_schema is None else Validator(output_schema, formats=RESULT_FORMATS)
        self._wrapped = output_schema is not None and is_wrapped(output_schema)
        self._writers = _writers(self, output_schema)

    def write(self, value: Any, id: RequestId | None = None) -> Done:  # noqa: A002  # the protocol's own word
        """The result of a call that returned `value`; `id` is the one that its message, if any, must have."""
        way = self._writers.get(type(value))
        if way is not None:
            return way(value)
        if isinstance(value, Content):
            return self._write_content([value])
        if isinstance(value, ToolResult):
            return self._write_result(value)
        if isinstance(value, JsonRpcMessage):
            return self._write_message(value, id)
        way = self._write_json if self._dump is not None or not is_pydantic_dataclass(value) else self._write_dataclass
        if len(self._writers) < _TYPES_KEPT:
            self._writers[type(value)] = way
        return way(value)

    def pass_on(self, result: dict[str, Json]) -> Done:
        """A result of the tool's server, with all its fields, if its structured content fits the declared schema."""
        structured = result.get("structuredContent", UNSET)
        wrapped = self._wrapped
        if self._validator is None:
            wrapped = structured is not UNSET and not isinstance(structured, dict)
        elif not result.get("isError"):
            if structured is UNSET:
                raise ResultProblem(
                    "structuredContent", f"{self._name} declares an output schema, and sent no structured content"
                )
            if not self._validator.is_valid(structured):
                raise self._misfit(structured)
        return Done(result, wrapped)

    def _write_nothing(self, _value: None) -> Done:
        return Done({"content": []})

    def _write_text(self, value: str) -> Done:
        self._check_text(value)
        return Done({"content": [{"type": "text", "text": value}]})

    def _write_number(self, value: float) -> Done:
        return Done({"content": [{"type": "text", "text": _written(value)}]})

    def _write_exact_text(self, value: str) -> Done:
        self._check_text(value)
        return self._declared(value, value)

    def _write_exact_number(self, value: float) -> Done:
        # As in `_declared`.
        content = [{"type": "text", "text": _written(value)}]
        return Done({"content": content, "structuredContent": value}, self._wrapped)

    def _write_exact_word(self, value: bool | None) -> Done:
        return self._declared(_WORDS[value], value)

    def _declared(self, text: str, structured: Json) -> Done:
        # The spec: such a tool "SHOULD also return the serialized JSON in a TextContent block".
        content = [{"type": "text", "text": text}]
        return Done({"content": content, "structuredContent": structured}, self._wrapped)

    def _write_json(self, value: Any) -> Done:
        try:
            if self._dump is not None:
                value = self._dump(value)
            data = encode(value)
        except ContentInside:
            if isinstance(value, list | tuple):
                return self._write_content(value)
            raise _unwritable(value) from None
        except UNWRITABLE as problem:
            raise _unwritable(value) from problem
        self._check_size(len(data))
        text = data.decode("utf-8")
        validator = self._validator
        if validator is None:
            check_numbers(value, text)
            shown = decode(data) if text[0] == '"' else text
            return Done({"content": [{"type": "text", "text": shown}]})
        plain = decode(data)
        check_numbers(value, text, plain)
        if not validator.is_valid(plain):
            raise self._misfit(plain)
        return self._declared(plain if type(plain) is str else text, plain)

    def _write_dataclass(self, value: Any) -> Done:
        return self._write_json(dump_dataclass(value))

    def _write_content(self, value: Any, structured: Any = UNSET) -> Done:
        return self._assemble({"content": self._blocks(value)}, structured)

    def _write_result(self, value: ToolResult) -> Done:
        structured = value.structured
        content = value.content
        if content is None and structured is not UNSET:
            content = structured
        result: dict[str, Json] = {"content": self._blocks(content)}
        if value.is_error:
            result["isError"] = True
        if value.meta:
            result["_meta"] = as_plain(dict(value.meta))
        done = self._assemble(result, structured)
        if value.insights or value.next_actions:
            written = done.result.value if isinstance(done.result, EncodedResult) else done.result
            done = Done(add_suggestions(written, value.insights, value.next_actions), done.wrapped)
        return Done(done.result, done.wrapped, value.metadata) if value.metadata else done

    def _write_message(self, message: JsonRpcMessage, id: RequestId | None) -> Done:  # noqa: A002  # as in tell
        answer = read_response(message, id)
        if not (isinstance(answer, Mapping) and _is_content(answer.get("content"))):
            return self.write(answer)
        plain = dict(as_object(as_plain(answer)))
        structured = plain.pop("structuredContent", UNSET)
        return self._assemble(plain, structured)

    def _assemble(self, result: dict[str, Json], structured: Any) -> Done:
        wrapped = self._wrapped
        if structured is not UNSET:
            plain = as_plain(structured)
            result["structuredContent"] = plain
            if self._validator is None:
                wrapped = not isinstance(plain, dict)
            elif not result.get("isError") and not self._validator.is_valid(plain):
                raise self._misfit(plain)
        elif (
            self._validator is not None and not result.get("isError") and SKIPPED not in as_object(result.get("_meta"))
        ):
            raise ResultProblem(
                "structuredContent",
                f"{self._name} declares an output schema, so its result must have structured content; return the value "
                "itself or ToolResult(…, structured=…)",
            )
        self._check_size(len(encode(result)))
        return Done(result, wrapped)

    def _blocks(self, content: Any) -> list[Block]:
        if content is None:
            return []
        if isinstance(content, list | tuple) and any(isinstance(item, Content) for item in content):
            return [_block_at(place, item) for place, item in enumerate(content)]
        return [_block(content)]

    def _check_text(self, text: str) -> None:
        if text.isascii():
            self._check_size(len(text))
            return
        try:
            self._check_size(len(text.encode("utf-8")))
        except UnicodeEncodeError as problem:
            raise _unwritable(text) from problem

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise ResultProblem("", f"has {size} bytes, the limit is {self._limit}; return a Link or less")

    def _misfit(self, plain: Json) -> ResultProblem:
        if self._validator is not None and self._validator.is_too_large(plain):
            return ResultProblem("", f"has too many values to be checked against the output schema of {self._name}")
        problems = list(self._validator.problems(plain)) if self._validator is not None else []
        errors = explain_problems(problems, self._schema or {})
        if not errors:
            return ResultProblem("", f"does not fit the output schema of {self._name}")
        first, *others = errors
        problem = first.message.removeprefix(f"{first.path or 'arguments'}: ")
        more = f" (and {len(others)} more)" if others else ""
        return ResultProblem(first.path, f"does not fit the output schema of {self._name}: {problem}{more}")


def _written(number: float) -> str:
    try:
        if number - number == 0:  # true of every number but NaN and the infinities
            # JSON has one kind of number: a whole one is easier to read without ".0".
            whole = number == (near := int(number)) and -_EXACT < near < _EXACT
            return str(near) if whole else encode(number).decode("ascii")
    except ValueError as problem:
        raise _unwritable(number) from problem
    raise _unwritable(number)


def _is_content(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, Mapping) and "type" in item for item in value)


def _block(item: Any) -> Block:
    if isinstance(item, Content):
        return dict(as_object(as_plain(item.to_block())))
    plain = as_plain(item)
    return text_block(plain if isinstance(plain, str) else encode(plain).decode("utf-8"))


def _block_at(place: int, item: Any) -> Block:
    try:
        return _block(item)
    except ResultProblem as problem:
        joint = "." if problem.path and problem.path[0] != "[" else ""
        raise ResultProblem(f"[{place}]{joint}{problem.path}", problem.message) from problem


def _unwritable(value: Any) -> ResultProblem:
    if isinstance(value, Awaitable):
        if isinstance(value, Coroutine):
            value.close()
        return UnawaitedResult("", f"the tool returned a {type(value).__name__}; did you forget `await`?")
    return find_problem(value) or ResultProblem("", f"a {type(value).__name__} cannot be written as JSON")


def _writers(writer: ResultWriter, schema: Mapping[str, Json] | None) -> dict[type, Callable[[Any], Done]]:
    """The conversions of values that depend on their type alone."""
    ways: dict[type, Callable[[Any], Done]] = dict.fromkeys(
        (dict, list, tuple, str, int, float, bool), writer._write_json
    )
    if schema is None:
        ways[type(None)] = writer._write_nothing
        ways[str] = writer._write_text
        ways[int] = ways[float] = writer._write_number
    elif set(schema) <= REMARKS | {"type"}:
        kinds = schema.get("type", ["number", "boolean", "string", "null"])
        sure: dict[str, dict[type, Callable[[Any], Done]]] = {
            "number": {float: writer._write_exact_number, int: writer._write_exact_number},
            "integer": {int: writer._write_exact_number},
            "boolean": {bool: writer._write_exact_word},
            "string": {str: writer._write_exact_text},
            "null": {type(None): writer._write_exact_word},
        }
        for kind in [kinds] if isinstance(kinds, str) else texts_in(kinds):
            ways.update(sure.get(kind, {}))
    return ways


def error_result(text: str, meta: Mapping[str, Json] | None = None) -> Done:
    """An error for the model. It cannot fail itself: text that cannot be encoded is fixed, such meta is left out."""
    readable = str(text)
    if not readable.isascii():
        readable = readable.encode("utf-8", "replace").decode("utf-8")
    content = [{"type": "text", "text": readable}]
    result: dict[str, Json] = {"content": content, "isError": True}
    if meta:
        try:
            result["_meta"] = as_plain(dict(meta))
        except ResultProblem as problem:
            _log.warning("the meta of an error result was left out: %s", problem)
    return Done(result)


def parse_error_result(text: str, errors: Iterable[Any], meta: Mapping[str, Json] | None = None) -> Done:
    """The rejection of arguments: sentences for the model, the same problems for programs in `_meta`."""
    return error_result(text, {**(meta or {}), PARSE_ERRORS: _listed(errors)})


def with_warnings(done: Done, warnings: Sequence[ParseWarning], notes: RepairNotes = "text") -> Done:
    """The same result with the repairs of the arguments: for the model as a block of its own, for programs in `_meta`."""
    if not warnings or notes == "off":
        return done
    listed = _listed(warnings)
    result = done.result.value if isinstance(done.result, EncodedResult) else done.result
    meta = as_object(result.get("_meta"))
    # A server behind us may have reported repairs, too, and again what was only passed on with a warning.
    earlier = as_list(meta.get(PARSE_WARNINGS))
    fresh = [place for place, note in enumerate(listed) if note not in earlier]
    warned: dict[str, Json] = {
        **result,
        "_meta": {**meta, PARSE_WARNINGS: [*(listed[place] for place in fresh), *earlier]},
    }
    if notes == "text" and fresh:
        lines = _repair_lines([warnings[place] for place in fresh])
        note = note_block("repairs", lines, beside_structured="structuredContent" in result)
        warned["content"] = [*as_list(result.get("content")), note]
    return Done(warned, done.wrapped, done.metadata)


def _repair_lines(warnings: Sequence[ParseWarning]) -> str:
    """A line for each repair, for the model. Of many repairs, the first show the pattern."""
    lines = [f"[repaired] {warning.message}" for warning in warnings[:_NOTED]]
    if len(warnings) > _NOTED:
        lines.append(f"[repaired] and {len(warnings) - _NOTED:,} more")
    return "\n".join(lines)


def _listed(notes: Iterable[Any]) -> list[Json]:
    # A large value would be sent back once for each problem in it.
    clipped = [{name: clip_value(value) for name, value in msgspec.structs.asdict(note).items()} for note in notes]
    listed: list[Json] = msgspec.to_builtins(clipped)
    return listed


class _WrittenBlock(Content):
    """A content block that an author wrote in the form of the protocol."""

    __slots__ = ("_block",)

    def __init__(self, block: Block) -> None:
        super().__init__(None, None)
        self._block = block

    def to_block(self) -> Block:
        return self._block


def unwrap_yielded(value: Any, id: RequestId | None) -> Sequence[Any]:  # noqa: A002  # the protocol's own word
    """What a value that a generator yielded adds to the list that is its result; a message adds what it answers with."""
    if not isinstance(value, JsonRpcMessage):
        return (value,)
    answer = read_response(value, id)
    if not (isinstance(answer, Mapping) and _is_content(answer.get("content"))):
        return (answer,)
    if answer.get("isError"):
        raise ToolError(joined_text(answer["content"]))
    if "structuredContent" in answer:
        return (answer["structuredContent"],)
    return [_WrittenBlock(dict(block)) for block in answer["content"]]


def read_response(message: JsonRpcMessage, id: RequestId | None) -> Any:  # noqa: A002  # the protocol's own word
    """The result in a message that an author returned for the request with this id; raises the error in it."""
    # A declared tool knows the id of its call as text, whatever its type was.
    if id is not None and message.id not in (id, str(id)):
        raise ResultProblem("id", f"the message answers request {message.id!r}, but the call was {id!r}")
    if message.error is not UNSET and message.error is not None:
        raise refusal_of(as_plain(message.error))
    if message.result is UNSET:
        raise ResultProblem("", "the message has neither a result nor an error; return ToolResponse.success")
    return message.result


def refusal_of(error: Json) -> Refusal:
    """The JSON-RPC error that an author returned in a message, to be raised."""
    given = as_object(error)
    code, message = given.get("code"), given.get("message")
    if type(code) is not int or not isinstance(message, str):
        raise ResultProblem("error", "an error needs an integer code and a text message")
    if code in _RESERVED:
        raise ResultProblem(
            "error.code", f"{code} is reserved by the specification; use a code outside -32768 to -32000"
        )
    return _refusal_class(code)(message, given.get("data"))


# "Implementations MUST NOT emit any code from this sub-range that is not defined", nor -32002 (Error Codes).
_RESERVED = frozenset({-32002, *range(-32099, -32022)})


@lru_cache(maxsize=256)
def _refusal_class(code: int) -> type[Refusal]:
    known = (ParseFailure, InvalidRequest, MethodNotFound, InvalidParams, InternalFailure)
    for refusal in known:
        if refusal.code == code:
            return refusal
    return type("AuthoredRefusal", (Refusal,), {"code": code})
