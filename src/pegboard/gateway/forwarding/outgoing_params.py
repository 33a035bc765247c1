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
_CUT: Final = Raw(b"0")

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode


def params_for(call: Call, own: dict[str, Any]) -> dict[str, Any]:
    """The params for the server: the subject in the server's own names, and all other members of the caller.

    Arguments that are still JSON text become compact, and are therefore on one line.
    """
    arguments = own.get("arguments")
    if type(arguments) is Raw:
        own["arguments"] = compact(arguments)
    others = None if call.params is EMPTY_OBJECT else _others_of(call)
    return {**own, **others, **own} if others else own


def answers_of(call: Call) -> Mapping[str, Json] | None:
    """The caller's answers to the questions that ended its previous request."""
    if call.answers is None:
        return None
    answers = _decode(call.answers)
    if not isinstance(answers, dict):
        raise InvalidParams("inputResponses must be an object: the answer to each question under its key")
    return answers


def _others_of(call: Call) -> Mapping[str, Any]:
    """The members of a caller's params that are forwarded unchanged."""
    beside = call._beside or _split(call)
    # Most requests of a client differ only in their arguments.
    others = None if beside is None else _others_beside(beside)
    return _read_others(_decode_members(call.params)) if others is None else others


def _split(call: Call) -> tuple[bytes, bytes] | None:
    """The texts before and after what may be the arguments in the params; None for long ones, which are not kept."""
    params = bytes(call.params)
    before, arguments, after = params.partition(call.raw) if len(params) <= _REMEMBERED_BYTES else (b"", b"", b"")
    return (before, after) if arguments else None


@lru_cache(maxsize=256)
def _others_beside(beside: tuple[bytes, bytes]) -> Mapping[str, Any] | None:
    """The same for params without their arguments; None if something else was cut out. It is only copied, never changed."""
    try:
        # Arguments are an object, so that a number at their place shows where the cut is.
        members = _decode_members(b"%b0%b" % beside)
    except msgspec.DecodeError:
        return None
    return _read_others(members) if members.get("arguments") == _CUT else None


def _read_others(members: Mapping[str, Raw]) -> Mapping[str, Any]:
    others: dict[str, Any] = {name: compact(value) for name, value in members.items() if name not in _OURS}
    if "_meta" in members and (passed := _passed(members["_meta"])):
        others["_meta"] = passed
    return others


def _passed(meta: Raw) -> Mapping[str, Json]:
    """The trace context and unknown members; the protocol's own members belong to each hop."""
    return {
        name: value for name, value in _decode(meta).items() if name != "progressToken" and not name.startswith(PREFIX)
    }
