"""The record of a call or a decision, as the audit log writes it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from pegboard.bounded_dict import BoundedDict
from pegboard.call import Call, Caller, Json
from pegboard.middleware.call_keys import client_of
from pegboard.middleware.observability.call_masking import CallMasking

Arguments: TypeAlias = Literal["masked", "hash", "none"]
"""What a record says about arguments."""

MAX_VALUE: Final = 16_384
"""The size in bytes above which only the beginning of masked arguments is recorded."""

_CALLERS_KEPT: Final = 1024
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


class CallRecord(Struct, omit_defaults=True, kw_only=True):
    """One call or decision; fields that are empty are not written.

    at: when it ended.
    action: the method of a call, such as `tools/call`, or what was decided, such as `keys.add`.
    name: the tool, prompt or URI, or what a decision is about.
    toolbox, server: the server behind a gateway that it belongs to.
    principal: who called or decided; `client` is what the client says about itself.
    session: a digest of the session's id, which a reader cannot take over.
    transport, address: where it came from.
    request: the id of the request.
    outcome: `ok`, `failed`, `refused`, `cancelled`, `asked`, `task`, or `resumed` after an outage of the audit log.
    error: the kind of failure, never its text.
    rule, approval, credential: the rule that decided, the approval and the downstream credential that were used.
    trace: the id of the trace.
    arguments: masked; `arguments_sha256` is the digest of the arguments as sent, with their names sorted.
    details: further facts.
    """

    at: str
    action: str
    name: str = ""
    toolbox: str = ""
    server: str = ""
    principal: str = ""
    client: str = ""
    session: str = ""
    transport: str = ""
    address: str = ""
    request: str = ""
    outcome: str
    error: str = ""
    elapsed_ms: float | None = None
    rule: str = ""
    approval: Json = None
    credential: Json = None
    trace: str = ""
    arguments: Raw | UnsetType = UNSET
    arguments_sha256: str = ""
    details: Raw | UnsetType = UNSET


def timestamp(seconds: float) -> str:
    """A time as text, in UTC with milliseconds."""
    return f"{_second(int(seconds))}.{int(seconds % 1 * 1000):03d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


class CallRecorder:
    """Makes the records of calls: `arguments` says what they contain of arguments."""

    def __init__(self, masking: CallMasking, arguments: Arguments) -> None:
        self._masking, self._arguments = masking, arguments
        # The client and session of each caller: most callers send many calls.
        self._callers: BoundedDict[int, tuple[Caller, str, str]] = BoundedDict(_CALLERS_KEPT)

    def record(self, call: Call, outcome: str, error: str, elapsed_ms: float, at: float) -> CallRecord:
        """The record of a call that has ended."""
        caller, tool = call.caller, call.tool
        known = self._callers.get(id(caller))
        if known is None or known[0] is not caller:
            session = sha256(caller.session.encode()).hexdigest()[:16] if caller.session else ""
            known = self._callers[id(caller)] = caller, client_of(call), session
        sent: Json = None
        if self._arguments != "none":
            sent = call._sent if call._sent is not UNSET else msgspec.json.decode(call.raw)
        record = CallRecord(
            at=f"{_second(int(at))}.{int(at % 1 * 1000):03d}Z",
            action=call.method,
            name=call.name[:512],
            toolbox=tool.toolbox,
            server=tool.server,
            principal=caller.principal.id,
            client=known[1],
            session=known[2],
            transport=caller.transport,
            address=call.address,
            request="" if call.id is None else str(call.id)[:128],
            outcome=outcome,
            error=error,
            elapsed_ms=int(elapsed_ms * 1000) / 1000,
            rule=call.rule,
            arguments=self._show(call, sent) if self._arguments == "masked" else UNSET,
            arguments_sha256=sha256(_encode_sorted(sent)).hexdigest() if self._arguments == "hash" else "",
        )
        record.trace = trace_of(call)
        if call._notes is not None and call._notes.facts:
            _add_facts(record, self._masking.facts(call._notes.facts))
        return record

    def _show(self, call: Call, sent: Json) -> Raw:
        masking = self._masking.of(call.tool)
        # Encoded again: as sent, they may contain line breaks, and members that are repeated with other values.
        if len(call.raw) <= MAX_VALUE and masking.is_plain(sent):
            return Raw(_encode(sent))
        return _bounded(masking.arguments(sent)[0])


class _Meta(Struct, gc=False):
    traceparent: str = ""


class _Params(Struct, gc=False):
    meta: _Meta = msgspec.field(name="_meta", default_factory=_Meta)


_decode_params: Final = msgspec.json.Decoder(_Params).decode


def trace_of(call: Call) -> str:
    """The id of the trace that a call belongs to, as its span or its sender names it; empty if there is none."""
    if call._notes is not None and call._notes.trace_id:
        return call._notes.trace_id
    # `find` and not `in`: `in` first tries to read its operand as a number, and pays for the failure.
    if bytes(call.params).find(b"traceparent") < 0:
        return ""
    try:
        found = _TRACE.match(_decode_params(call.params).meta.traceparent)
    except msgspec.MsgspecError:
        return ""
    return found[1] if found is not None else ""


def _add_facts(record: CallRecord, facts: dict[str, Json]) -> None:
    record.rule = str(facts.pop("rule", record.rule))
    record.trace = str(facts.pop("trace", record.trace))
    record.approval = facts.pop("approval", None)
    record.credential = facts.pop("credential", None)
    if facts:
        record.details = _bounded(facts)


def mask_details(details: Mapping[str, Json], masking: CallMasking) -> Raw:
    """Further facts as JSON text, masked."""
    return _bounded(masking.plain.arguments(details)[0])


def _bounded(value: Json) -> Raw:
    encoded = _encode(value)
    if len(encoded) > MAX_VALUE:
        shown = encoded[: MAX_VALUE // 2].decode("utf-8", "replace")
        encoded = _encode({"shortened": f"{len(encoded):,} bytes; they begin with", "text": shown})
    return Raw(encoded)
