"""What is a message, what is refused and with which code, and that refusing is cheap."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from pegboard.errors import InvalidParams, InvalidRequest, ParseFailure, Refusal
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import NOTHING, Message

LIMITS = Limits()
GOOD = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


def refuse(body: bytes, limits: Limits = LIMITS) -> Refusal:
    with pytest.raises(Refusal) as caught:
        jsonrpc.read(body, limits)
    return caught.value


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_request_is_read_with_its_params_as_they_came() -> None:
    message = jsonrpc.read(b'{"jsonrpc":"2.0","id":"a","method":"m","params":{"x": [1,  2]},"later":1}', LIMITS)
    assert (message.id, message.method, bytes(message.params)) == ("a", "m", b'{"x": [1,  2]}')


def test_a_notification_has_no_id() -> None:
    message = jsonrpc.read(b'{"jsonrpc":"2.0","method":"m"}', LIMITS)
    assert message.id is UNSET
    assert message.params is NOTHING


@pytest.mark.parametrize("member", [b'"result":{}', b'"result":null', b'"error":{"code":1,"message":"m"}'])
def test_a_response_has_a_result_or_an_error(member: bytes) -> None:
    message = jsonrpc.read(b'{"jsonrpc":"2.0","id":1,%b}' % member, LIMITS)
    assert message.method is UNSET


@pytest.mark.parametrize("text", ["1", "-1", "0", '"1"', '""', "9" * 30, '"' + "x" * 500 + '"', '"\\u00e9"'])
def test_an_id_goes_back_as_it_came(text: str) -> None:
    body = b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % text.encode()
    request_id = jsonrpc.read(body, LIMITS).id
    assert not isinstance(request_id, type(UNSET))
    for answer in (jsonrpc.answer(request_id, b"{}"), jsonrpc.refusal(request_id, InvalidParams("no"))):
        found = json.loads(answer)["id"]
        assert found == json.loads(text)
        assert type(found) is type(json.loads(text))


@pytest.mark.parametrize("text", ["null", "true", "false", "1.5", "1.0", "1e2", "{}", "[]", "[1]", '{"a":1}'])
def test_an_id_that_is_neither_string_nor_integer_is_an_invalid_request_and_never_a_notification(text: str) -> None:
    refusal = refuse(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % text.encode())
    assert (refusal.code, refusal.status, refusal.request_id) == (-32600, 400, None)
    assert "string or an integer" in refusal.message


def test_an_id_has_at_most_1024_characters() -> None:
    body = '{{"jsonrpc":"2.0","id":"{}","method":"m"}}'
    assert jsonrpc.read(body.format("é" * 1024).encode(), LIMITS).id == "é" * 1024
    refusal = refuse(body.format("é" * 1025).encode())
    assert (refusal.code, refusal.request_id) == (-32600, None)
    assert "1025 characters, at most 1024" in refusal.message


# -- what is no message ------------------------------------------------------------------------------------------------

PARSE, INVALID = -32700, -32600

BAD: list[tuple[str, bytes, int, Any]] = [
    ("nothing", b"", PARSE, None),
    ("blanks", b" \r\n ", PARSE, None),
    ("half a message", b'{"jsonrpc":"2.0","id":1,', PARSE, None),
    ("two messages", GOOD + GOOD, PARSE, None),
    ("a trailing comma", b'{"jsonrpc":"2.0","id":1,"method":"m",}', PARSE, None),
    ("single quotes", b"{'jsonrpc':'2.0'}", PARSE, None),
    ("a comment", b'{"jsonrpc":"2.0",/* */"id":1,"method":"m"}', PARSE, None),
    ("a byte order mark", b"\xef\xbb\xbf" + GOOD, PARSE, None),
    ("UTF-16", GOOD.decode().encode("utf-16"), PARSE, None),
    ("UTF-16 without its mark", GOOD.decode().encode("utf-16-le"), PARSE, None),
    ("UTF-32", GOOD.decode().encode("utf-32"), PARSE, None),
    ("Latin-1", '{"jsonrpc":"2.0","id":1,"method":"é"}'.encode("latin-1"), PARSE, None),
    ("an overlong encoding", b'{"jsonrpc":"2.0","id":1,"method":"\xc0\xaf"}', PARSE, None),
    ("a surrogate in UTF-8", b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xed\xa0\x80"}}', PARSE, None),
    ("a lone surrogate", b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\ud800"}}', PARSE, None),
    ("a lone surrogate as the id", b'{"jsonrpc":"2.0","id":"\\udc00","method":"m"}', PARSE, None),
    ("a raw control character", b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\x01"}}', PARSE, None),
    ("an unknown escape", b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\x41"}}', PARSE, None),
    *(
        (f"the number {text}", b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b}}' % text.encode(), PARSE, None)
        for text in ("NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "0x10", "1_000", "-", "1e")
    ),
    ("a string", b'"tools/list"', INVALID, None),
    ("a number", b"1", INVALID, None),
    ("null", b"null", INVALID, None),
    ("an empty object", b"{}", INVALID, None),
    ("no jsonrpc", b'{"id":1,"method":"m"}', INVALID, 1),
    ("jsonrpc 1.0", b'{"jsonrpc":"1.0","id":1,"method":"m"}', INVALID, 1),
    ("jsonrpc as a number", b'{"jsonrpc":2.0,"id":"a","method":"m"}', INVALID, "a"),
    ("no method", b'{"jsonrpc":"2.0","id":1}', INVALID, 1),
    ("neither method nor id", b'{"jsonrpc":"2.0"}', INVALID, None),
    ("a method of null", b'{"jsonrpc":"2.0","id":1,"method":null}', INVALID, 1),
    ("a method of 5", b'{"jsonrpc":"2.0","id":1,"method":5}', INVALID, 1),
    ("params as a list", b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', INVALID, 1),
    ("params of null", b'{"jsonrpc":"2.0","id":1,"method":"m","params":null}', INVALID, 1),
    ("params as a string", b'{"jsonrpc":"2.0","id":1,"method":"m","params":"a"}', INVALID, 1),
    ("a request with a result", b'{"jsonrpc":"2.0","id":1,"method":"m","result":{}}', INVALID, 1),
    ("a request with an error", b'{"jsonrpc":"2.0","id":1,"method":"m","error":{}}', INVALID, 1),
    ("a response with both", b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', INVALID, 1),
    ("a response without an id", b'{"jsonrpc":"2.0","result":{}}', INVALID, None),
]


@pytest.mark.parametrize(("body", "code", "request_id"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_an_invalid_message_is_rejected_with_the_exact_code_and_its_id_if_present(
    body: bytes, code: int, request_id: Any
) -> None:
    refusal = refuse(body)
    assert (refusal.code, refusal.status, refusal.request_id) == (code, 400, request_id)
    assert refusal.message


def attempt(body: bytes) -> Message | Refusal:
    try:
        return jsonrpc.read(body, LIMITS)
    except Refusal as refusal:
        return refusal


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_refusal(body: bytes) -> None:
    outcome = attempt(body)
    assert isinstance(outcome, Message) or outcome.code in (PARSE, INVALID)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"])


@settings(deadline=None)
@given(st.dictionaries(MEMBERS, JSON | st.just("2.0"), max_size=7), st.integers(0, 400), st.binary(max_size=3))
def test_near_misses_are_a_message_or_a_refusal(members: dict[str, Any], at: int, noise: bytes) -> None:
    whole = json.dumps(members).encode()
    for body in (whole, whole[:at] + noise + whole[at:]):
        outcome = attempt(body)
        if isinstance(outcome, Message):
            assert json.loads(body)["jsonrpc"] == outcome.jsonrpc
        else:
            assert outcome.code in (PARSE, INVALID)
            assert json.loads(jsonrpc.refusal(outcome.request_id, outcome))["error"]["code"] == outcome.code


# -- limits ------------------------------------------------------------------------------------------------------------


def nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    # The message and its params are two levels already.
    inner = levels - 2
    return b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b}}' % (opening * inner + closing * inner).encode()


def test_nesting_is_allowed_to_its_limit_and_refused_beyond() -> None:
    assert jsonrpc.read(nested(128), LIMITS).id == 1
    refusal = refuse(nested(129))
    assert refusal.code == PARSE
    assert "128 levels" in refusal.message
    assert refuse(nested(12), Limits(json_depth=11)).code == PARSE


def test_objects_nest_like_arrays() -> None:
    assert jsonrpc.read(nested(127, '{"a":', "}").replace(b":}", b":1}"), LIMITS).id == 1
    assert refuse(nested(129, '{"a":', "}").replace(b":}", b":1}")).code == PARSE


def test_many_brackets_side_by_side_are_not_deep() -> None:
    flat = b",".join([b'[{"a":[]}]'] * 500)
    assert jsonrpc.read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[%b]}}' % flat, LIMITS).id == 1


def test_brackets_in_strings_are_text() -> None:
    text = rb"[[{{\"[\\" * 100
    assert jsonrpc.read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"%b"}}' % text, LIMITS).id == 1


@pytest.mark.parametrize("text", ["[" * 5000, "]" * 5000, "[}" * 5000, '["' * 5000, "{" * 200 + '"a', "[" * 100_000])
def test_brackets_that_do_not_match_are_a_parse_error(text: str) -> None:
    assert refuse(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b' % text.encode()).code == PARSE


# A long text, with brackets and escaped quotation marks, is skipped.
TEXT = '[{"a": "\\' * 2000


@settings(deadline=None)
@given(JSON, st.integers(1, 12), st.sampled_from(["", TEXT]), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_the_depth_that_is_measured_is_the_depth_there_is(
    value: Any, levels: int, text: str, separators: tuple[str, str]
) -> None:
    def depth(value: Any) -> int:
        match value:
            case dict():
                return 1 + max(map(depth, value.values()), default=0)
            case list():
                return 1 + max(map(depth, value), default=0)
        return 0

    message = {"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"text": text, "a": value}}
    body = json.dumps(message, separators=separators).encode()
    limits = Limits(json_depth=levels)
    if 2 + depth(value) > levels:
        assert "levels" in refuse(body, limits).message
    else:
        assert jsonrpc.read(body, limits).id == 1


@pytest.mark.parametrize("members", ['"a":%s,"a":1', '"a":1,"a":%s', '"a":{"b":%s,"b":1}'])
def test_a_value_under_a_repeated_name_counts_for_the_depth(members: str) -> None:
    params = members % ("[" * 200 + "]" * 200) + ',"text":' + json.dumps(TEXT)
    refusal = refuse(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{%b}}' % params.encode())
    assert "levels" in refusal.message


@pytest.mark.parametrize("sign", ["", "-", "1.", "1e"])
def test_numbers_have_at_most_400_digits(sign: str) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b}}'
    assert jsonrpc.read(body % (sign + "1" * 400).encode(), LIMITS).id == 1
    refusal = refuse(body % (sign + "1" * 401).encode())
    assert (refusal.code, "400 digits" in refusal.message) == (PARSE, True)


def test_digits_in_strings_are_text() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"%b"}}' % (b"1" * 5000)
    assert jsonrpc.read(body, LIMITS).id == 1


def test_a_huge_id_comes_back_whole() -> None:
    text = b"-" + b"9" * 400
    request_id = jsonrpc.read(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % text, LIMITS).id
    assert isinstance(request_id, int)
    assert b'"id":%b,' % text in jsonrpc.answer(request_id, b"{}")
    assert b'"id":%b,' % text in jsonrpc.refusal(request_id, InvalidParams("no"))


MEGABYTE = 1024 * 1024
TRAPS = {
    "a string that never ends, full of escaped quotes": b"[" * 200 + b'"' + b'\\"' * (MEGABYTE // 2),
    "many strings that never end": b"[" * 200 + b'"\\' * (MEGABYTE // 2),
    "numbers just short enough": b"[" + (b"1" * 400 + b",") * (MEGABYTE // 401) + b"1]",
    "flat arrays": b"[" + b"[]," * (MEGABYTE // 3) + b"1]",
    "towers of allowed height": b"[" + (b"[" * 127 + b"]" * 127 + b",") * (MEGABYTE // 255) + b"1]",
    "brackets that never close": b"[" * MEGABYTE,
    "brackets that do not match": b"[}" * (MEGABYTE // 2),
}


@pytest.mark.parametrize("body", TRAPS.values(), ids=TRAPS.keys())
def test_looking_at_a_hostile_body_takes_time_in_proportion_to_it(body: bytes) -> None:
    started = time.process_time()
    with contextlib.suppress(ParseFailure):
        jsonrpc.check_text(body, LIMITS)
    # Quadratic work on a megabyte would take hours; the linear work tens of milliseconds.
    assert time.process_time() - started < 2


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_batch_is_split_into_the_bytes_of_its_messages() -> None:
    assert jsonrpc.read_batch(b' [{"a": 1}, 2 ,"x"] ', LIMITS) == [b'{"a": 1}', b"2", b'"x"']


@pytest.mark.parametrize(("body", "batch"), [(b"[", True), (b" \r\n\t[]", True), (b"{}", False), (b"", False)])
def test_a_batch_is_known_by_its_first_character(body: bytes, batch: bool) -> None:
    assert jsonrpc.is_batch(body) is batch


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"[]", INVALID), (b"[1", PARSE), (b"[1]]", PARSE), (b'["\xff"]', PARSE), (b"[" + b"1," * 100 + b"1]", INVALID)],
)
def test_a_batch_that_is_empty_too_long_or_broken_is_refused(body: bytes, code: int) -> None:
    with pytest.raises(Refusal) as caught:
        jsonrpc.read_batch(body, LIMITS)
    assert caught.value.code == code


def test_a_batch_holds_a_hundred_messages() -> None:
    assert len(jsonrpc.read_batch(b"[" + b"1," * 99 + b"1]", LIMITS)) == 100


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_without_a_readable_id_has_none() -> None:
    assert json.loads(jsonrpc.refusal(None, InvalidRequest("no"))) == {
        "jsonrpc": "2.0",
        "error": {"code": -32600, "message": "no"},
    }


def test_an_error_carries_its_data() -> None:
    sent = json.loads(jsonrpc.refusal(1, InvalidParams("no", {"suggestions": ["a"]})))
    assert sent["error"] == {"code": -32602, "message": "no", "data": {"suggestions": ["a"]}}
