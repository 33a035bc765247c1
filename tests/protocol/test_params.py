"""The members that we read; a repeated member is refused at any depth, and everything else passes untouched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from pegboard.errors import InvalidParams, InvalidRequest
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.params import PREFIX, Params, RequestMeta, read_meta, read_params
from tests.depth import examples

pytestmark = pytest.mark.same_on_every_python

LIMITS = Limits()


def take(body: bytes) -> tuple[Params, RequestMeta]:
    message = jsonrpc.read(body, LIMITS)
    params = read_params(message)
    return params, read_meta(bytes(params.meta))


def message(params: str, more: str = "") -> bytes:
    return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}{more}}}'.encode()


def test_what_we_read_is_read_and_the_rest_stays_raw() -> None:
    params, meta = take(
        message('{"name":"a\\"b","arguments":{"x":[1, 2]},"later":{},"_meta":{"progressToken":7,"com.x/y":null}}')
    )
    assert params.name == 'a"b'
    assert bytes(params.arguments) == b'{"x":[1, 2]}'
    assert meta.token == 7
    assert meta.version is UNSET


def test_no_params_are_params_without_members() -> None:
    params, meta = take(b'{"jsonrpc":"2.0","id":1,"method":"m"}')
    assert (params.name, params.uri, params.cursor, meta.token) == (UNSET, UNSET, UNSET, UNSET)


WRONG = {
    '{"name":5}': "params.name must be a string",
    '{"name":null}': "params.name must be a string",
    '{"uri":[]}': "params.uri must be a string",
    '{"cursor":1}': "params.cursor must be a string",
    '{"_meta":[]}': "params._meta must be an object",
    '{"_meta":null}': "params._meta must be an object",
    '{"_meta":{"progressToken":1.5}}': "progressToken must be an integer or a string",
    '{"_meta":{"progressToken":null}}': "progressToken must be an integer or a string",
    f'{{"_meta":{{"progressToken":"{"t" * 1025}"}}}}': "a string of at most 1024 characters",
    f'{{"_meta":{{"{PREFIX}protocolVersion":2026}}}}': "protocolVersion'] must be a string",
    f'{{"_meta":{{"{PREFIX}logLevel":[]}}}}': "logLevel'] must be a string",
}


@pytest.mark.parametrize(("params", "text"), WRONG.items())
def test_a_member_of_the_wrong_type_is_named(params: str, text: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        take(message(params))
    assert text in caught.value.message


TWICE = {
    "id": b'{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}',
    "id, of two types": b'{"jsonrpc":"2.0","id":1,"id":"1","method":"m"}',
    "id, once escaped": b'{"jsonrpc":"2.0","id":1,"\\u0069d":2,"method":"m"}',
    "method": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}',
    "jsonrpc": b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}',
    "params": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{"name":"x"}}',
    "name": message('{"name":"a","name":"b"}'),
    "name, once escaped": message('{"name":"a","n\\u0061me":"b"}'),
    "arguments": message('{"name":"a","arguments":{"x":"y"},"arguments":{}}'),
    "_meta": message('{"name":"a","_meta":{},"_meta":{}}'),
    "a member we do not know, in params": message('{"name":"a","x":1,"x":2}'),
    "a member we do not know, in the envelope": message("{}", ',"x":1,"x":2'),
    "progressToken": message('{"_meta":{"progressToken":1,"progressToken":2}}'),
    "the version": message(f'{{"_meta":{{"{PREFIX}protocolVersion":"a","{PREFIX}protocolVersion":"b"}}}}'),
    "the version, once escaped": message(
        f'{{"_meta":{{"{PREFIX}protocolVersion":"a","io.modelcontextprotocol\\/protocolVersion":"b"}}}}'
    ),
    "the capabilities": message(
        f'{{"_meta":{{"{PREFIX}clientCapabilities":{{}},"{PREFIX}clientCapabilities":{{"sampling":{{}}}}}}}}'
    ),
    "id in a notification": b'{"jsonrpc":"2.0","method":"m","method":"n"}',
    "result": b'{"jsonrpc":"2.0","id":1,"result":{},"result":{"a":1}}',
    "in arguments": message('{"name":"a","arguments":{"x":1,"x":2}}'),
    "in arguments, once escaped": message('{"name":"a","arguments":{"x":1,"\\u0078":2}}'),
    "in arguments, empty": message('{"name":"a","arguments":{"":1,"":2}}'),
    "in arguments, beside an escaped mark": message('{"name":"a","arguments":{"x":"\\u0022\\u0022","x":2}}'),
    "in arguments, beside a huge number": message('{"name":"a","arguments":{"x":1e999,"x":2}}'),
    "deep in arguments": message('{"name":"a","arguments":{"x":[[{"y":{"z":1,"z":2}}]]}}'),
    "_meta in arguments": message('{"name":"a","arguments":{"name":"b","_meta":{"a":1,"a":2}}}'),
    "in clientInfo": message(f'{{"_meta":{{"{PREFIX}clientInfo":{{"name":"a","name":"b"}}}}}}'),
    "in clientCapabilities": message(f'{{"_meta":{{"{PREFIX}clientCapabilities":{{"a":{{"b":1,"b":2}}}}}}}}'),
    "in inputResponses": message('{"inputResponses":{"a":1,"a":2}}'),
    "in a member we do not know": message('{"name":"a","x":[{"y":1,"y":2}]}'),
    "in a notification": b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}',
    "in a result": b'{"jsonrpc":"2.0","id":1,"result":{"action":"decline","action":"accept"}}',
    "in an error": b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"code":2,"message":""}}',
}


@pytest.mark.parametrize("body", TWICE.values(), ids=TWICE.keys())
def test_a_member_that_comes_twice_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        take(body)
    assert "is repeated" in caught.value.message


@pytest.mark.parametrize(
    "arguments",
    [
        '{"x":{"x":{"x":1}},"y":[{"x":1},{"x":2}]}',
        '{"x":"{\\"x\\":1,\\"x\\":2}"}',
        '{"x":"\\u0022","y":"\\\\u0022"}',
        '{"x":1e999,"X":-1e999}',
    ],
)
def test_the_same_name_in_several_objects_is_not_a_repeated_member(arguments: str) -> None:
    params, _ = take(message(f'{{"name":"a","arguments":{arguments}}}'))
    assert bytes(params.arguments) == arguments.encode()


# -- the count of quotation marks, against a look at every member --------------------------------------------------------

STRING = st.sampled_from(
    ['""', '"a"', '"\\""', '"\\\\"', '"\\u0022"', '"\\\\u0022"', '"{\\"id\\":1}"', '"é"', '"[,:]"']
)
BLANK = st.sampled_from(["", " ", "\n", "\t \r"])
SCALAR = STRING | st.sampled_from(["1", "-2.5e3", "1e999", "9" * 40, "true", "null"])
NAMES = ["name", "uri", "cursor", "arguments", "_meta", "x", "na\\u006de", "inputResponses"]
METAS = [
    "progressToken",
    PREFIX + "protocolVersion",
    PREFIX + "clientInfo",
    "io.modelcontextprotocol\\/clientInfo",
    PREFIX + "clientCapabilities",
    PREFIX + "logLevel",
    "y",
]


def written(pairs: Sequence[tuple[str, str]], blank: str) -> str:
    return "{" + f"{blank},{blank}".join(f'{blank}"{key}"{blank}:{blank}{value}' for key, value in pairs) + blank + "}"


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.sampled_from(["a", "id", "b\\u0062", "bb", "", '\\"', "\\u0022"])
    return st.builds(written, st.lists(st.tuples(names, values), max_size=3), BLANK)


ANY = st.recursive(SCALAR, lambda inner: objects(inner) | inner.map(lambda one: f"[{one}]"), max_leaves=4)


def value_of(key: str) -> st.SearchStrategy[str]:
    """Mostly what the member is meant to hold, so that what is tried is the arithmetic and not the types."""
    match json.loads(f'"{key}"'):
        case "name" | "uri" | "cursor":
            return STRING
        case "arguments":
            return objects(ANY)
        case "progressToken":
            return STRING | st.just("12")
        case text if text.endswith(("protocolVersion", "logLevel")):
            return STRING
        case text if text.startswith(PREFIX):
            return objects(ANY)
    return ANY


def members(names: list[str]) -> st.SearchStrategy[list[tuple[str, str]]]:
    one = st.sampled_from(names).flatmap(lambda key: st.tuples(st.just(key), value_of(key)))
    return st.lists(one, max_size=4)


META_TEXT = st.builds(written, members(METAS), BLANK)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    params = [(key, draw(META_TEXT) if key == "_meta" else value) for key, value in draw(members(NAMES))]
    envelope = [("jsonrpc", '"2.0"'), ("method", '"tools/call"'), ("id", draw(st.sampled_from(["1", '"1"', '"\\""'])))]
    envelope.append(("params", written(params, draw(BLANK))))
    envelope += draw(st.lists(st.sampled_from([("id", "2"), ("x", '"y"'), ("m\\u0065thod", '"z"')]), max_size=1))
    return written(draw(st.permutations(envelope)), draw(BLANK)).encode()


def comes_twice(body: bytes) -> bool:
    """The rule itself: no object, however deep, has a member twice."""
    found: list[bool] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        found.append(len(pairs) != len({name for name, _ in pairs}))

    json.loads(body, object_pairs_hook=note)
    return any(found)


@settings(deadline=None, max_examples=examples(75))
@given(messages())
def test_a_repeated_member_is_never_missed_and_nothing_else_is_taken_for_one(body: bytes) -> None:
    try:
        take(body)
        found = False
    except InvalidParams:
        # Another rule came first.
        return
    except InvalidRequest as refusal:
        found = "is repeated" in refusal.message
    assert found == comes_twice(body)
