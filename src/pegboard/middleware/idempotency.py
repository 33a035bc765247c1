"""Which tools are safe to run twice, by configuration or annotation.

Three parties can declare this: the configuration of a middleware, by naming the tool; a gateway, by annotations that
override the tool's own; and the author of a local tool, by its annotations. The annotations of another server's tool
are hints for models and not sufficient.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pegboard.call import Call
from pegboard.errors import DeclarationError


def promised_tools(tools: Collection[str] | None, *hints: str) -> Callable[[Call], bool]:
    """Whether the tool of a call is one of those named; without names, whether it has one of these hints."""
    if isinstance(tools, str):
        raise DeclarationError(f"tools={tools!r}: pass a list of names")
    if tools is not None:
        names = frozenset(tools)
        return lambda call: call.known and call.name in names

    def by_annotation(call: Call) -> bool:
        promises = call.tool.promises
        return any(promises.get(hint) is True for hint in hints)

    return by_annotation
