"""The length of the result that a caller asks for: auto, summary or full."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct

from pegboard.call import Call, Json
from pegboard.errors import ToolError
from pegboard.protocol.json_values import as_object

ResponseMode: TypeAlias = Literal["auto", "summary", "full"]

ARGUMENT: Final = "responseMode"
META: Final = "dev.pegboard/responseMode"


class ResponseModes(Struct, frozen=True):
    """The tokens of the modes that a caller can ask for: at most `summary` in a summary, at most `full` in full."""

    summary: int = 1_000
    full: int = 24_000


def take_mode(call: Call) -> tuple[ResponseMode, Call]:
    """The mode of a call, and the call without it: the tool gets the argument only if it declares one itself."""
    if ARGUMENT.encode() in bytes(call.raw) and ARGUMENT in call.arguments:
        mode = _read(call.arguments[ARGUMENT])
        if ARGUMENT in as_object(call.tool.input_schema.get("properties")):
            return mode, call
        return mode, call.with_arguments({name: value for name, value in call.arguments.items() if name != ARGUMENT})
    if META.encode() in bytes(call.params):
        meta = as_object(as_object(msgspec.json.decode(call.params)).get("_meta"))
        if META in meta:
            return _read(meta[META]), call
    return "auto", call


def _read(value: Json) -> ResponseMode:
    if value not in get_args(ResponseMode):
        raise ToolError(
            f'{ARGUMENT}: got {value!r:.80}, use "auto", "summary" or "full"',
            code="invalid_arguments",
            steps=f'Call the tool again without {ARGUMENT}, or with "auto", "summary" or "full".',
        )
    return cast("ResponseMode", value)
