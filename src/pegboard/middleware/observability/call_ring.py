"""The latest calls of this process, which wait until someone looks at them or they are stored.

Theory of operation. While no one looks, a call costs one tuple in a ring. It refers to the JSON text of the arguments, which
was received, and of the result, which is sent: the result is encoded here, and the codec of the response uses that text.
Calls are decoded, masked and counted when they are taken out. The ring is bounded by the number of calls and by the memory
that they hold: small ones count as one each, and of large arguments and results only the beginning is kept.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from time import perf_counter, time
from typing import Any, Final, TypeAlias
from weakref import ReferenceType, ref

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr, replace

from pegboard.argument_problems import ParseWarning
from pegboard.call import Call, Caller, Json, Reply
from pegboard.call_target import CalledTool
from pegboard.errors import REFUSED
from pegboard.hooks.observation import Failure, Observation, Report, describe_failure
from pegboard.logs.printable import printable
from pegboard.middleware.observability.call_feed import StoredCall
from pegboard.middleware.observability.call_masking import CallMasking, Secrets, ToolMasking
from pegboard.middleware.observability.masking import MASK, mask_text
from pegboard.middleware.observability.token_count import estimate_tokens
from pegboard.protocol.json_values import as_list, as_object, objects_in

_SMALL_BYTES: Final = 4 * 1024
"""The size of arguments and result up to which a call is small."""
_KEPT_BYTES: Final = 64 * 1024
"""The size of a call above which only the beginning of its arguments and its result is kept."""
_SHOWN_ERROR: Final = 500
_REPAIRS: Final = 50
"""The repairs of one call that are kept."""
_SHOWN_NAME: Final = 1000

_encode = msgspec.json.Encoder().encode
_encode_any = msgspec.json.Encoder(enc_hook=str).encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

_log = logging.getLogger("pegboard.history")


class CallExtras(Struct, frozen=True):
    """What only some calls have: another method, a failure, repairs, facts that parts of the server noted.

    ran: the arguments that the tool got, as JSON text, if they were repaired.
    """

    method: str = "tools/call"
    failure: Failure | None = None
    ran: bytes | None = None
    warnings: tuple[ParseWarning, ...] = ()
    trace_id: str = ""
    log_id: str = ""
    facts: Mapping[str, Json] = {}


_NO_EXTRAS: Final = CallExtras()


class LargeContent(Struct, weakref=True):
    """The arguments and the result of a large call, which may be shortened while it is in the ring."""

    raw: bytes
    result: bytes | None

    def __len__(self) -> int:
        return len(self.raw) + len(self.result or b"")


class KeptCall(Struct):
    """One call; the fields are those of the tuples in the ring.

    at: when it ended, in seconds since 1970.
    began, ended: when, on the clock of `time.perf_counter`.
    inside: when the tool itself began and ended, on that clock.
    raw: its arguments as they were sent.
    result: its result as JSON, if it has one.
    """

    at: float
    began: float
    ended: float
    name: str
    tool: CalledTool
    caller: Caller
    rule: str
    raw: Raw | bytes | LargeContent
    result: bytes | None
    inside: tuple[float, float] | None
    downstream_ms: float
    extras: CallExtras = _NO_EXTRAS

    def mask(self, masking: CallMasking) -> StoredCall:
        """What the history stores of it: its secrets are masked."""
        raw, encoded = (
            (self.raw.raw, self.raw.result) if isinstance(self.raw, LargeContent) else (self.raw, self.result)
        )
        result = None if encoded is None else _decode(encoded)
        extras, tool, mask = self.extras, self.tool, masking.of(self.tool)
        seconds = self.ended - self.began
        before_ms = tool_ms = None
        if self.inside is not None:
            before_ms = (self.inside[0] - self.began) * 1000
            tool_ms = (self.inside[1] - self.inside[0]) * 1000
        if self.downstream_ms:
            # Behind a gateway, the server is what takes the time that is not ours.
            tool_ms = self.downstream_ms
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
            "before_ms": None if before_ms is None else round(before_ms, 3),
            "trace_id": extras.trace_id,
            "log_id": extras.log_id,
            "rule": self.rule,
            **masking.facts(extras.facts),
        }
        return StoredCall(
            at=round(self.at - seconds, 4),
            ms=round(seconds * 1000, 3),
            method=extras.method,
            name=self.name,
            lane=f"{tool.toolbox}/{tool.server}" if tool.server else tool.toolbox,
            outcome=self._outcome(result),
            repairs=len(extras.warnings),
            client=str(self.caller.client.get("name", ""))[:80],
            principal=self.caller.principal.id,
            version=self.caller.version,
            transport=self.caller.transport,
            tool_ms=None if tool_ms is None else round(tool_ms, 3),
            details=Raw(_encode_any(details)),
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


Keep: TypeAlias = Callable[[tuple[Any, ...]], None]


class CallRing:
    """The latest calls, within bounds.

    A small call counts only as one; the bytes of large ones are counted, and the oldest of them are shortened first.
    `report` keeps a call in place of the oldest one.
    """

    def __init__(self, calls: int, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: deque[tuple[Any, ...]] = deque(maxlen=calls)
        # With their sizes. They leave the ring in this order, and die then.
        self._large: deque[tuple[ReferenceType[LargeContent], int]] = deque()
        self._held = 0
        self._listeners: list[Callable[[], object]] = []
        self.report, self._use = self._make_report()

    def _make_report(self) -> tuple[Report, Callable[[Keep], None]]:
        """The report, and how to choose what it passes calls to.

        It has variables of a closure: it runs for every call, and reading attributes of an object takes longer.
        """
        keep: Keep = self._kept.append
        read = self._read

        def use(chosen: Keep) -> None:
            nonlocal keep
            keep = chosen

        def report(call: Call, began: float, reply: Reply | None, exception: BaseException | None) -> None:
            try:
                # Only of a PlainCall, the params are all that its arguments and its name hold in memory.
                if call.has_own_task and call._notes is None and not call.parsed.warnings:  # type: ignore[union-attr]
                    encoded = _encode(reply.result)  # type: ignore[union-attr]
                    force_setattr(reply, "encoded", encoded)  # type: ignore[arg-type]
                    if len(call.params) + len(encoded) <= _SMALL_BYTES:
                        keep(
                            (
                                time(),
                                began,
                                perf_counter(),
                                call.name,
                                call.tool,
                                call.caller,
                                call.rule,
                                call.raw,
                                encoded,
                                call._inside,
                                call._downstream_ms,
                            )
                        )
                        return
            except Exception:  # noqa: BLE001, S110 — it has failed, or has an unusual result
                pass
            try:
                keep(read(call, began, reply, exception))
            except Exception:  # noqa: BLE001 — an observer must not change the call
                _log.exception("a call of %s is not kept in the history", printable(call.name[:80]))

        return report, use

    def _read(
        self, call: Call, began: float, reply: Reply | None, exception: BaseException | None
    ) -> tuple[object, ...]:
        """What is kept of a call that has something special."""
        seen = Observation(began, perf_counter(), reply, None if exception is None else describe_failure(exception))
        result = None if seen.result is None else _encode_any(_prepare(seen.result))
        raw: bytes | LargeContent = bytes(call.raw)
        if len(call.raw) + len(result or b"") > _SMALL_BYTES:
            raw, result = self._make_room(LargeContent(bytes(call.raw), result)), None
        return (
            time(),
            began,
            seen.ended,
            call.name[:_SHOWN_NAME],
            call.tool,
            call.caller,
            call.rule,
            raw,
            result,
            call._inside,
            call._downstream_ms,
            _read_extras(call, seen.failure),
        )

    def _make_room(self, content: LargeContent) -> LargeContent:
        """What is kept of a large call; the oldest large ones are shortened if all of them hold too much."""
        if len(content) > _KEPT_BYTES:
            _shorten_content(content, _KEPT_BYTES // 4)
        self._large.append((ref(content), len(content)))
        self._held += len(content)
        while (oldest := self._large[0][0]()) is None or (self._held > self._max_bytes and len(self._large) > 1):
            self._held -= self._large.popleft()[1]
            if oldest is not None:
                _shorten_content(oldest, _SMALL_BYTES // 4)
        return content

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, limit: int) -> list[KeptCall]:
        """Take the calls out of the ring, the oldest first: the newest `limit` of them."""
        taken = [KeptCall(*kept) for kept in islice(self._kept, max(0, len(self._kept) - limit), None)]
        self._kept.clear()
        self._large.clear()
        self._held = 0
        return taken

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call back after each call; returns a function that ends this."""
        self._listeners.append(listener)
        self._use(self._keep_and_notify)

        def leave() -> None:
            self._listeners.remove(listener)
            if not self._listeners:
                self._use(self._kept.append)

        return leave

    def _keep_and_notify(self, kept: tuple[object, ...]) -> None:
        self._kept.append(kept)
        for listener in self._listeners:
            listener()


def _read_extras(call: Call, failure: Failure | None) -> CallExtras:
    notes, ran = call.notes, None
    if failure is not None:
        # The text of an unexpected exception is for the log alone.
        failure = replace(failure, text="")
    if call.parsed is not None and call.warnings:
        try:
            ran = _encode_any(call.parsed.arguments)
        except (TypeError, ValueError, RecursionError):
            ran = None
    warnings = call.warnings[:_REPAIRS]
    if len(call.raw) > _SMALL_BYTES:
        ran = None if ran is None else _beginning(ran, _SMALL_BYTES)
        warnings = [replace(warning, got=None, became=None) for warning in warnings]
    return CallExtras(call.method, failure, ran, tuple(warnings), notes.trace_id, notes.log_id, notes.facts)


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


def _shorten_content(content: LargeContent, length: int) -> None:
    """Keep the beginning of arguments and of a result."""
    if len(content.raw) > length:
        content.raw = _beginning(content.raw, length)
    if content.result is not None and len(content.result) > length:
        content.result = _encode(_shorten(_decode(content.result), length))


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
