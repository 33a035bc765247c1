"""The questions a tool can ask, and their answers as values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, NoReturn, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from pegboard.asking.form import Form, form_of
from pegboard.call import Json, Question
from pegboard.errors import DeclarationError, MissingCapability
from pegboard.media import Content
from pegboard.protocol.content import joined_text, text_block
from pegboard.protocol.json_values import as_object, objects_in

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_BALANCE = "each tool use needs one result with its id, in the next message"


def check_sampling_messages(messages: Sequence[Json]) -> None:
    """Reject messages without a role or content, and tool uses and results that do not match."""
    used: set[Json] = set()
    for number, message in enumerate(messages):
        role, blocks = _parts(message, number)
        results = [block.get("toolUseId") for block in blocks if block.get("type") == "tool_result"]
        if results and (role != "user" or len(results) != len(blocks)):
            raise _problem(number, "tool results must be alone, in a user message")
        if len(set(results)) != len(results) or set(results) != used:
            raise _problem(number, _BALANCE)
        used = {block.get("id") for block in blocks if block.get("type") == "tool_use"}
        if used and role != "assistant":
            raise _problem(number, "only the assistant uses tools")
    if used:
        raise _problem(len(messages) - 1, _BALANCE)


def _parts(message: Json, number: int) -> tuple[str, Sequence[Mapping[str, Json]]]:
    given = as_object(message)
    role, content = given.get("role"), given.get("content")
    listed: Sequence[Json] = content if isinstance(content, list | tuple) else [content]
    blocks = [block for block in objects_in(listed) if "type" in block]
    if role not in ("user", "assistant") or len(blocks) != len(listed):
        raise _problem(number, 'expected text, content, or {"role": "user" or "assistant", "content": …}')
    return str(role), blocks


def _problem(number: int, rule: str) -> DeclarationError:
    return DeclarationError(f"sampling message {number + 1}: {rule}")


class InvalidAnswer(Exception):
    """An answer that does not fit its question; the text says why, `malformed` that it violates the protocol."""

    def __init__(self, why: str, *, malformed: bool = False) -> None:
        super().__init__(why)
        self.malformed = malformed


class _UserAnswer(Struct, frozen=True):
    """The user's answer. It has no truth value, so that `if answer:` never takes a declined form for consent."""

    def __bool__(self) -> NoReturn:
        raise TypeError("An answer has no truth value; check isinstance(answer, Accepted), then use answer.content")


class Accepted(_UserAnswer, Generic[T_co], frozen=True):
    """The user submitted the form; `content` is a value of the type that you asked for."""

    content: T_co = None  # type: ignore[assignment]  # `Accepted()` answers a URL, which has no content
    action: ClassVar[str] = "accept"


class Declined(_UserAnswer, frozen=True):
    """The user declined."""

    content: ClassVar[None] = None
    action: ClassVar[str] = "decline"


class Cancelled(_UserAnswer, frozen=True):
    """The user closed the form without choosing."""

    content: ClassVar[None] = None
    action: ClassVar[str] = "cancel"


Answer: TypeAlias = Accepted[T] | Declined | Cancelled


class Sampled(Struct, frozen=True):
    """The message of the client's model.

    content: the content blocks; `text` joins their texts.
    model: the model that wrote it.
    role: "assistant", as a rule.
    stop_reason: why the model stopped.
    """

    content: Sequence[Mapping[str, Json]]
    model: str = ""
    role: str = "assistant"
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return joined_text(self.content)


class Root(Struct, frozen=True):
    """A folder or other location that the client works in."""

    uri: str
    name: str | None = None


class Ask(Struct, frozen=True):
    """A question before it is asked: `Elicit`, `Sample` or `Roots`."""

    kind: ClassVar[str]

    @abstractmethod
    def _needs(self) -> Mapping[str, Mapping[str, Json]]:
        """The client capabilities that it requires."""

    @abstractmethod
    def _question(self) -> Question:
        """The question in wire format."""

    @abstractmethod
    def _read(self, answer: Json) -> Any:
        """The answer as a value; raises InvalidAnswer if it does not fit."""


class _Elicited(Struct):
    action: Literal["accept", "decline", "cancel"]
    content: Json = None


class Elicit(Ask, frozen=True):
    """A question to the user, for `ctx.ask`.

    message: the question.
    schema: what to ask for: a dataclass or model, a type such as bool, a Literal, or a flat JSON Schema.
    url: a page that the user shall open, in place of a form.
    """

    kind: ClassVar[str] = "elicit"
    message: str
    schema: Any = None
    url: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.message, str):
            raise DeclarationError(
                f"Elicit takes the text of the question first, then the schema; the text is {self.message!r:.80}"
            )
        if self.url is not None and self.schema is not None:
            raise DeclarationError("Elicit takes a schema for a form or a url to open, not both")
        if self.url is not None and not _is_url(self.url):
            raise DeclarationError(f"Elicit: {self.url[:200]!r} is not an absolute URL, such as https://…")

    def _form(self) -> Form:
        return form_of(self.schema)

    def _needs(self) -> Mapping[str, Mapping[str, Json]]:
        return {"elicitation": {"form" if self.url is None else "url": {}}}

    def _question(self) -> Question:
        if self.url is not None:
            return Question("elicitation/create", {"mode": "url", "message": self.message, "url": self.url})
        return Question(
            "elicitation/create", {"mode": "form", "message": self.message, "requestedSchema": self._form().schema}
        )

    def _read(self, answer: Json) -> Answer[Any]:
        elicited = _convert(answer, _Elicited, "the answer to an elicitation must be {action, content}")
        if elicited.action != "accept":
            return Declined() if elicited.action == "decline" else Cancelled()
        if self.url is not None:
            return Accepted()
        if elicited.content is not None and not isinstance(elicited.content, dict):
            raise InvalidAnswer("content must be an object", malformed=True)
        value, errors = self._form().read(elicited.content or {})
        if errors:
            raise InvalidAnswer("; ".join(error.message for error in errors))
        return Accepted(value)


