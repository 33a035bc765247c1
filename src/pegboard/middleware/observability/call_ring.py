"""The latest calls of this process, which wait until someone looks at them or they are stored.

Theory of operation. While no one looks, a call costs one tuple in a ring, and one JSON text of its arguments and its result.
Calls are decoded, masked and counted when they are taken out. The ring is bounded by the number
of calls and by the memory that they hold; of large arguments and results only the beginning is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from time import time
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from pegboard.argument_problems import ParseWarning
from pegboard.call import Call, Caller, Done, Json
from pegboard.call_target import CalledTool
from pegboard.errors import REFUSED
from pegboard.hooks.observation import Failure, Observation
from pegboard.middleware.observability.call_feed import StoredCall
from pegboard.middleware.observability.call_masking import CallMasking, Secrets, ToolMasking
from pegboard.middleware.observability.masking import MASK, mask_text
from pegboard.middleware.observability.token_count import estimate_tokens
from pegboard.protocol.json_values import as_list, as_object, objects_in

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
    before_ms, tool_ms: the time until the tool was reached, and the time that it, or the server behind a gateway, took.
    facts: what parts of the server noted about it.
    """

    failure: Failure | None = None
    ran: bytes | None = None
    warnings: tuple[ParseWarning, ...] = ()
    before_ms: float | None = None
    tool_ms: float | None = None
    trace_id: str = ""
    log_id: str = ""
    facts: Mapping[str, Json] = {}


_NO_EXTRAS: Final = CallExtras()


class KeptCall(Struct):
    """One call; the fields are those of the tuples in the ring.

    ended: when it ended, in seconds since 1970.
    content: its arguments as they were sent, and its result or null, as a JSON array.
    """

    ended: float
    seconds: float
    method: str
    name: str
    tool: CalledTool
    caller: Caller
    rule: str
    content: bytes
    extras: CallExtras

    def mask(self, masking: CallMasking) -> StoredCall:
        """What the history stores of it: its secrets are masked."""
        raw, result = _decode(self.content)
        extras, tool, mask = self.extras, self.tool, masking.of(self.tool)
        sent: Json
        shown: Json = result
        try:
            sent = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            sent = bytes(raw).decode("utf-8", "replace")
        if mask.is_plain(sent) and mask.is_plain(_flatten(result)):
            secrets = Secrets()
        else:
            sent, secrets = mask.arguments(sent)
            shown = None if result is None else mask.value(result, secrets)
        failure = extras.failure
        problem = "" if failure is None else (failure.message or failure.name)[:_SHOWN_ERROR]
        details: dict[str, Json] = {
            "problem": secrets.hide(mask_text(problem)),
            "sent": sent,
            "ran": None if extras.ran is None else mask.value(msgspec.json.decode(extras.ran), secrets),
            "warnings": [_mask_warning(warning, mask, secrets) for warning in extras.warnings],
            "result": shown,
            "tokens_in": estimate_tokens(bytes(raw).decode("utf-8", "replace")),
            "tokens_out": 0 if result is None else sum(map(estimate_tokens, _texts(result))),
            "before_ms": None if extras.before_ms is None else round(extras.before_ms, 3),
            "trace_id": extras.trace_id,
            "log_id": extras.log_id,
            "rule": self.rule,
            **masking.facts(extras.facts),
        }
        return StoredCall(
            at=round(self.ended - self.seconds, 4),
            ms=round(self.seconds * 1000, 3),
            method=self.method,
            name=self.name,
            lane=f"{tool.toolbox}/{tool.server}" if tool.server else tool.toolbox,
            outcome=self._outcome(result),
            repairs=len(extras.warnings),
            client=str(self.caller.client.get("name", ""))[:80],
            principal=self.caller.principal.id,
            version=self.caller.version,
            transport=self.caller.transport,
            tool_ms=None if extras.tool_ms is None else round(extras.tool_ms, 3),
            details=Raw(_encode(details)),
        )

    def _outcome(self, result: Mapping[str, Json] | None) -> str:
        if self.extras.failure is not None:
            return {"error": "failed"}.get(self.extras.failure.outcome, self.extras.failure.outcome)
        result = result or {}
        if result.get("isError"):
            return "refused" if REFUSED in as_object(result.get("_meta")) else "failed"
        return {"input_required": "asked", "task": "task"}.get(str(result.get("resultType")), "ok")


