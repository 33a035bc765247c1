"""The script of a run: the model makes the calls of the cases, one after the other, and keeps what it was shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_bench.cases import IMAGE, Case
from agent_bench.model_server.conversation import CallTool, Conversation, ListedTool, Message, Part, Say, Turn
from agent_bench.self_repair import repair

DONE = "The script has ended."
# The meta-tool through which a gateway in `proxy` mode calls every other tool.
USE_TOOL = "workbench_use_tool"


@dataclass(frozen=True)
class Seen:
    """What the model saw of one case: the parts of the messages that followed its call."""

    parts: tuple[Part, ...] = ()
    is_error: bool | None = None
    obstacle: str | None = None
    """Why the call was not made or not answered."""

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if part.kind != "image")

    def shows(self, marker: str) -> bool:
        if marker == IMAGE:
            return any(part.kind == "image" for part in self.parts)
        # Many agents show JSON: a quotation mark or newline of ours arrives escaped.
        return any(form in self.text for form in (marker, json.dumps(marker)[1:-1]))


@dataclass
class Play:
    """Plays cases. It is asked for a turn with every request of the agent, also repeated and unrelated ones."""

    cases: Sequence[Case]
    seen: dict[str, Seen] = field(default_factory=dict)
    tools: tuple[ListedTool, ...] = ()
    _pending: tuple[Case, CallTool] | None = None
    _before: tuple[Part, ...] = ()
    _calls: int = 0

    @property
    def waiting(self) -> Case | None:
        """The case whose call the agent has not answered."""
        return self._pending[0] if self._pending else None

    def next_turn(self, conversation: Conversation) -> Turn:
        if not self.tools:
            # Agents ask for titles and summaries with other tools, or none.
            if not self.is_about_us(conversation):
                return Say("ok")
            self.tools = conversation.tools
        if self._pending is not None:
            case, call = self._pending
            if (fresh := _after(conversation.messages, call.id, self._before)) is None:
                return call if self.is_about_us(conversation) else Say("ok")
            self.seen[case.name] = _as_seen(fresh)
            self._pending = None
        return self._advance(conversation)

    def is_about_us(self, conversation: Conversation) -> bool:
        return any(_find(conversation.tools, case.tool) for case in self.cases) or bool(
            _find(conversation.tools, USE_TOOL)
        )

    def _advance(self, conversation: Conversation) -> Turn:
        for case in self.cases:
            if case.name in self.seen:
                continue
            if case.server is not None and _find(conversation.tools, USE_TOOL) is None:
                continue
            if (arguments := self._arguments(case)) is None:
                self.seen[case.name] = Seen(obstacle="the model was shown no message of ours to act on")
                continue
            if (call := self._call(conversation.tools, case, arguments)) is None:
                self.seen[case.name] = Seen(obstacle="the tool is not among the tools of the model")
                continue
            self._pending = (case, call)
            self._before = _shown(conversation.messages)
            return call
        return Say(DONE)

    def _arguments(self, case: Case) -> dict[str, Any] | None:
        if case.repairs is None:
            return dict(case.arguments)
        message = self.seen.get(case.repairs, Seen()).text
        return repair(case.arguments, message)

    def _call(self, tools: Sequence[ListedTool], case: Case, arguments: dict[str, Any]) -> CallTool | None:
        if (tool := _find(tools, case.tool)) is None:
            if (tool := _find(tools, USE_TOOL)) is None:
                return None
            arguments = {"tool_name": f"main__{case.server or 'bench'}__{case.tool}", "arguments": arguments}
        self._calls += 1
        return CallTool(f"call_{self._calls}", tool, arguments)


def _find(tools: Sequence[ListedTool], name: str) -> ListedTool | None:
    return next((tool for tool in tools if tool.name.endswith(name)), None)


def _after(messages: Sequence[Message], call: str, before: Sequence[Part]) -> list[Message] | None:
    """The messages after a call: by its id, or, where an agent writes calls as text, what is new."""
    for place, message in enumerate(messages):
        if message.role == "result" and message.call == call:
            return [one for one in messages[place:] if one.role in ("result", "user")]
    if any(message.role == "call" for message in messages):
        return None
    fresh = _new_parts(before, _shown(messages))
    return [Message("user", fresh)] if fresh else None


def _shown(messages: Sequence[Message]) -> tuple[Part, ...]:
    return tuple(part for message in messages if message.role in ("result", "user") for part in message.parts)


def _new_parts(before: Sequence[Part], now: Sequence[Part]) -> tuple[Part, ...]:
    """The parts that were added; smolagents appends to the last one."""
    same = 0
    while same < min(len(before), len(now)) and before[same] == now[same]:
        same += 1
    fresh = list(now[same:])
    if fresh and same < len(before) and fresh[0].text.startswith(before[same].text):
        fresh[0] = Part(fresh[0].kind, fresh[0].text[len(before[same].text) :].lstrip("\n"))
    return tuple(fresh)


def _as_seen(messages: Sequence[Message]) -> Seen:
    error = next((message.is_error for message in messages if message.is_error is not None), None)
    return Seen(tuple(part for message in messages for part in message.parts), error)
