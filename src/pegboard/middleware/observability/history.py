"""Keeps the latest calls in memory, so that people can look at them.

Theory of operation. While no one looks, a call costs one small object in a ring: its arguments stay the JSON text that
arrived, its result the object that was sent. Records are masked, encoded and counted when they are read. The ring is
bounded by the number of calls and by the memory that they hold; of a large argument or result only the beginning is
kept.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter, time
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from pegboard.argument_problems import ParseWarning
from pegboard.call import Call, Caller, Json
from pegboard.errors import PegboardError
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.observability.masking import mask, mask_text
from pegboard.middleware.observability.token_count import estimate_tokens
from pegboard.protocol.json_values import objects_in

Outcome: TypeAlias = Literal["ok", "error", "asked", "task", "cancelled"]

MAX_CALLS: Final = 2000
MAX_BYTES: Final = 32 * 2**20
_KEPT_BYTES: Final = 64 * 1024
"""The size above which only the beginning of an argument object or result is kept."""
_SHOWN_ERROR: Final = 500


class KeptCall(Struct, gc=False, frozen=True):
    """One call; the fields are those of the tuples in the ring."""

    number: int
    ended: float
    elapsed_ms: float
    method: str
    name: str
    toolbox: str
    server: str
    caller: Caller
    raw: Raw
    ran: bytes | None
    warnings: tuple[ParseWarning, ...]
    result: Mapping[str, Json] | None
    failed: bool
    problem: str
    cancelled: bool
    before_ms: float | None
    tool_ms: float | None
    weight: int

    @property
    def started(self) -> float:
        return self.ended - self.elapsed_ms / 1000

    @property
    def outcome(self) -> Outcome:
        if self.result is None:
            return "cancelled" if self.cancelled else "error"
        if self.failed:
            return "error"
        match self.result.get("resultType"):
            case "input_required":
                return "asked"
            case "task":
                return "task"
        return "ok"

    def summary(self) -> dict[str, Json]:
        """What a list shows of it."""
        return {
            "number": self.number,
            "at": round(self.started, 4),
            "ms": round(self.elapsed_ms, 3),
            "method": self.method,
            "name": self.name,
            "lane": f"{self.toolbox}/{self.server}" if self.server else self.toolbox,
            "outcome": self.outcome,
            "repairs": len(self.warnings),
            "client": str(self.caller.client.get("name", ""))[:80],
            "principal": self.caller.principal.id,
        }

    def details(self) -> dict[str, Json]:
        """Everything that is known of it, with secrets masked."""
        result = None if self.result is None else mask(msgspec.to_builtins(self.result))
        sent, ran = _masked_json(bytes(self.raw)), None if self.ran is None else _masked_json(self.ran)
        return {
            **self.summary(),
            "version": self.caller.version,
            "transport": self.caller.transport,
            "problem": mask_text(self.problem),
            "sent": sent,
            "ran": ran,
            "warnings": [
                {**msgspec.to_builtins(warning), "got": mask(warning.got), "became": mask(warning.became)}
                for warning in self.warnings
            ],
            "result": result,
            "tokens_in": estimate_tokens(bytes(self.raw).decode("utf-8", "replace")),
            "tokens_out": 0 if result is None else sum(map(estimate_tokens, _texts(result))),
            "before_ms": None if self.before_ms is None else round(self.before_ms, 3),
            "tool_ms": None if self.tool_ms is None else round(self.tool_ms, 3),
        }


class History(Middleware):
    """Keeps the latest calls of a board or gateway; the console shows them.

    calls: how many calls are kept.
    max_bytes: how much memory they may hold together.
    """

    order = -math.inf

    def __init__(self, calls: int = MAX_CALLS, max_bytes: int = MAX_BYTES) -> None:
        self._max_calls = calls
        self._max_bytes = max_bytes
        self._kept: deque[tuple[Any, ...]] = deque()
        self._held = 0
        self._number = 0
        self._listeners: list[Callable[[], None]] = []
        self.inner = ToolTime()

    @property
    def last(self) -> int:
        """The number of the latest call."""
        return self._number

    # Plain functions: they run with every call.

    def after(self, call: Call, result: Mapping[str, Json], elapsed_ms: float) -> None:  # type: ignore[override]  # hooks may be plain functions
        self._keep(call, result, "", False, elapsed_ms)

    def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:  # type: ignore[override]  # hooks may be plain functions
        problem = str(exception) if isinstance(exception, PegboardError) else type(exception).__name__
        cancelled = not isinstance(exception, Exception)
        self._keep(call, None, problem[:_SHOWN_ERROR], cancelled, elapsed_ms)

    def __iter__(self) -> Iterator[KeptCall]:
        """The kept calls, the oldest first."""
        return (KeptCall(*kept) for kept in tuple(self._kept))

    def since(self, number: int) -> list[KeptCall]:
        """The calls after this one, the oldest first."""
        newer: list[KeptCall] = []
        for kept in reversed(self._kept):
            if kept[0] <= number:
                break
            newer.append(KeptCall(*kept))
        return newer[::-1]

    def find(self, number: int) -> KeptCall | None:
        """The call with this number, if it is still kept."""
        first: int = self._kept[0][0] if self._kept else 0
        return KeptCall(*self._kept[number - first]) if self._kept and first <= number <= self._number else None

    def watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call back after each call; returns a function that ends this."""
        self._listeners.append(listener)
        self.inner.enabled = True

        def leave() -> None:
            self._listeners.remove(listener)
            self.inner.enabled = bool(self._listeners)

        return leave

    def _keep(
        self, call: Call, result: Mapping[str, Json] | None, problem: str, cancelled: bool, elapsed_ms: float
    ) -> None:
        self._number += 1
        raw = call.raw
        weight = 500 + len(raw)
        if len(raw) > _KEPT_BYTES:
            raw, weight = Raw(_beginning(bytes(raw))), _KEPT_BYTES
        if result is not None:
            size = _size(result)
            if size > _KEPT_BYTES:
                result, size = _shortened(result, size), _KEPT_BYTES
            weight += size
        parsed = call.parsed
        repaired = parsed if parsed is not None and parsed.warnings else None
        state, tool = call._state, call.tool
        before_ms = tool_ms = None
        if state is not None and (span := state.get(_SPAN)) is not None:
            before_ms = max(0.0, elapsed_ms - (perf_counter() - span[0]) * 1000)
            tool_ms = (span[1] - span[0]) * 1000
        # A tuple: most calls are never looked at, and a KeptCall takes five times as long to make.
        self._kept.append(
            (
                self._number,
                time(),
                elapsed_ms,
                call.method,
                call.name,
                tool.toolbox,
                tool.server,
                call.caller,
                raw,
                None if repaired is None else _encoded(repaired.arguments),
                () if repaired is None else tuple(repaired.warnings),
                result,
                call.failed,
                problem,
                cancelled,
                before_ms,
                tool_ms,
                weight,
            )
        )
        self._held += weight
        if len(self._kept) > self._max_calls or self._held > self._max_bytes:
            self._trim()
        for listener in self._listeners:
            listener()

    def _trim(self) -> None:
        kept = self._kept
        while len(kept) > self._max_calls or (self._held > self._max_bytes and len(kept) > 1):
            self._held -= kept.popleft()[-1]


