"""Reads the handshake and writes results of revisions 2024-11-05 to 2025-11-25."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec import Struct

from pegboard.call import EncodedResult, Json, Notification, Question, Reply, RequestId
from pegboard.errors import Busy, DuplicateRequestId, InsufficientScope, InvalidParams, Refusal, ResourceNotFound
from pegboard.protocol import jsonrpc
from pegboard.protocol.content import blocks_for
from pegboard.protocol.json_values import as_object, objects_in
from pegboard.protocol.revisions import ASSUMED, FIELDS, LEGACY, NEWEST_LEGACY, REVISIONS, trim

_encode = msgspec.json.Encoder().encode
_REMEMBERED_BYTES = 2048
_KEPT_BYTES = 16 * 1024


class _InitializeParams(Struct):
    protocolVersion: str  # noqa: N815 — the member's name on the wire
    capabilities: dict[str, Json]
    clientInfo: dict[str, Json]  # noqa: N815 — the member's name on the wire


class _WrappedValue(Struct, gc=False):
    """Structured content that is not an object, in the object that these revisions require."""

    result: Json


class _WrappedResult(Struct, gc=False):
    """The result of a call that has nothing else; a struct takes less time than a copy of the result."""

    content: Json
    structuredContent: _WrappedValue  # noqa: N815 — the member's name on the wire


class Handshake(Struct, frozen=True):
    """The outcome of `initialize`."""

    version: str
    client: Mapping[str, Json]
    capabilities: Mapping[str, Json]


def read_handshake(params: bytes) -> Handshake:
    """Negotiate a revision: the client's if we support it, else our newest one with a handshake.

    Most sessions start with the same message, and share its result.
    """
    return _remember(params) if len(params) <= _REMEMBERED_BYTES else _read(params)


@lru_cache(maxsize=256)
def _remember(params: bytes) -> Handshake:
    return _read(params)


def _read(params: bytes) -> Handshake:
    if params in (b"", b"{}"):
        # The smallest request that some clients send; docs/decisions/0003 says why it is accepted.
        return Handshake(ASSUMED, {}, {})
    try:
        sent = msgspec.json.decode(params, type=_InitializeParams)
    except msgspec.MsgspecError:
        raise InvalidParams(
            "initialize needs params.protocolVersion (a string), params.capabilities and params.clientInfo (objects)"
        ) from None
    client = sent.clientInfo
    if len(params) > _KEPT_BYTES:
        # A session keeps this as long as it lives, and icons make it large.
        client = {name: value for name, value in client.items() if name != "icons"}
        if len(_encode((client, sent.capabilities))) > _KEPT_BYTES:
            raise InvalidParams(
                f"params.clientInfo and params.capabilities together must have at most {_KEPT_BYTES} bytes"
            )
    version = sent.protocolVersion if sent.protocolVersion in LEGACY else NEWEST_LEGACY
    return Handshake(version, client, sent.capabilities)


def write_question(request_id: RequestId, question: Question, version: str) -> bytes:
    """A question as a request from server to client, with the fields of the revision."""
    params = trim(question.method, question.params, version)
    if params.get("mode") == "url":
        # These revisions name the interaction, so that its end can be reported; newer ones use the ticket for that.
        params = {**params, "elicitationId": str(request_id)}
    return jsonrpc.request(request_id, question.method, params)


class LegacyCodec:
    """The codec of a legacy revision."""

    def __init__(self, version: str, info: Mapping[str, Json]) -> None:
        self.version = version
        self.revision = REVISIONS[version]
        self._info = info
        self._takes_all = version >= FIELDS["result"]["structuredContent"]

    def result(self, method: str, reply: Reply) -> bytes:
        """The result of a (modern) method as JSON, with the fields of the revision."""
        result = reply.result
        if type(result) is not EncodedResult:
            if method == "tools/call" and self._takes_all and "resultType" not in result:
                # Almost all results are those of calls, which these revisions support in full.
                if reply.wrapped and "structuredContent" in result:
                    value = _WrappedValue(result["structuredContent"])
                    if len(result) == 2 and "content" in result:
                        return _encode(_WrappedResult(result["content"], value))
                    return _encode({**result, "structuredContent": value})
                return _encode(result) if reply.encoded is None else reply.encoded
            return _encode(self._translate(method, result, wrapped=reply.wrapped))
        written = result.written.get(self.version)
        if written is None:
            written = result.written[self.version] = _encode(
                self._translate(method, result.value, wrapped=reply.wrapped)
            )
        return written

    def notice(self, notice: Notification) -> bytes:
        """A notice as a JSON-RPC notification, with the fields of the revision; nothing if it does not have it."""
        if notice.method not in self.revision.notifications:
            return b""
        return jsonrpc.notification(notice.method, trim(notice.method, notice.params, self.version))

    def code(self, refusal: Refusal) -> int:
        """The error code: some had other values before 2026-07-28."""
        return _CODES.get(type(refusal), refusal.code)

    def status(self, refusal: Refusal) -> int:
        """The HTTP status of a rejected call: 200 as for any response, unless nothing was tried.

        Never 404, by which these revisions tell a client that its session has ended.
        """
        return refusal.status if isinstance(refusal, Busy | DuplicateRequestId | InsufficientScope) else 200

    def _translate(self, method: str, result: Mapping[str, Json], *, wrapped: bool) -> Mapping[str, Json]:
        match method:
            case "server/discover":
                return self._initialized(result)
            case "tools/list":
                result = {**result, "tools": [_tool(tool, self.version) for tool in objects_in(result["tools"])]}
            case "tools/call":
                result = _called(result, self.version, wrapped=wrapped)
            case "resources/list" | "resources/templates/list" | "prompts/list":
                result = _listed(result, self.version)
            case "prompts/get":
                result = {
                    **result,
                    "messages": [_message(message, self.version) for message in objects_in(result["messages"])],
                }
        return trim("result", result, self.version)

    def _initialized(self, discovered: Mapping[str, Json]) -> Mapping[str, Json]:
        answer: dict[str, Json] = {
            "protocolVersion": self.version,
            "capabilities": trim("capabilities", as_object(discovered["capabilities"]), self.version),
            "serverInfo": trim("implementation", self._info, self.version),
        }
        if "instructions" in discovered:
            answer["instructions"] = discovered["instructions"]
        return answer


def _tool(tool: Mapping[str, Json], version: str) -> Mapping[str, Json]:
    output = tool.get("outputSchema")
    if isinstance(output, Mapping) and output.get("type") != "object":
        # "outputSchema … type: object" until 2025-11-25: another value is wrapped in an object, and so is its schema.
        tool = {**tool, "outputSchema": _box_schema(output)}
    return trim("tool", tool, version)


_CODES: Mapping[type[Refusal], int] = {ResourceNotFound: -32002}
_LISTS = {"resources": "resource", "resourceTemplates": "resource", "prompts": "prompt"}


def _listed(result: Mapping[str, Json], version: str) -> Mapping[str, Json]:
    return {
        key: [trim(_LISTS[key], item, version) for item in objects_in(value)] if key in _LISTS else value
        for key, value in result.items()
    }


def _message(message: Mapping[str, Json], version: str) -> Mapping[str, Json]:
    content = message["content"]
    return {**message, "content": blocks_for(version, [content])[0]} if isinstance(content, Mapping) else message


def _box_schema(schema: Mapping[str, Json]) -> Mapping[str, Json]:
    # References start at the root, and the dialect is stated there.
    root = {key: schema[key] for key in ("$schema", "$defs") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in root}
    return {**root, "type": "object", "properties": {"result": inner}, "required": ["result"]}


def _called(result: Mapping[str, Json], version: str, *, wrapped: bool) -> Mapping[str, Json]:
    changed = dict(result)
    if wrapped and "structuredContent" in changed:
        changed["structuredContent"] = {"result": changed["structuredContent"]}
    content = changed.get("content")
    if isinstance(content, list):
        changed["content"] = blocks_for(version, content)
    return changed


def legacy_codecs(info: Mapping[str, Json]) -> Mapping[str, LegacyCodec]:
    """The codecs of all revisions with sessions, for a server with this name and version."""
    return {version: LegacyCodec(version, info) for version in LEGACY}
