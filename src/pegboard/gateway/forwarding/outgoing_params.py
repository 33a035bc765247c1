"""The params of a caller's request that are forwarded to the server.

Params are encoded again and never forwarded as the bytes that came: JSON allows line breaks between tokens, and on
stdio a line break ends a message, so a caller could write messages of its own to the server.
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

# What a request is about, which is said anew, and what only means something between a caller and us.
_PER_HOP: Final = frozenset({"_meta", "inputResponses", "requestState", "task"})
_OURS: Final = _PER_HOP | {"name", "uri", "taskId", "arguments"}
_REMEMBERED_BYTES: Final = 2048

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode


def params_for(call: Call, own: Mapping[str, Any]) -> dict[str, Any]:
    """The params of a request as its server gets them: its own words for what it is about, and the caller's rest.

    What is still JSON text in them is compact, and so on one line.
    """
    params = {
        name: compact(value) if isinstance(value, Raw) else value for name, value in own.items() if name not in _PER_HOP
    }
    passed: Mapping[str, Json] = {}
    if call.params is not EMPTY_OBJECT:
        members = _decode_members(call.params)
        for name, value in members.items():
            if name not in _OURS and name not in params:
                params[name] = compact(value)
        meta = bytes(members.get("_meta", b""))
        if meta:
            passed = _remembered(meta) if len(meta) <= _REMEMBERED_BYTES else _passed(meta)
    trace = call.trace
    if passed or trace:
        params["_meta"] = {**passed, **trace} if trace else passed
    return params


def answers_of(call: Call) -> Mapping[str, Json] | None:
    """What the caller answers to the questions that ended its request before."""
    if call.answers is None:
        return None
    answers = _decode(call.answers)
    if not isinstance(answers, dict):
        raise InvalidParams("inputResponses must be an object: the answer to each question under its key")
    return answers


@lru_cache(maxsize=256)
def _remembered(meta: bytes) -> Mapping[str, Json]:
    # Most requests of a client bring the same; nobody changes it, it is only copied from.
    return _passed(meta)


def _passed(meta: bytes) -> Mapping[str, Json]:
    """Trace context and what nobody here knows; what the protocol has its own use for belongs to each hop."""
    return {
        name: value for name, value in _decode(meta).items() if name != "progressToken" and not name.startswith(PREFIX)
    }
