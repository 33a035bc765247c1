"""Tools as JSON-RPC methods: a request whose method is the name of a tool, and its result without content blocks."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from pegboard.binding.binder import NOT_JSON
from pegboard.call import Call, Done, EncodedResult, Handler, Json, Reply
from pegboard.errors import InternalFailure, InvalidParams
from pegboard.protocol.content import joined_text
from pegboard.protocol.json_values import as_object
from pegboard.protocol.jsonrpc import NOTHING, Message, decode_json
from pegboard.protocol.revisions import METHODS
from pegboard.server.exchange.fast_path import CALL
from pegboard.tools.tool_result import PARSE_ERRORS

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def is_direct(method: str) -> bool:
    """Whether a method is none of the protocol, and so may be the name of a tool."""
    return method not in METHODS


def as_tool_call(message: Message, method: str) -> Message:
    """The `tools/call` that a request stands for: its params are the arguments, except `_meta`."""
    try:
        arguments = {} if message.params is NOTHING else _decode_members(message.params)
    except msgspec.MsgspecError:
        raise InvalidParams("params must be an object with the arguments of the tool, by name") from None
    meta = arguments.pop("_meta", None)
    params: dict[str, Json] = {"name": method, "arguments": arguments}
    if meta is not None:
        params["_meta"] = meta
    return replace(message, method=CALL, params=Raw(msgspec.json.encode(params)))


def answer_directly(handler: Handler) -> Handler:
    """The Handler of such requests: the result is the tool's value, and its error a JSON-RPC error."""

    async def answer(call: Call) -> Reply:
        reply = await handler(call)
        if not isinstance(reply, Done):
            return reply
        result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
        if result.get("isError"):
            meta = as_object(result.get("_meta"))
            error = InvalidParams if PARSE_ERRORS in meta else InternalFailure
            raise error(joined_text(result.get("content")), meta or None)
        return Done(_value_of(result))

    return answer


def _value_of(result: Mapping[str, Json]) -> Mapping[str, Json]:
    """The structured content, or the text; an object as it is, and any other value as its `result`."""
    if "structuredContent" in result:
        value = result["structuredContent"]
    else:
        value = joined_text(result.get("content"))
        try:
            found = decode_json(value.encode())
        except NOT_JSON:
            found = None
        if isinstance(found, dict | list):
            value = found
    return value if isinstance(value, dict) else {"result": value}