def _mask_warning(warning: ParseWarning, mask: ToolMasking, secrets: Secrets) -> dict[str, Json]:
    """A repair, without the value of a secret argument."""
    shown: dict[str, Json] = msgspec.to_builtins(warning)
    leaf = warning.path.replace("[", ".").split(".")[-1]
    for side in ("got", "became"):
        shown[side] = as_object(mask.value({leaf: shown.get(side)}, secrets)).get(leaf)
    if MASK in (shown["got"], shown["became"]):
        shown["message"] = f"{warning.path}: {warning.code}"
    else:
        shown["message"] = secrets.hide(mask_text(warning.message))
    return shown


class CallRing:
    """The latest calls, within bounds.

    A small call counts only as one; the bytes of large ones are counted, and the oldest of them are shortened first. An
    object of its own, since setting an attribute of a Middleware is slow.
    """

    __slots__ = (
        "_append",
        "_count",
        "_held",
        "_kept",
        "_large",
        "_listeners",
        "_max_bytes",
        "_max_calls",
        "_taken",
        "last",
    )

    def __init__(self, calls: int, max_bytes: int) -> None:
        self._max_calls = calls
        self._max_bytes = max_bytes
        self._kept: deque[tuple[Any, ...]] = deque(maxlen=calls)
        self._append = self._kept.append
        # The numbers and sizes of the large ones.
        self._large: deque[tuple[int, int]] = deque()
        self._held = 0
        self._listeners: list[Callable[[], object]] = []
        self._count = count(1).__next__
        self.last = self._taken = 0

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
            or call._inside is not None
            or (parsed is not None and parsed.warnings)
        ):
            result, extras = _prepare(seen.result), _read_extras(call, seen)
        elif call._downstream_ms:
            extras = CallExtras(tool_ms=call._downstream_ms)
        # One text in place of the arguments and the result, which are a dozen objects: keeping those would slow down the
        # next calls, whose objects would be at other places in memory.
        content = _encode((call.raw, result))
        if len(content) > _SMALL_BYTES:
            content = self._make_room(content)
        # A tuple: most calls are never looked at, and a KeptCall takes longer to make.
        self._append(
            (
                time(),
                seen.ended - seen.began,
                call.method,
                call.name,
                call.tool,
                call.caller,
                call.rule,
                content,
                extras,
            )
        )
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

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, limit: int) -> tuple[list[KeptCall], int]:
        """Take the calls out of the ring, the oldest first; and how many are lost, since only the newest `limit` are."""
        taken = [KeptCall(*kept) for kept in self._kept][-limit:]
        lost = self.last - self._taken - len(taken)
        self._kept.clear()
        self._large.clear()
        self._held, self._taken = 0, self.last
        return taken, lost

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call back after each call; returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


def _read_extras(call: Call, seen: Observation) -> CallExtras:
    notes = call.notes
    before = tool = ran = None
    if (inside := call._inside) is not None:
        before, tool = (inside[0] - seen.began) * 1000, (inside[1] - inside[0]) * 1000
    if call._downstream_ms:
        # Behind a gateway, the server is what takes the time that is not ours.
        tool = call._downstream_ms
    # The text of an unexpected exception is for the log alone.
    failure = None if seen.failure is None else replace(seen.failure, text="")
    if call.parsed is not None and call.warnings:
        try:
            ran = _encode(call.parsed.arguments)
        except (TypeError, ValueError, RecursionError):
            ran = None
    warnings = call.warnings[:_REPAIRS]
    if len(call.raw) > _SMALL_BYTES:
        ran = None if ran is None else _beginning(ran, _SMALL_BYTES)
        warnings = [replace(warning, got=None, became=None) for warning in warnings]
    return CallExtras(failure, ran, tuple(warnings), before, tool, notes.trace_id, notes.log_id, notes.facts)


def _prepare(result: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """The result, or the beginning of one that it would take long to encode."""
    long = result is not None and sum(map(len, _texts(result))) > _KEPT_BYTES
    return _shorten(result, _KEPT_BYTES // 4) if result is not None and long else result


def _flatten(result: Mapping[str, Json] | None) -> dict[str, Json] | None:
    """The members of a result and of its only block in one object; None if it has another form."""
    blocks = as_list((result or {}).get("content"))
    if result is None or len(blocks) != 1:
        return None
    block = as_object(blocks[0])
    flat = {**result, **block, "content": None}
    # A name that occurs twice would hide one of its values.
    return flat if block and len(flat) == len(result) + len(block) else None


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
