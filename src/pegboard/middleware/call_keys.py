"""The key that a limit counts calls under: tool, category, principal or client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias, TypeVar

from pegboard.call import Call
from pegboard.errors import DeclarationError

Part: TypeAlias = Literal["tool", "category", "principal", "client", "session"]
Key: TypeAlias = Part | Iterable[Part] | Callable[[Call], str]

T = TypeVar("T")

OTHERS = "(others)"


def tool_of(call: Call) -> str:
    """The tool's name, or the kind and name of another item; all unknown names share one.

    For a resource it is the URI or template under which it is registered, so that a caller cannot create accounts.
    """
    return call.tool.name if call.method == "tools/call" else f"{call.kind} {call.tool.name}"


def category_of(call: Call) -> str:
    return call.tool.category or ""


def client_of(call: Call) -> str:
    """The client's name, as the client states it: for accounting, not for security."""
    name = call.caller.client.get("name")
    return name[:128] if isinstance(name, str) else ""


_PARTS: dict[str, Callable[[Call], str]] = {
    "tool": tool_of,
    "category": category_of,
    "principal": lambda call: call.caller.principal.id,
    "client": client_of,
    "session": lambda call: call.caller.session,
}


def key_function(by: Key) -> Callable[[Call], str]:
    """Compile `by` into the function that returns the account of a call."""
    if callable(by):
        return by
    parts = (by,) if isinstance(by, str) else tuple(by)
    for part in parts:
        if part not in _PARTS:
            raise DeclarationError(f"by={part!r}: use {', '.join(map(repr, _PARTS))}, several of them, or a function")
    readers = [_PARTS[part] for part in parts]
    if len(readers) == 1:
        return readers[0]
    # The separator cannot occur in a tool's name, so two accounts never have the same key.
    return lambda call: "\x1f".join([read(call) for read in readers])


def describe_key(by: Key) -> str:
    """`by` as a short text, the same in every process."""
    if callable(by):
        return str(getattr(by, "__qualname__", type(by).__name__))
    return by if isinstance(by, str) else "+".join(by)


def resolve(call: Call, tools: Mapping[str, T], categories: Mapping[str, T], default: T) -> T:
    """The setting for a call: its tool's, else its category's, else the default."""
    if not call.known:
        return default
    if call.kind == "tool" and call.name in tools:
        return tools[call.name]
    return categories.get(call.tool.category, default)
