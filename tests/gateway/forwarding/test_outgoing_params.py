"""The params that a server gets: what a caller sent beside the arguments, however often it sent the same before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from pegboard.call import EMPTY_OBJECT, NO_CALLER, NULL_CHANNEL, Call
from pegboard.gateway.forwarding.outgoing_params import params_for

META = '{"io.modelcontextprotocol/clientCapabilities":{},"progressToken":1,"traceparent":"00-1","kept":{"deep":[1]}}'


def sent(params: str, arguments: str, beside: tuple[bytes, bytes] | None = None) -> dict[str, Any]:
    """What a server gets for a call with these params, as values; all that is still text is on one line."""
    raw = Raw(arguments.encode())
    call = Call(method="tools/call", caller=NO_CALLER, channel=NULL_CHANNEL, raw=raw, params=Raw(params.encode()))
    call._beside = beside
    for_server = params_for(call, {"name": "own", "arguments": raw})
    written = msgspec.json.encode(for_server)
    assert b"\n" not in written
    values: dict[str, Any] = msgspec.json.decode(written)
    return values


@pytest.mark.parametrize("arguments", ['{"a":1}', '{"a":2,"b":"x"}', "{}", '{"deep":[1]}', '{\n"a": 1}'])
@pytest.mark.parametrize(
    "params",
    [
        '{"name":"shown","arguments":%s}',
        '{"name":"shown","arguments":%s,"_meta":' + META + "}",
        '{"_meta":' + META + ',"arguments": %s ,"name":"shown"}',
        '{"name":"shown","extra":{"a":1},"arguments":%s,"more":[\n1,\n{}],"_meta":' + META + "}",
        '{"name":"shown","extra":"{}","arguments":%s,"text":"{\\"a\\":1}"}',
    ],
)
def test_other_members_are_forwarded_whatever_the_arguments(params: str, arguments: str) -> None:
    whole = msgspec.json.decode((params % arguments).encode())
    expected = {name: value for name, value in whole.items() if name not in ("name", "arguments", "_meta")}
    expected |= {"name": "own", "arguments": msgspec.json.decode(arguments)}
    if "_meta" in whole:
        expected["_meta"] = {"traceparent": "00-1", "kept": {"deep": [1]}}
    before, _, after = params.encode().partition(b"%s")
    for beside in (None, None, (before, after)):
        assert sent(params % arguments, arguments, beside) == expected


def test_a_member_with_the_text_of_the_arguments_keeps_its_own_value() -> None:
    frame = '{"name":"shown","twin":%s,"arguments":%s}'
    assert sent(frame % ('{"a":1}', '{"a":1}'), '{"a":1}')["twin"] == {"a": 1}
    assert sent(frame % ('{"a":2}', '{"a":1}'), '{"a":1}')["twin"] == {"a": 2}
    # A hook has replaced the arguments by those of another member.
    assert sent(frame % ('{"a":2}', '{"a":1}'), '{"a":2}')["twin"] == {"a": 2}


def test_a_call_without_params_has_only_its_own_members() -> None:
    call = Call(method="tools/call", caller=NO_CALLER, channel=NULL_CHANNEL, params=EMPTY_OBJECT)
    assert params_for(call, {"name": "own", "arguments": {}}) == {"name": "own", "arguments": {}}