SampleMessage: TypeAlias = str | Content | Mapping[str, Json]
SampleInput: TypeAlias = SampleMessage | Sequence[SampleMessage]


class _SampledMessage(Struct):
    role: str
    content: dict[str, Json] | list[dict[str, Json]]
    model: str = ""
    stop_reason: str | None = field(name="stopReason", default=None)


class Sample(Ask, frozen=True):
    """A request to the client's model, for `ctx.ask`.

    messages: a text, a content object, a message as in the protocol, or a list of these.
    max_tokens: the maximum length of the message.
    system: the system prompt.
    temperature: the sampling temperature.
    stop: texts that end the message.
    model: the preferred model, several in order of preference, or `modelPreferences` as in the protocol.
    tools: tools that the model may call, as in the protocol.
    tool_choice: how the model chooses among the tools, as in the protocol.
    metadata: additional fields for the client's provider.
    """

    kind: ClassVar[str] = "sample"
    messages: SampleInput
    max_tokens: int = 1000
    system: str | None = None
    temperature: float | None = None
    stop: Sequence[str] = ()
    model: str | Sequence[str] | Mapping[str, Json] | None = None
    tools: Sequence[Mapping[str, Json]] = ()
    tool_choice: Mapping[str, Json] | None = None
    metadata: Mapping[str, Json] | None = None

    def _needs(self) -> Mapping[str, Mapping[str, Json]]:
        return {"sampling": {"tools": {}} if self.tools or self.tool_choice else {}}

    def _question(self) -> Question:
        listed = [self.messages] if isinstance(self.messages, str | Content | Mapping) else self.messages
        messages = [_message(message) for message in listed]
        check_sampling_messages(messages)
        params: dict[str, Json] = {
            "messages": messages,
            "maxTokens": self.max_tokens,
            "systemPrompt": self.system,
            "temperature": self.temperature,
            "stopSequences": list(self.stop) or None,
            "modelPreferences": _preferences(self.model),
            "tools": list(self.tools) or None,
            "toolChoice": self.tool_choice,
            "metadata": self.metadata,
        }
        return Question("sampling/createMessage", {key: value for key, value in params.items() if value is not None})

    def _read(self, answer: Json) -> Sampled:
        reply = _convert(
            answer, _SampledMessage, "the answer to a sampling request must be a message {role, content, model}"
        )
        content = reply.content if isinstance(reply.content, list) else [reply.content]
        return Sampled(content, reply.model, reply.role, reply.stop_reason)


class _ListedRoots(Struct):
    roots: list[Root]


class Roots(Ask, frozen=True):
    """Ask which folders the client works in."""

    kind: ClassVar[str] = "roots"

    def _needs(self) -> Mapping[str, Mapping[str, Json]]:
        return {"roots": {}}

    def _question(self) -> Question:
        return Question("roots/list", {})

    def _read(self, answer: Json) -> list[Root]:
        listed: _ListedRoots = _convert(answer, _ListedRoots, "the answer to roots/list must be {roots: [{uri, name}]}")
        return listed.roots


def check_capabilities(what: str, needed: Mapping[str, Mapping[str, Json]], declared: Mapping[str, Json]) -> None:
    """Reject a client that has not declared the required capabilities."""
    lacking: dict[str, Mapping[str, Json]] = {}
    for name, parts in needed.items():
        missing = {
            part: value
            for part, value in parts.items()
            if name not in declared or not _has_part(name, part, declared[name])
        }
        if missing or name not in declared:
            lacking[name] = missing
    if lacking:
        listed = ", ".join(
            f"{name}.{part}" if part else name for name, parts in lacking.items() for part in parts or ("",)
        )
        raise MissingCapability(
            f"{what} needs a client with the capability {listed}, which this one did not declare; do not call it again",
            lacking,
        )


def _has_part(name: str, part: str, declared: Json) -> bool:
    # Elicitation without modes means forms.
    if name == "elicitation" and part == "form":
        return isinstance(declared, Mapping) and (part in declared or "url" not in declared)
    return isinstance(declared, Mapping) and part in declared


def _convert(answer: Json, kind: type[Any], expected: str) -> Any:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError:
        raise InvalidAnswer(expected, malformed=True) from None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc) and text.isascii() and text.isprintable() and " " not in text


def _message(message: Any) -> Json:
    if isinstance(message, str):
        return {"role": "user", "content": text_block(message)}
    if isinstance(message, Content):
        return {"role": "user", "content": message.to_block()}
    if isinstance(message, Mapping) and isinstance(message.get("content"), str):
        return {**message, "content": text_block(message["content"])}
    return message


def _preferences(model: str | Sequence[str] | Mapping[str, Json] | None) -> Json:
    if model is None or isinstance(model, Mapping):
        return model
    return {"hints": [{"name": name} for name in ([model] if isinstance(model, str) else model)]}
