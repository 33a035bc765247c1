"""The headers that mirror a body: how values travel in them, and which are refused."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.errors import HeaderMismatch
from pegboard.protocol.headers import check_mirror, check_params, decode_value, encode_value, is_single

pytestmark = pytest.mark.same_on_every_python


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", b"us-west1"),
        ("Hello, 世界", b"=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", b"=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", b"=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", b""),
    ],
)
def test_values_are_written_as_the_examples_of_the_specification(value: str, header: bytes) -> None:
    assert encode_value(value) == header
    assert decode_value("Mcp-Name", header) == value


@settings(deadline=None)
@given(st.text())
def test_every_text_comes_back_from_a_header_that_any_server_can_carry(value: str) -> None:
    header = encode_value(value)
    assert all(32 <= byte < 127 for byte in header)
    assert header == header.strip()
    assert decode_value("Mcp-Name", header) == value


@settings(deadline=None)
@given(st.binary())
def test_any_header_is_a_text_or_a_mismatch(raw: bytes) -> None:
    try:
        value = decode_value("Mcp-Name", raw)
    except HeaderMismatch:
        return
    assert decode_value("Mcp-Name", encode_value(value)) == value


@pytest.mark.parametrize(
    "header",
    [
        b"=?base64?SGVsbG8?=",  # no padding
        b"=?base64?SGVs!!!bG8=?=",  # not of the alphabet
        b"=?base64?SGVsbG8==?=",  # too much padding
        b"=?base64?SGVsbG9=?=",  # spare bits that are not zero
        b"=?base64?SGVs bG8=?=",
        b"=?base64?_-8=?=",  # the alphabet of URLs
        b"=?base64?/w==?=",  # not UTF-8
        b"caf\xe9",
        b"caf\xc3\xa9",
        b"a\x7fb",
    ],
)
def test_a_value_that_cannot_have_been_written_by_the_rules_is_a_mismatch(header: bytes) -> None:
    with pytest.raises(HeaderMismatch, match="Mcp-Name"):
        decode_value("Mcp-Name", header)


@pytest.mark.parametrize(
    "header",
    [b"SGVsbG8=", b"=?base64?SGVsbG8=", b"SGVsbG8=?=", b"=?BASE64?SGVsbG8=?=", b"=?Base64?SGVsbG8=?=", b"=?base64?="],
)
def test_a_value_without_both_markers_as_they_are_spelled_is_taken_literally(header: bytes) -> None:
    assert decode_value("Mcp-Name", header) == header.decode()


def coded(text: str) -> bytes:
    return b"=?base64?" + base64.b64encode(text.encode()) + b"?="


GOOD = [
    ("tools/list", "", {b"mcp-method": b"tools/list"}),
    ("tools/list", "", {b"mcp-method": b"tools/list", b"mcp-name": b"anything"}),
    ("tools/call", "add", {b"mcp-method": b"tools/call", b"mcp-name": b"add"}),
    ("tools/call", "add", {b"mcp-method": b"tools/call", b"mcp-name": coded("add")}),
    ("tools/call", "größe", {b"mcp-method": b"tools/call", b"mcp-name": coded("größe")}),
    ("tools/call", "=?base64?YQ==?=", {b"mcp-method": b"tools/call", b"mcp-name": coded("=?base64?YQ==?=")}),
    ("resources/read", "file:///a", {b"mcp-method": b"resources/read", b"mcp-name": b"file:///a"}),
]


@pytest.mark.parametrize(("method", "about", "headers"), GOOD)
def test_headers_that_say_what_the_body_says_pass(method: str, about: str, headers: dict[bytes, bytes]) -> None:
    check_mirror(headers, method, about)


BAD = [
    ("tools/list", "", {}, "missing"),
    ("tools/list", "", {b"mcp-method": b"prompts/list"}, "prompts/list"),
    ("tools/list", "", {b"mcp-method": b"TOOLS/LIST"}, "TOOLS/LIST"),
    ("tools/list", "", {b"mcp-method": coded("tools/list")}, "base64"),
    ("größe", "", {b"mcp-method": "größe".encode()}, "Mcp-Method"),
    ("größe", "", {b"mcp-method": "größe".encode("latin-1")}, "Mcp-Method"),
    ("tools/call", "add", {b"mcp-method": b"tools/call"}, "Mcp-Name header is missing"),
    ("tools/call", "add", {b"mcp-method": b"tools/call", b"mcp-name": b"Add"}, "Add"),
    ("tools/call", "add", {b"mcp-method": b"tools/call", b"mcp-name": coded("sub")}, "sub"),
    ("tools/call", "add", {b"mcp-method": b"tools/call", b"mcp-name": b"=?base64?YWRk"}, "YWRk"),
    ("tools/call", "größe", {b"mcp-method": b"tools/call", b"mcp-name": "größe".encode()}, "Mcp-Name"),
    # Read by the rules, this header says "a": a proxy would route to another tool than the body names.
    ("tools/call", "=?base64?YQ==?=", {b"mcp-method": b"tools/call", b"mcp-name": b"=?base64?YQ==?="}, "Mcp-Name"),
]


@pytest.mark.parametrize(("method", "about", "headers", "text"), BAD)
def test_headers_that_are_missing_differ_or_are_malformed_are_a_mismatch(
    method: str, about: str, headers: dict[bytes, bytes], text: str
) -> None:
    with pytest.raises(HeaderMismatch) as caught:
        check_mirror(headers, method, about)
    assert text in caught.value.message


@pytest.mark.parametrize(
    ("name", "single"),
    [
        (b"mcp-session-id", True),
        (b"mcp-protocol-version", True),
        (b"mcp-method", True),
        (b"mcp-name", True),
        (b"mcp-param-region", True),
        (b"authorization", True),
        (b"origin", True),
        (b"last-event-id", True),
        (b"accept", False),
        (b"x-forwarded-for", False),
    ],
)
def test_headers_that_route_or_identify_come_once(name: bytes, single: bool) -> None:
    assert is_single(name) is single


# -- headers that mirror arguments -------------------------------------------------------------------------------------

MIRRORS = {"Region": ("region",), "Zone": ("where", "zone")}
PLAIN = st.text() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1)


def written(value: str | bool | int) -> bytes:
    """A value as the rules for clients have it."""
    return encode_value(value if isinstance(value, str) else str(value).lower())


@settings(deadline=None)
@given(PLAIN, st.none() | PLAIN)
def test_what_a_client_writes_by_the_rules_is_accepted(region: str | bool | int, zone: str | bool | int | None) -> None:
    headers = {b"mcp-param-region": written(region), b"mcp-param-unknown": b"\xff"}
    if zone is not None:
        headers[b"mcp-param-zone"] = written(zone)
    check_params(headers, MIRRORS, {"region": region, "where": {"zone": zone}, "other": 1})


@settings(deadline=None)
@given(PLAIN, PLAIN)
def test_a_header_that_says_something_else_is_a_mismatch(told: str | bool | int, value: str | bool | int) -> None:
    if written(told) == written(value):
        return
    with pytest.raises(HeaderMismatch, match="Mcp-Param-Region"):
        check_params({b"mcp-param-region": written(told)}, MIRRORS, {"region": value})


@pytest.mark.parametrize(
    ("header", "value"),
    [(b"42", 42), (b"42.0", 42), (b"42", 42.0), (b"-7", -7), (b"042", 42), (b"=?base64?NDI=?=", 42), (b"", "")],
)
def test_integers_are_compared_as_numbers(header: bytes, value: object) -> None:
    check_params({b"mcp-param-region": header}, MIRRORS, {"region": value})


@pytest.mark.parametrize(
    ("header", "arguments"),
    [
        (b"1", {"region": True}),
        (b"True", {"region": True}),
        (b"true", {"region": "True"}),
        (b"42 ", {"region": 42}),
        (b"4e1", {"region": 40}),
        (b"NaN", {"region": 1}),
        (b"1" * 5000, {"region": 1}),
        (b"9007199254740992", {"region": 2**53}),
        (b"a", {}),
        (b"", {}),
        (b"null", {"region": None}),
        (b"a", []),
        (b"a", "a"),
        (b"[]", {"region": []}),
        (b"{}", {"region": {}}),
        (None, {"region": "a"}),
        (None, {"region": ""}),
        (None, {"region": False}),
        (None, {"region": 0}),
    ],
)
def test_a_header_without_its_value_and_a_value_without_its_header_are_mismatches(
    header: bytes | None, arguments: object
) -> None:
    headers = {} if header is None else {b"mcp-param-region": header}
    with pytest.raises(HeaderMismatch, match="Mcp-Param-Region"):
        check_params(headers, MIRRORS, arguments)


@pytest.mark.parametrize("where", [None, {}, {"zone": None}, "zone", [{"zone": 1}], '{"zone": 1}'])
def test_a_value_is_looked_for_only_at_its_very_place(where: object) -> None:
    check_params({}, MIRRORS, {"where": where})
