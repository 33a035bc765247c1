"""What every model API has in common: the tools, the messages, and the next turn of the model."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

Kind: TypeAlias = Literal["text", "image", "other"]


@dataclass(frozen=True)
class Part:
    """A part of a message as the model sees it: text, or the description of an image or of anything else."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class Message:
    """One message or item. A tool call and a tool result carry the id of the call."""

    role: Literal["system", "user", "call", "result", "assistant"]
    parts: tuple[Part, ...] = ()
    call: str | None = None
    is_error: bool | None = None


@dataclass(frozen=True)
class ListedTool:
    """A tool as the model is offered it."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)
    namespace: str | None = None


@dataclass(frozen=True)
class Conversation:
    """A request to a model API."""

    tools: tuple[ListedTool, ...]
    messages: tuple[Message, ...]
    stream: bool = False


@dataclass(frozen=True)
class Say:
    """The model answers with text, which ends its turn."""

    text: str


@dataclass(frozen=True)
class CallTool:
    """The model calls a tool."""

    id: str
    tool: ListedTool
    arguments: Mapping[str, Any]


Turn: TypeAlias = Say | CallTool


def id_of(turn: Turn) -> str:
    """An id for the response: agents take two messages with the same id for one."""
    return turn.id if isinstance(turn, CallTool) else secrets.token_hex(4)


@dataclass(frozen=True)
class Event:
    """An event of a streamed response; `data` is JSON, or text that is written as it is."""

    data: Mapping[str, Any] | str
    name: str | None = None


class ModelApi(Protocol):
    """A model API: how a request is read and how a turn of the model is written."""

    name: str

    def matches(self, path: str) -> bool:
        """Whether a POST to this path asks the model for a turn."""

    def read(self, path: str, body: Mapping[str, Any]) -> Conversation: ...

    def write(self, turn: Turn) -> Mapping[str, Any]:
        """The response in one piece."""

    def stream(self, turn: Turn) -> Sequence[Event]:
        """The same response as events."""

    def side_answer(self, path: str) -> Mapping[str, Any] | None:
        """The response to a request beside the conversation, such as one that counts tokens."""
