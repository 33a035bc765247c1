"""The params of a caller's request that are forwarded to the server.

Params are encoded again and never forwarded as received: JSON allows line breaks between tokens, and on stdio a line
break ends a message, so a caller could inject messages to the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Raw

from pegboard.call import EMPTY_OBJECT, Call, Json
from pegboard.errors import InvalidParams
from pegboard.protocol.jsonrpc import compact
from pegboard.protocol.params import PREFIX

# Members that are written again for the server, and members that only concern the caller and us.
_PER_HOP: Final = frozenset({"_meta", "inputResponses", "requestState", "task"})
_OURS: Final = _PER_HOP | {"name", "uri", "taskId", "arguments"}
_REMEMBERED_BYTES: Final = 2048

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode


def params_for(call: Call, own: Mapping[str, Any]) -> dict[str, Any]:
    """The params for the server: the subject in the server's own names, and all other members of the caller.

    Members that are still JSON text are compact, and therefore on one line.
    """
    params: dict[str, Any] = {}
    for name, value in own.items():
        if name not in _PER_HOP:
            params[name] = compact(value) if type(value) is Raw else value
    passed: Mapping[str, Json] = {}
    if call.params is not EMPTY_OBJECT:
        members = _decode_members(call.params)
        for name, value in members.items():
            if name not in _OURS and name not in params:
                params[name] = compact(value)
        meta = bytes(members.get("_meta", b""))
        if meta:
            passed = _remembered(meta) if len(meta) <= _REMEMBERED_BYTES else _passed(meta)
    if passed:
        params["_meta"] = passed
    return params


def answers_of(call: Call) -> Mapping[str, Json] | None:
    """The caller's answers to the questions that ended its previous request."""
    if call.answers is None:
        return None
    answers = _decode(call.answers)
    if not isinstance(answers, dict):
        raise InvalidParams("inputResponses must be an object: the answer to each question under its key")
    return answers


@lru_cache(maxsize=256)
def _remembered(meta: bytes) -> Mapping[str, Json]:
    # Most requests of a client have the same value; it is only copied, never changed.
    return _passed(meta)


def _passed(meta: bytes) -> Mapping[str, Json]:
    """The trace context and unknown members; the protocol's own members belong to each hop."""
    return {
        name: value for name, value in _decode(meta).items() if name != "progressToken" and not name.startswith(PREFIX)
    }
