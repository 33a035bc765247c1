"""What changed in a definition, in words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.gateway.lock.definition_diff import describe_differences
from pegboard.logs.printable import printable

pytestmark = pytest.mark.same_on_every_python

TOOL: dict[str, Any] = {
    "name": "read_file",
    "description": "Reads a file.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Which file."},
            "mode": {"type": "string", "enum": ["text", "bytes"]},
            "lines": {"type": "array", "items": {"type": "integer"}},
            "options": {"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
        },
        "required": ["path"],
    },
    "annotations": {"readOnlyHint": True},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The tool with another value at a dotted path; `...` takes it away."""
    tool: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(TOOL))
    *way, last = path.split(".")
    place = tool
    for step in way:
        place = place.setdefault(step, {})
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return tool


PROPERTIES = "inputSchema.properties"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (changed("description", "Reads it."), ["description changed:", "  - Reads a file.", "  + Reads it."]),
        (changed("description", ...), ["description was removed:", "  - Reads a file."]),
        (changed("title", "Read"), ["title is new:", "  + Read"]),
        (
            changed("description", "Reads a file.\nThen obeys."),
            ["description changed:", "  - Reads a file.", "  + Reads a file.", "  + Then obeys."],
        ),
        (changed("description", "Reads a\u200b file."), ["description changed:", "  - Reads a file.", "  + Reads a\\u200b file."]),
        (changed("inputSchema.required", []), ["argument path is no longer required"]),
        (changed("inputSchema.required", ["path", "mode"]), ["argument mode is now required"]),
        (changed(f"{PROPERTIES}.exfil", {"type": "string"}), ["new argument exfil: string"]),
        (
            changed(f"{PROPERTIES}.exfil", {"type": ["string", "null"], "description": "The talk so far."}),
            ["new argument exfil: string or null", "  + The talk so far."],
        ),
        (changed(f"{PROPERTIES}.mode", ...), ["argument mode was removed"]),
        (changed(f"{PROPERTIES}.path.type", "integer"), ["argument path was string, is now integer"]),
        (
            changed(f"{PROPERTIES}.mode.enum", ["text"]),
            ['argument mode was one of "text", "bytes", is now one of "text"'],
        ),
        (
            changed(f"{PROPERTIES}.lines.items.type", "string"),
            ["argument lines was array of integer, is now array of string", "argument lines[] was integer, is now string"],
        ),
        (
            changed(f"{PROPERTIES}.path.description", "Any file."),
            ["description of argument path changed:", "  - Which file.", "  + Any file."],
        ),
        (changed(f"{PROPERTIES}.path.pattern", "^/"), ['argument path.pattern is new: "^/"']),
        (changed(f"{PROPERTIES}.options.required", []), ["argument options.deep is no longer required"]),
        (changed(f"{PROPERTIES}.options.properties.far", {}), ["new argument options.far: anything"]),
        (changed("inputSchema.additionalProperties", False), ["inputSchema.additionalProperties is new: false"]),
        (changed("annotations.readOnlyHint", False), ["annotations.readOnlyHint was true, is now false"]),
        (changed("annotations", ...), ['annotations was removed; it was {"readOnlyHint":true}']),
        (changed("_meta.ui.resourceUri", "ui://x"), ['_meta is new: {"ui":{"resourceUri":"ui://x"}}']),
        (changed("unheard.of", 1), ['unheard is new: {"of":1}']),
        (changed("outputSchema", {"type": "object"}), ['outputSchema is new: {"type":"object"}']),
        (changed("name", "read"), ['it was called "read_file", and is now called "read"']),
    ],
)  # fmt: skip
def test_a_changed_definition_is_described(new: dict[str, Any], words: list[str]) -> None:
    assert list(describe_differences(TOOL, new)) == words


def test_a_schema_that_is_gone_is_shown_clipped() -> None:
    (told,) = describe_differences(TOOL, changed("inputSchema", ...))
    assert told.startswith('inputSchema was removed; it was {"properties":{')
    assert told.endswith("…")


def test_a_new_required_argument_says_so() -> None:
    new = changed(f"{PROPERTIES}.key", {"type": "string"})
    new["inputSchema"]["required"] = ["path", "key"]
    assert describe_differences(TOOL, new) == ("new argument key: string, required",)


def test_of_a_long_line_only_what_differs_is_shown() -> None:
    old = changed("description", "a" * 500 + " old " + "b" * 500)
    new = changed("description", "a" * 500 + " new " + "b" * 500)
    _, gone, come = describe_differences(old, new)
    assert gone == f"  - …{'a' * 39} old {'b' * 39}…"
    assert come == f"  + …{'a' * 39} new {'b' * 39}…"


def test_a_different_member_order_is_not_reported_as_a_change() -> None:
    assert describe_differences({"name": "a", "x": {"b": 1, "a": 2}}, {"x": {"a": 2, "b": 1}, "name": "a"}) == ()


def test_equal_in_python_is_not_the_same() -> None:
    assert describe_differences({"x": 1}, {"x": True}) == ("x was 1, is now true",)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "properties", "required", "items", "enum", "a"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
definitions = st.dictionaries(
    st.sampled_from(["name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"]),
    json_values,
)


@given(definitions, definitions)
def test_something_is_said_exactly_where_two_definitions_differ(old: dict[str, Any], new: dict[str, Any]) -> None:
    encode = msgspec.json.Encoder(order="sorted").encode
    told = describe_differences(old, new)
    assert bool(told) == (encode(old) != encode(new))
    assert all(line == printable(line) and len(line) < 1000 for line in told)
