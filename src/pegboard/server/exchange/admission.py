"""Makes a Call from a message, for every transport and revision; `fast_path` does it for plain calls."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct

from pegboard.bounded_dict import BoundedDict
from pegboard.call import EMPTY_OBJECT, Call, Caller, CallStream, Channel, ProgressToken, RequestId
from pegboard.errors import DuplicateRequestId, InvalidParams, InvalidRequest, MethodNotFound
from pegboard.logs.printable import printable
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import NOTHING, Message
from pegboard.protocol.legacy_codec import read_handshake
from pegboard.protocol.members import QUOTE
from pegboard.protocol.modern_codec import check_version, read_envelope
from pegboard.protocol.params import PREFIX, Params, read_meta
from pegboard.protocol.revisions import DEFAULT_LOG_LEVEL, METHODS, NAMED, REVISIONS, Revision, find_revision

_log = logging.getLogger("pegboard.server")

_MAX_MISNAMING: Final = 64
_misnaming: Final[set[str]] = set()
"""The names of clients that were reported for `params.params`."""
_MODERN_MARK: Final = (PREFIX + "protocolVersion").encode()
_REMEMBERED: Final = 1024
_REMEMBERED_BYTES: Final = 2048
_SUBJECTS: Final = {**NAMED, "resources/subscribe": "uri", "resources/unsubscribe": "uri"}


def is_modern(params: Params) -> bool:
    """Whether a request carries the modern envelope."""
    meta = bytes(params.meta)
    # Some clients write the slash of the name as an escape.
    # `find` and not `in`: `in` first tries to read its operand as a number, and pays for the failure.
    return meta.find(_MODERN_MARK) >= 0 or (meta.find(b"\\") >= 0 and read_meta(meta).version is not UNSET)


class CallerCache:
    """The callers of modern requests; a client sends the same `_meta` each time, so it is read once."""

    def __init__(self, transport: str) -> None:
        self._transport = transport
        # With each caller, the number of quotation marks that its `_meta` adds to the params.
        self.known: BoundedDict[bytes, tuple[Caller, int]] = BoundedDict(_REMEMBERED)

    def read(self, params: Params, header: str | None) -> tuple[Caller, ProgressToken | None]:
        """The sender and its progress token; `header` is the version that the transport itself states, if any."""
        meta = bytes(params.meta)
        known = self.known.get(meta)
        if known is not None and (header is None or header == known[0].version):
            return known[0], None
        if not meta and header is not None:
            find_revision(header)
        envelope = read_envelope(meta)
        check_version(envelope, header)
        caller = Caller(
            version=envelope.version,
            transport=self._transport,
            client=envelope.client,
            capabilities=envelope.capabilities,
            log_level=envelope.log_level,
        )
        # A token belongs to one request: such a `_meta` does not repeat.
        if envelope.token is None and len(meta) <= _REMEMBERED_BYTES:
            self.known[meta] = caller, 2 + meta.count(QUOTE)
        return caller, envelope.token


def read_token(params: Params) -> ProgressToken | None:
    """The progress token of a legacy request."""
    if params.meta is NOTHING:
        return None
    token = read_meta(bytes(params.meta)).token
    return None if token is UNSET else token


def check_method(method: str, version: str) -> None:
    """Reject a method that the revision, or this server, does not have."""
    if method not in REVISIONS[version].methods:
        hint = "" if "/" in method or method in METHODS else "; call a tool with tools/call and its name in params.name"
        raise MethodNotFound(f"Method not found: {method[:80]!r}{hint}")


def check_batches(revision: Revision) -> None:
    """Reject an array of messages in a revision without batches."""
    if not revision.allows_batches:
        raise InvalidRequest(f"Revision {revision.name} has no batches: send one message per request")


def named_subject(method: str, params: Params) -> str:
    """The subject of a request: the name or uri that its method requires."""
    member = _SUBJECTS.get(method)
    if member is None:
        return ""
    value = params.name if member == "name" else params.uri if member == "uri" else params.task
    if value is UNSET:
        raise InvalidParams(f"params.{member} is missing: {method} requires it")
    return value


class AdmittedRequest(Struct, frozen=True):
    """A request whose method, subject and caller are known, and which only lacks the channel for its response."""

    id: RequestId
    method: str
    about: str
    message: Message
    params: Params
    caller: Caller
    token: ProgressToken | None

    def call(self, channel: Channel, headers: Mapping[bytes, bytes] | None = None, address: str = "") -> Call:
        params = self.params
        call = Call(
            method=self.method,
            caller=self.caller,
            channel=channel,
            id=self.id,
            name=self.about,
            raw=params.arguments if params.arguments is not NOTHING else EMPTY_OBJECT,
            params=self.message.params,
            token=self.token,
            headers=headers,
            address=address,
        )
        if params.inner is not NOTHING and params.arguments is NOTHING:
            call.raw = _read_misnamed(self.method, params.inner, self.caller)
        if params.answers is not NOTHING:
            call.answers = params.answers
        if params.ticket is not UNSET:
            call.ticket = params.ticket
        return call


def _read_misnamed(method: str, inner: Raw, caller: Caller) -> Raw:
    """The arguments of a client that names them as JSON-RPC does; each is reported once."""
    if method not in ("tools/call", "prompts/get"):
        return EMPTY_OBJECT
    name = str(caller.client.get("name", ""))[:80]
    if name not in _misnaming and len(_misnaming) < _MAX_MISNAMING:
        _misnaming.add(name)
        _log.warning("the client %r sends params.params in place of params.arguments; it was read", printable(name))
    return inner


def admit(
    message: Message, params: Params, method: str, request_id: RequestId, caller: Caller, token: ProgressToken | None
) -> AdmittedRequest:
    """Make the request of a message; rejects a method that its revision does not have, and a missing subject."""
    check_method(method, caller.version)
    return AdmittedRequest(request_id, method, named_subject(method, params), message, params, caller, token)


def admit_legacy(
    message: Message, params: Params, method: str, request_id: RequestId, caller: Caller
) -> AdmittedRequest:
    """The same for a revision with sessions, where the caller is known beforehand."""
    return admit(message, params, method, request_id, caller, read_token(params))


def duplicate_id(request_id: RequestId) -> DuplicateRequestId:
    """The rejection of an id that belongs to a running call of the same session."""
    return DuplicateRequestId(f"The id {request_id!r} is already in flight in this session: use another one")


def read_caller(
    message: Message, transport: str, session: str = "", log_level: str | None = DEFAULT_LOG_LEVEL
) -> Caller:
    """The sender of `initialize`, in the negotiated revision."""
    handshake = read_handshake(bytes(message.params))
    return Caller(
        version=handshake.version,
        transport=transport,
        session=session,
        client=handshake.client,
        capabilities=handshake.capabilities,
        log_level=log_level,
    )


def initialize_call(request_id: RequestId, caller: Caller, channel: Channel) -> Call:
    """The call for `initialize`: its result is derived from that of `server/discover`."""
    return Call(method="server/discover", caller=caller, channel=channel, id=request_id)


def stream_call(
    request_id: RequestId, name: str, arguments: Raw, caller: Caller, channel: Channel, stream: CallStream
) -> Call:
    """The tool call that a stream begins."""
    return Call(
        method="tools/call", caller=caller, channel=channel, id=request_id, name=name, raw=arguments, stream=stream
    )


def cancelled_id(message: Message) -> RequestId | None:
    """The id of the request that a `notifications/cancelled` names; None if it is invalid."""
    # "Invalid cancellation notifications SHOULD be ignored" (Cancellation, Error Handling)
    try:
        found = jsonrpc.decode_json(bytes(message.params)).get("requestId")
    except (msgspec.MsgspecError, AttributeError):
        return None
    return found if type(found) in (str, int) else None
