"""The short way to a call: whatever goes it, the long way would have read as the same call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.call import EMPTY_OBJECT
from pegboard.errors import ParseFailure, Refusal
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import NOTHING
from pegboard.protocol.params import read_params
from pegboard.protocol.revisions import MODERN
from pegboard.server.exchange.admission import CallerCache, is_modern
from pegboard.server.exchange.fast_path import FastPath, PlainCall
from tests.server.fake_sink import envelope

LIMITS = Limits(json_depth=24, integer_digits=300)


def write(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


META = write(envelope())


def reader() -> tuple[FastPath, CallerCache]:
    """One that has met the sender of META."""
    callers = CallerCache("http")
    body = call(meta=META)
    callers.read(read_params(jsonrpc.read(body, Limits())), MODERN)
    return FastPath(LIMITS, callers), callers


def call(arguments: str | None = "{}", meta: str | None = META, request_id: str = "1", name: str = "add") -> bytes:
    members = [f'"name":{write(name)}']
    members += [] if arguments is None else [f'"arguments":{arguments}']
    members += [] if meta is None else [f'"_meta":{meta}']
    params = "{" + ",".join(members) + "}"
    return f'{{"jsonrpc":"2.0","id":{request_id},"method":"tools/call","params":{params}}}'.encode()


@pytest.mark.parametrize("request_id", ["1", '"a"', '"a\\u0022b"', "123456789012345678901234567890"])
@pytest.mark.parametrize("arguments", [None, "{}", '{"a":1,"b":[1,[2]]}', '{"text":"über"}'])
@pytest.mark.parametrize("meta", [None, META])
def test_a_plain_call_goes_the_short_way(request_id: str, arguments: str | None, meta: str | None) -> None:
    shortcut, callers = reader()
    plain = shortcut.read(call(arguments, meta, request_id))
    assert plain is not None
    assert plain.id == json.loads(request_id)
    assert plain.name == "add"
    assert json.loads(bytes(plain.arguments)) == json.loads(arguments or "{}")
    assert plain.caller is (None if meta is None else callers.known[META.encode()][0])


@pytest.mark.parametrize(
    "body",
    [
        call().replace(b'"id":1', b'"id":1,"id":2'),
        call().replace(b'"name":"add"', b'"name":"add","name":"sub"'),
        call().replace(b'"arguments":{}', b'"arguments":{},"arguments":{}'),
        call().replace(b'"name":"add"', b'"uri":"add"'),
        call().replace(b'"method":"tools/call"', b'"method":"prompts/get"'),
        call().replace(b'"id":1,', b""),
        call().replace(b"{", b'{"more":1,', 1),
        call(meta=write({**envelope(), "progressToken": 1})),
        call(meta=write(envelope("2099-01-01"))),
        call('{"a":1,"a":2}'),
        call('{"a":{"b":[{"c":1,"c":2}]}}'),
        call('{"a":1,"\\u0061":2}'),
        call('{"a":"\\u0022","a":2}'),
        call('[{"a":1,"a":2},1]'),
        call('{"a":[{"b":1,"b":2}],"c":1}'),
        call('{"a":' * 22 + "1" + "}" * 22),
        call("[" * 12 + "]" * 12),
        call(request_id='"a\\"b"'),
        b"[" + call() + b"]",
        b"{}",
        b"",
    ],
)
def test_whatever_else_goes_the_long_way(body: bytes) -> None:
    assert reader()[0].read(body) is None


@pytest.mark.parametrize("body", [call().replace(b"add", b"\xff"), call('{"a":' + "1" * 301 + "}")])
def test_what_no_reader_may_take_is_refused_at_once(body: bytes) -> None:
    with pytest.raises(ParseFailure):
        reader()[0].read(body)


VALUES = st.sampled_from(
    [
        *["null", "true", "0", "-1", "2.5", '""', '"x"', '"tools/call"', '"über"', '"[[["', '"{{"', "[]", "{}"],
        r'"\""',
        r'"\u0022"',
        r'"a\\"',
        r'{"\u0061":1,"a":2}',
        '{"a":1,"a":2}',
        '[1,["2",{"x":"y"}]]',
        '{"params":{}}',
        '{"name":"add","name":"sub"}',
        "12345678901234567890",
        r'{"a":"b\"c\"d"}',
        '[[[["a"]]]]',
        '{"a":{"b":{"c":{}}}}',
    ]
)
MEMBERS = [
    "jsonrpc",
    "id",
    "method",
    "params",
    "result",
    "error",
    "name",
    "uri",
    "arguments",
    "_meta",
    "requestState",
    "x",
]


@st.composite
def objects(draw: st.DrawFn, usual: dict[str, st.SearchStrategy[str]]) -> str:
    """An object with its usual members, now and then one of them missing, wrong, twice or beside others."""
    chosen = [(name, draw(value)) for name, value in usual.items() if draw(st.integers(0, 29))]
    more = range(draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2])))
    chosen += [(draw(st.sampled_from(MEMBERS)), draw(VALUES)) for _ in more]
    return "{" + ",".join(f"{write(name)}:{value}" for name, value in draw(st.permutations(chosen))) + "}"


def or_any(*usual: str) -> st.SearchStrategy[str]:
    return st.sampled_from(range(8)).flatmap(lambda way: st.sampled_from(usual) if way else VALUES)


DEEP = st.integers(1, 26).map(lambda depth: "[" * depth + "]" * depth) | st.integers(1, 26).map(
    lambda depth: '{"a":' * depth + "1" + "}" * depth
)
PARAMS = objects({"name": or_any('"add"'), "arguments": VALUES | DEEP, "_meta": or_any(META)})
BODIES = objects(
    {
        "jsonrpc": or_any('"2.0"'),
        "id": or_any("1", '"a"'),
        "method": or_any('"tools/call"'),
        "params": PARAMS,
    }
).map(lambda text: text.encode("utf-8", "surrogatepass"))


@given(BODIES)
def test_what_goes_the_short_way_is_the_same_call_on_the_long_one(body: bytes) -> None:
    shortcut, callers = reader()
    try:
        plain: PlainCall | None = shortcut.read(body)
    except Refusal as refusal:
        with pytest.raises(type(refusal), match="Parse error"):
            jsonrpc.read(body, LIMITS)
        return
    if plain is None:
        return
    message = jsonrpc.read(body, LIMITS)
    params = read_params(message)
    assert message.method == "tools/call"
    assert (plain.id, plain.name, plain.params) == (message.id, params.name, message.params)
    assert plain.arguments == (EMPTY_OBJECT if params.arguments is NOTHING else params.arguments)
    assert is_modern(params) == (plain.caller is not None)
    if plain.caller is not None:
        assert callers.read(params, MODERN) == (plain.caller, None)
    else:
        assert params.meta is NOTHING
