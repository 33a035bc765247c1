"""Adds insights and suggested next actions to the results of tools."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pegboard.call import Call, Done, EncodedResult, Handler, Reply
from pegboard.errors import DeclarationError
from pegboard.hooks.middleware import Middleware
from pegboard.next_action import NextAction, read_actions
from pegboard.tools.answer_suggestions import INSIGHTS, NEXT_ACTIONS, add_suggestions


class Suggestion(Struct, frozen=True):
    """What the model gets with the result of a tool.

    insights: sentences about results of this tool.
    next_actions: tools to call next: a name, a NextAction, or several of them.
    """

    insights: tuple[str, ...] = ()
    next_actions: str | NextAction | tuple[str | NextAction, ...] = ()


class Suggestions(Middleware):
    """Adds insights and next actions to successful results, by the names of their `tools`.

    A tool that returns its own, with `ToolResult(insights=, next_actions=)`, keeps them.
    """

    order = 90
    kinds = ("tool",)

    def __init__(self, tools: Mapping[str, Suggestion]) -> None:
        given: Mapping[str, object] = tools
        for name, suggestion in given.items():
            if not isinstance(suggestion, Suggestion):
                raise DeclarationError(f"{name}: use a Suggestion, got {suggestion!r:.80}")
        self._tools = {name: (shown.insights, read_actions(shown.next_actions)) for name, shown in tools.items()}

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Run the call, and add what its tool has no own of."""
        reply = await proceed(call)
        suggested = self._tools.get(call.name)
        if suggested is None or not isinstance(reply, Done):
            return reply
        result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
        meta = result.get("_meta")
        own = meta if isinstance(meta, Mapping) else {}
        if result.get("isError") or INSIGHTS in own or NEXT_ACTIONS in own:
            return reply
        return Done(add_suggestions(result, *suggested), reply.wrapped, reply.metadata)
