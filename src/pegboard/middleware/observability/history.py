"""Keeps the latest calls in memory, so that people can look at them.

Theory of operation. While no one looks, a call costs one tuple in a ring, and one JSON text of its arguments and its result.
Calls are decoded, masked and counted when they are read. The ring is bounded by the number
of calls and by the memory that they hold; of large arguments and results only the beginning is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice
from time import time
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from pegboard.argument_problems import ParseWarning
from pegboard.call import Call, Caller, Done, Json
from pegboard.call_target import CalledTool
from pegboard.hooks.middleware import Middleware
from pegboard.hooks.observation import Failure, Observation
from pegboard.middleware.observability.masking import mask, mask_text
from pegboard.middleware.observability.token_count import estimate_tokens
from pegboard.protocol.json_values import objects_in

MAX_CALLS: Final = 2000
MAX_BYTES: Final = 32 * 2**20
_SMALL_BYTES: Final = 4 * 1024
"""The size of arguments and result up to which a call is small."""
_KEPT_BYTES: Final = 64 * 1024
"""The size of a call above which only the beginning of its arguments and its result is kept."""
_SHOWN_ERROR: Final = 500
_REPAIRS: Final = 50
"""The repairs of one call that are kept."""
_LONG: Final = " " * (_KEPT_BYTES + 1)
"""In place of the text of a block that has none."""

_encode = msgspec.json.Encoder(enc_hook=str).encode
_decode = msgspec.json.Decoder(tuple[Raw, dict[str, Any] | None]).decode


class CallExtras(Struct, frozen=True):
    """What only some calls have: a failure, repairs, middleware around the tool, a trace.

    ran: the arguments that the tool got, as JSON text, if they were repaired.
    before_ms, tool_ms: the time until the tool was reached, and the time that it took.
    """

    failure: Failure | None = None
    ran: bytes | None = None
    warnings: tuple[ParseWarning, ...] = ()
    before_ms: float | None = None
    tool_ms: float | None = None
    trace_id: str = ""
    log_id: str = ""


_NO_EXTRAS: Final = CallExtras()


class KeptCall(Struct):
    """One call, and its number among all calls; the other fields are those of the tuples in the ring.

    ended: when it ended, in seconds since 1970.
    content: its arguments as they were sent, and its result or null, as a JSON array.
    """

    number: int
    ended: float
    seconds: float
    method: str
    name: str
    tool: CalledTool
    caller: Caller
    content: bytes
    extras: CallExtras

    @property
    def sent(self) -> Raw:
        """The arguments."""
        return _decode(self.content)[0]

    @property
    def result(self) -> dict[str, Any] | None:
        """The result; None if the call raised."""
        return _decode(self.content)[1]

    @property
    def outcome(self) -> str:
        if self.extras.failure is not None:
            return "cancelled" if self.extras.failure.outcome == "cancelled" else "error"
        result = self.result or {}
        if result.get("isError"):
            return "error"
        return {"input_required": "asked", "task": "task"}.get(str(result.get("resultType")), "ok")

    def summary(self) -> dict[str, Json]:
        """What a list shows of it."""
        tool = self.tool
        return {
            "number": self.number,
            "at": round(self.ended - self.seconds, 4),
            "ms": round(self.seconds * 1000, 3),
            "method": self.method,
            "name": self.name,
            "lane": f"{tool.toolbox}/{tool.server}" if tool.server else tool.toolbox,
            "outcome": self.outcome,
            "repairs": len(self.extras.warnings),
            "client": str(self.caller.client.get("name", ""))[:80],
            "principal": self.caller.principal.id,
            "version": self.caller.version,
            "transport": self.caller.transport,
            "tool_ms": None if self.extras.tool_ms is None else round(self.extras.tool_ms, 3),
        }

    def details(self) -> dict[str, Json]:
        """Everything that is known of it, with secrets masked."""
        extras, failure, sent = self.extras, self.extras.failure, bytes(self.sent)
        result = None if self.result is None else mask(self.result)
        problem = "" if failure is None else failure.message or failure.name
        return {
            **self.summary(),
            "problem": mask_text(problem[:_SHOWN_ERROR]),
            "sent": _masked_json(sent),
            "ran": None if extras.ran is None else _masked_json(extras.ran),
            "warnings": [
                {**msgspec.to_builtins(warning), "got": mask(warning.got), "became": mask(warning.became)}
                for warning in extras.warnings
            ],
            "result": result,
            "tokens_in": estimate_tokens(sent.decode("utf-8", "replace")),
            "tokens_out": 0 if result is None else sum(map(estimate_tokens, _texts(result))),
            "before_ms": None if extras.before_ms is None else round(extras.before_ms, 3),
            "trace_id": extras.trace_id,
            "log_id": extras.log_id,
        }


class CallRing:
    """The latest calls, within bounds.

    A small call counts only as one; the bytes of large ones are counted, and the oldest of them are shortened first. An
    object of its own, since setting an attribute of a Middleware is slow.
    """

    __slots__ = ("_append", "_count", "_held", "_kept", "_large", "_listeners", "_max_bytes", "_max_calls", "last")

    def __init__(self, calls: int, max_bytes: int) -> None:
        self._max_calls = calls
        self._max_bytes = max_bytes
        self._kept: deque[tuple[Any, ...]] = deque(maxlen=calls)
        self._append = self._kept.append
        # The numbers and sizes of the large ones.
        self._large: deque[tuple[int, int]] = deque()
        self._held = 0
        self._listeners: list[Callable[[], None]] = []
        self._count = count(1).__next__
        self.last = 0

    def add(self, call: Call, seen: Observation) -> None:
        """Keep a call in place of the oldest one."""
        self.last = self._count()
        parsed = call.parsed
        reply = seen.reply
        result: Any
        extras = _NO_EXTRAS
        if (
            type(reply) is not Done
            or type(result := reply.result) is not dict
            or len(blocks := result.get("content", ())) != 1
            or len(blocks[0].get("text", _LONG)) > _KEPT_BYTES
            or call._notes is not None
            or (parsed is not None and parsed.warnings)
        ):
            result, extras = _prepare(seen.result), _read_extras(call, seen)
        # One text in place of the arguments and the result, which are a dozen objects: keeping those would slow down the
        # next calls, whose objects would be at other places in memory.
        content = _encode((call.raw, result))
        if len(content) > _SMALL_BYTES:
            content = self._make_room(content)
        # A tuple: most calls are never looked at, and a KeptCall takes longer to make.
        self._append((time(), seen.ended - seen.began, call.method, call.name, call.tool, call.caller, content, extras))
        if self._listeners:
            for listener in self._listeners:
                listener()

    def _make_room(self, content: bytes) -> bytes:
        """What is kept of a large call; the oldest large ones are shortened if all of them hold too much."""
        if len(content) > _KEPT_BYTES:
            content = _shorten_content(content, _KEPT_BYTES // 4)
        self._large.append((self.last, len(content)))
        self._held += len(content)
        oldest = self.last - self._max_calls + 1
        while self._large[0][0] < oldest or (self._held > self._max_bytes and len(self._large) > 1):
            number, size = self._large.popleft()
            self._held -= size
            if number >= oldest:
                # The last one is not in the ring yet.
                *start, old, extras = self._kept[number - self.last]
                self._kept[number - self.last] = (*start, _shorten_content(old, _SMALL_BYTES // 4), extras)
        return content

    def since(self, number: int) -> list[KeptCall]:
        """The calls after this one, the oldest first."""
        newer = min(max(0, self.last - number), len(self._kept))
        chosen = islice(self._kept, len(self._kept) - newer, None)
        return [KeptCall(at, *kept) for at, kept in enumerate(chosen, self.last - newer + 1)]

    def watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call back after each call; returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


class History(Middleware):
    """Keeps the latest calls of a board or gateway; the console shows them.

    calls: how many calls are kept.
    max_bytes: how much memory the large ones may hold together; a small one holds at most 4 KiB.
    """

    def __init__(self, calls: int = MAX_CALLS, max_bytes: int = MAX_BYTES) -> None:
        self._ring = CallRing(calls, max_bytes)
        self.observe = self._ring.add  # type: ignore[method-assign]  # saves a call of a call
        self.since = self._ring.since
        self.watch = self._ring.watch

    @property
    def last(self) -> int:
        """The number of the latest call."""
        return self._ring.last

    def __iter__(self) -> Iterator[KeptCall]:
        """The kept calls, the oldest first."""
        return iter(self.since(0))

    def find(self, number: int) -> KeptCall | None:
        """The call with this number, if it is still kept."""
        found = self.since(number - 1)
        return found[0] if found and found[0].number == number else None


def _read_extras(call: Call, seen: Observation) -> CallExtras:
    notes = call.notes
    before = tool = ran = None
    if notes.inside is not None:
        before, tool = (notes.inside[0] - seen.began) * 1000, (notes.inside[1] - notes.inside[0]) * 1000
    if call.parsed is not None and call.warnings:
        try:
            ran = _encode(call.parsed.arguments)
        except (TypeError, ValueError, RecursionError):
            ran = None
    warnings = call.warnings[:_REPAIRS]
    if len(call.raw) > _SMALL_BYTES:
        ran = None if ran is None else _beginning(ran, _SMALL_BYTES)
        warnings = [replace(warning, got=None, became=None) for warning in warnings]
    return CallExtras(seen.failure, ran, tuple(warnings), before, tool, notes.trace_id, notes.log_id)


def _prepare(result: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """The result, or the beginning of one that it would take long to encode."""
    long = result is not None and sum(map(len, _texts(result))) > _KEPT_BYTES
    return _shorten(result, _KEPT_BYTES // 4) if result is not None and long else result


def _shorten_content(content: bytes, length: int) -> bytes:
    """The beginning of arguments and of a result."""
    raw, result = _decode(content)
    if len(raw) > length:
        raw = Raw(_beginning(bytes(raw), length))
    if result is not None and len(content) > length:
        result = _shorten(result, length)
    return _encode((raw, result))


def _shorten(result: Mapping[str, Json], length: int) -> dict[str, Json]:
    size = sum(map(len, _texts(result)))
    return {
        "content": [{"type": "text", "text": next(_texts(result), "")[:length]}],
        "isError": bool(result.get("isError")),
        "shortened": f"The result has about {size:,} characters; the beginning is kept.",
    }


def _beginning(encoded: bytes, length: int) -> bytes:
    shown = encoded[:length].decode("utf-8", "replace")
    return _encode({"shortened": f"{len(encoded):,} bytes of arguments; they begin with", "text": shown})


def _texts(result: Mapping[str, Json]) -> Iterator[str]:
    for block in objects_in(result.get("content") or result.get("contents")):
        text = block.get("text") or block.get("data") or block.get("blob")
        if isinstance(text, str):
            yield text


def _masked_json(text: bytes) -> Json:
    try:
        return mask(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return mask_text(text.decode("utf-8", "replace"))
