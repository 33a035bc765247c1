"""The short way to a call: whatever goes it, the long way would have read as the same call."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.call import EMPTY_OBJECT, NO_CALLER
from pegboard.errors import ParseFailure, Refusal
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import NOTHING
from pegboard.protocol.params import read_params
from pegboard.protocol.revisions import MODERN
from pegboard.server.exchange.admission import CallerCache, is_modern
from pegboard.server.exchange.fast_path import CallPattern, FastPath, PlainCall
from tests.server.fake_sink import envelope

LIMITS = Limits(json_depth=24, integer_digits=300)


class KnownSender:
    """Keeps the pattern of its last call, as a connection does."""

    pattern: CallPattern | None = None


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
    plain = shortcut.read(call(arguments, meta, request_id), KnownSender())
    assert plain is not None
    assert plain.id == json.loads(request_id)
    assert plain.name == "add"
    assert json.loads(bytes(plain.raw)) == json.loads(arguments or "{}")
    assert plain.caller is (NO_CALLER if meta is None else callers.known[META.encode()][0])


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
    assert reader()[0].read(body, KnownSender()) is None


@pytest.mark.parametrize("body", [call().replace(b"add", b"\xff"), call('{"a":' + "1" * 301 + "}")])
def test_what_no_reader_may_take_is_refused_at_once(body: bytes) -> None:
    with pytest.raises(ParseFailure):
        reader()[0].read(body, KnownSender())


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
        plain: PlainCall | None = shortcut.read(body, KnownSender())
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
    assert plain.raw == (EMPTY_OBJECT if params.arguments is NOTHING else params.arguments)
    assert is_modern(params) == (plain.caller is not NO_CALLER)
    if plain.caller is not NO_CALLER:
        assert callers.read(params, MODERN) == (plain.caller, None)
    else:
        assert params.meta is NOTHING


def same_call(first: PlainCall, second: PlainCall) -> bool:
    return (first.id, first.name, first.raw, first.params, first.caller) == (
        *(second.id, second.name, second.raw, second.params),
        second.caller,
    )


def id_last(body: bytes) -> bytes:
    """The same message with its id at the end."""
    start, _, rest = body.partition(b'"id":')
    number, _, rest = rest.partition(b",")
    return start + rest[:-1] + b',"id":' + number + b"}"


@pytest.mark.parametrize("order", [bytes, id_last])
@pytest.mark.parametrize("meta", [None, META])
def test_a_repeated_call_is_read_by_the_pattern_of_the_last_one(meta: str | None, order: Any) -> None:
    shortcut, _ = reader()
    sender = KnownSender()
    first = shortcut.read(order(call('{"a":1}', meta)), sender)
    pattern = sender.pattern
    assert pattern is not None
    repeated = shortcut.read(order(call('{"a":"x","b":[1]}', meta, "20")), sender)
    assert sender.pattern is pattern
    again = shortcut.read(order(call('{"a":"x","b":[1]}', meta, "20")), KnownSender())
    assert first is not None
    assert repeated is not None
    assert again is not None
    assert (first.id, repeated.id) == (1, 20)
    assert same_call(repeated, again)
    assert repeated._beside is not None
    assert bytes(repeated.raw).join(repeated._beside) == bytes(repeated.params)


@pytest.mark.parametrize(
    "first",
    [
        call('{"a":1}', write({**envelope(), "arguments": {"a": 1}})),
        call('{"a":1}').replace(b'"arguments"', b'"argum\\u0065nts"'),
        call('{"a":1}').replace(b'"id"', b'"\\u0069d"'),
        call('{"a":1}').replace(b'"params"', b'"p\\u0061rams"'),
        call('{"arguments":{"a":1}}'),
        call('{"a":1}', request_id="-1"),
        call('{"a":1}', request_id='"1"'),
        call(None),
        call('{"a":"' + 2048 * "x" + '"}'),
    ],
)
def test_a_call_whose_places_are_not_certain_makes_no_pattern(first: bytes) -> None:
    callers = CallerCache("http")
    callers.read(read_params(jsonrpc.read(first, Limits())), MODERN)
    sender = KnownSender()
    assert FastPath(Limits(), callers).read(first, sender) is not None
    assert sender.pattern is None


@pytest.mark.parametrize("order", [bytes, id_last])
@pytest.mark.parametrize(
    ("arguments", "request_id"),
    [
        ('{"a":1},"name":"sub"', "1"),
        ('{"a":1},"zzz":{}', "1"),
        ('{"a":1,"a":2}', "1"),
        ('{"a":1', "1"),
        ("", "1"),
        ("{}", "01"),
        ("{}", ""),
        ("{}", '2,"id":3'),
        ("{}", "1.5"),
        ('{"a":' * 22 + "1" + "}" * 22, "1"),
        ("{" + '"a":' + "[" * 20 + "]" * 20 + "}", "1"),
    ],
)
def test_a_body_that_only_looks_like_the_pattern_goes_the_long_way(arguments: str, request_id: str, order: Any) -> None:
    shortcut, _ = reader()
    sender = KnownSender()
    shortcut.read(order(call('{"a":1}')), sender)
    assert sender.pattern is not None
    assert (
        shortcut.read(
            order(call("{}"))
            .replace(b'"arguments":{}', f'"arguments":{arguments}'.encode())
            .replace(b'"id":1', f'"id":{request_id}'.encode()),
            sender,
        )
        is None
    )


@given(BODIES, st.sampled_from(["{}", '{"a":1}', '{"a":"b"}']), st.booleans(), st.booleans())
def test_a_pattern_reads_nothing_that_the_long_way_reads_otherwise(
    body: bytes, arguments: str, with_meta: bool, last: bool
) -> None:
    """Whatever comes after a call, its pattern changes nothing."""
    shortcut, _ = reader()
    sender = KnownSender()
    first = call(arguments, META if with_meta else None)
    assert shortcut.read(id_last(first) if last else first, sender) is not None
    try:
        plain = shortcut.read(body, sender)
    except Refusal:
        return
    fresh = shortcut.read(body, KnownSender())
    assert plain is None if fresh is None else plain is not None and same_call(plain, fresh)


@given(
    VALUES | DEEP | st.text(alphabet='{}[]",:ab1 \\'),
    st.sampled_from(["1", "0", "07", "12", "-1", "1e1", '"1"', "", "9" * 19]),
    st.booleans(),
)
def test_a_pattern_takes_the_arguments_and_ids_that_the_long_way_takes(
    arguments: str, request_id: str, last: bool
) -> None:
    shortcut, _ = reader()
    sender = KnownSender()
    order = id_last if last else bytes
    assert shortcut.read(order(call('{"a":1}')), sender) is not None
    body = order(call("ARGUMENTS", request_id="NUMBER")).replace(
        b"ARGUMENTS", arguments.encode("utf-8", "surrogatepass")
    )
    body = body.replace(b"NUMBER", request_id.encode())
    try:
        plain = shortcut.read(body, sender)
    except Refusal:
        return
    fresh = shortcut.read(body, KnownSender())
    assert plain is None if fresh is None else plain is not None and same_call(plain, fresh)


def test_the_arguments_of_a_call_do_not_hold_the_rest_of_its_body_in_memory() -> None:
    path, _ = reader()
    tracemalloc.start()
    try:
        calls = [path.read(call('{"a":1}') + b" " * 2**20, KnownSender()) for _ in range(20)]
        kept = [found.raw for found in calls if found is not None]
        del calls
        assert len(kept) == 20
        assert tracemalloc.get_traced_memory()[0] < 2**20
    finally:
        tracemalloc.stop()
