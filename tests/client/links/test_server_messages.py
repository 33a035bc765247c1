"""Messages of servers are read alike, whether their result is decoded with them or later."""

from __future__ import annotations

import pytest

from pegboard.client.links.server_messages import read_members, read_server_message, read_values, result_of
from pegboard.errors import MalformedMessage, PegboardError
from pegboard.limits import Limits

RESULTS = (
    rb'{"content":[],"number":1.0,"large":99999999999999999999999}',
    rb'{"number":1e400}',
    rb"{}",
    rb"[1]",
    rb"null",
    rb'"text"',
    rb'{"text":"\ud800"}',
    rb'{"number":01}',
    rb'{"unfinished":',
)


def outcome(message: bytes, *, at_once: bool) -> object:
    try:
        return result_of(read_server_message(message, Limits(), read_values if at_once else None))
    except PegboardError as problem:
        return type(problem), str(problem)


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize(
    "around",
    [
        b'{"jsonrpc":"2.0","id":5,"result":%b}',
        b'{"jsonrpc":"2.0","id":5,"result":%b,"more":1}',
        b'{"jsonrpc":"2.0","id":5,"result":%b,"error":{"code":1}}',
        b'{"jsonrpc":"1.0","id":5,"result":%b}',
        b'{"jsonrpc":"2.0","id":[],"result":%b}',
    ],
)
def test_a_result_that_is_decoded_with_its_message_is_the_same_as_one_decoded_later(
    around: bytes, result: bytes
) -> None:
    assert outcome(around % result, at_once=True) == outcome(around % result, at_once=False)


def test_a_number_that_fits_no_float_is_an_error_of_its_request() -> None:
    message = read_server_message(b'{"jsonrpc":"2.0","id":5,"result":{"number":1e400}}', Limits(), read_values)
    assert message.id == 5
    with pytest.raises(MalformedMessage):
        result_of(message)


def test_a_caller_that_forwards_members_gets_their_bytes() -> None:
    message = read_server_message(b'{"jsonrpc":"2.0","id":5,"result":{"number":1e0}}', Limits(), read_members)
    assert bytes(result_of(message, read_members)["number"]) == b"1e0"
