"""Which tools are safe to run twice, by configuration or annotation.

Only these may promise: whoever configures a middleware, by naming the tool, or a gateway, by the annotations that it puts
over a tool's own; and the author of a tool that runs here, by its annotations. What a tool of another server says of itself is a hint for models and never enough for this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pegboard.call import Call
from pegboard.errors import DeclarationError


def promised_tools(tools: Collection[str] | None, *hints: str) -> Callable[[Call], bool]:
    """Whether a call's tool is one of those named; if None are, whether its author gave it one of these hints."""
    if isinstance(tools, str):
        raise DeclarationError(f"tools={tools!r}: give a list of names")
    if tools is not None:
        names = frozenset(tools)
        return lambda call: call.tool is not None and call.name in names

    def by_annotation(call: Call) -> bool:
        promises = {} if call.tool is None else call.tool.promises
        return any(promises.get(hint) is True for hint in hints)

    return by_annotation