_SPAN: Final = "dev.pegboard/tool-time"


class ToolTime(Middleware):
    """Measures how long the tool itself takes, inside all other middleware; on while someone looks."""

    order = math.inf
    enabled = False

    async def around(self, call: Call, next: Any) -> Any:  # noqa: A002 — the name that middleware authors use
        began = perf_counter()
        try:
            return await next(call)
        finally:
            call.state[_SPAN] = began, perf_counter()


def _size(result: Mapping[str, Json]) -> int:
    """About how many bytes a result holds: the length of its texts."""
    blocks = result.get("content") or result.get("contents")
    size = 0
    if type(blocks) is list:
        for block in blocks:
            if type(block) is dict:
                text = block.get("text") or block.get("data") or block.get("blob")
                size += len(text) if type(text) is str else 200
    return size


def _shortened(result: Mapping[str, Json], size: int) -> Mapping[str, Json]:
    text = next(_texts(result), "")[: _KEPT_BYTES // 4]
    return {
        "content": [{"type": "text", "text": text}],
        "isError": bool(result.get("isError")),
        "shortened": f"The result has about {size:,} characters; the beginning is kept.",
    }


def _texts(result: Mapping[str, Json]) -> Iterator[str]:
    for block in objects_in(result.get("content") or result.get("contents")):
        text = block.get("text")
        if isinstance(text, str):
            yield text


def _beginning(raw: bytes) -> bytes:
    shown = raw[: _KEPT_BYTES // 4].decode("utf-8", "replace")
    return msgspec.json.encode({"shortened": f"{len(raw):,} bytes of arguments; they begin with", "text": shown})


def _encoded(arguments: Mapping[str, Any]) -> bytes | None:
    try:
        encoded = msgspec.json.encode(arguments, enc_hook=str)
    except (TypeError, ValueError, RecursionError):
        return None
    return encoded if len(encoded) <= _KEPT_BYTES else _beginning(encoded)


def _masked_json(text: bytes) -> Json:
    try:
        return mask(msgspec.json.decode(Raw(text)))
    except msgspec.DecodeError:
        return mask_text(text.decode("utf-8", "replace"))
