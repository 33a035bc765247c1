"""Arguments in headers: which tools can be called so, and how each value is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.client.transports.mirrored_headers import mirror, mirrored_parameters, usable_tools
from pegboard.errors import HeaderMismatch
from pegboard.protocol.headers import check_params


def tool(**properties: Any) -> dict[str, Any]:
    return {"name": "t", "inputSchema": {"type": "object", "properties": properties}}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("us-west1", b"Mcp-Param-R: us-west1\r\n"),
        ("Hello, 世界", b"Mcp-Param-R: =?base64?SGVsbG8sIOS4lueVjA==?=\r\n"),
        (" padded ", b"Mcp-Param-R: =?base64?IHBhZGRlZCA=?=\r\n"),
        ("line1\nline2", b"Mcp-Param-R: =?base64?bGluZTEKbGluZTI=?=\r\n"),
        ("=?base64?literal?=", b"Mcp-Param-R: =?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=\r\n"),
        ("", b"Mcp-Param-R: \r\n"),
        (True, b"Mcp-Param-R: true\r\n"),
        (False, b"Mcp-Param-R: false\r\n"),
        (-7, b"Mcp-Param-R: -7\r\n"),
        (42.0, b"Mcp-Param-R: 42\r\n"),
        (None, b""),
        ([1], b""),
        ({}, b""),
        (1.5, b""),
    ],
)
def test_a_value_is_written_as_the_specification_shows(value: Any, line: bytes) -> None:
    assert mirror({"R": ["r"]}, {"r": value}) == line
    assert mirror({"R": ["r"]}, msgspec.Raw(msgspec.json.encode({"r": value}))) == line


def test_a_value_is_found_at_its_exact_path() -> None:
    part = {"type": "object", "properties": {"b": {"type": "string", "x-mcp-header": "B"}}}
    mirrors = mirrored_parameters(tool(a=part, c={"type": "string"}))
    assert mirror(mirrors, {"a": {"b": "x"}, "b": "y", "c": "z"}) == b"Mcp-Param-B: x\r\n"
    assert mirror(mirrors, {"a": "x"}) == b""
    assert mirror(mirrors, {}) == b""


@given(st.text() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1))
def test_what_we_write_every_server_that_checks_takes(value: Any) -> None:
    try:
        value = msgspec.json.decode(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return
    name, _, text = mirror({"R": ["r"]}, {"r": value}).removesuffix(b"\r\n").partition(b": ")
    check_params({name.lower(): text}, {"R": ["r"]}, {"r": value})
    with pytest.raises(HeaderMismatch):
        check_params({name.lower(): text}, {"R": ["r"]}, {"r": f"{value}."})


@pytest.mark.parametrize(
    "part",
    [
        {"type": "string", "x-mcp-header": ""},
        {"type": "string", "x-mcp-header": "a b"},
        {"type": "string", "x-mcp-header": "a:b"},
        {"type": "string", "x-mcp-header": "é"},
        {"type": "string", "x-mcp-header": "a\r\nb"},
        {"type": "string", "x-mcp-header": 5},
        {"type": "number", "x-mcp-header": "R"},
        {"type": "object", "x-mcp-header": "R"},
        {"type": "array", "x-mcp-header": "R"},
        {"type": "null", "x-mcp-header": "R"},
        {"type": "array", "items": {"type": "string", "x-mcp-header": "R"}},
    ],
)
def test_a_tool_whose_annotation_is_invalid_is_left_out(part: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    good = tool(r={"type": "string", "x-mcp-header": "R"})
    assert usable_tools([tool(r=part), good], "there") == [good]
    assert "there: a tool is omitted from its list" in caplog.text


def test_two_annotations_that_differ_in_case_alone_are_invalid() -> None:
    one, two = ({"type": "string", "x-mcp-header": name} for name in ("R", "r"))
    assert usable_tools([tool(a=one, b=two)], "there") == []


@pytest.mark.parametrize(
    "odd", [{}, {"name": "t"}, {"name": "t", "inputSchema": None}, {"inputSchema": {"properties": 3}}]
)
def test_a_tool_without_a_schema_has_nothing_to_mirror(odd: dict[str, Any]) -> None:
    assert usable_tools([odd], "there") == [odd]
    assert mirrored_parameters(odd) == {}
