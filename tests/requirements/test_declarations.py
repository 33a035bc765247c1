"""What an author declares is checked by the rules that clients will hold it to."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Board
from pegboard.errors import DeclarationError
from tests.requirements.clients import ERAS, connect


def declare(board: Board, schema: dict[str, Any]) -> None:
    @board.tool("declared", input_schema=schema)
    def declared(a: Any = None) -> str:
        return "taken"


def with_header(name: Any, part: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {**(part or {"type": "string"}), "x-mcp-header": name}}}


@pytest.mark.requirement(
    "modern/tools/header-annotations",
    "modern/headers/annotation-not-empty",
    "modern/headers/annotation-token",
    "modern/headers/annotation-no-controls",
)
@pytest.mark.parametrize(
    "name", ["", " ", "My Region", "Region:Primary", "Réglon", "Region\t", "Region\r\nX: 1", "Region\0", "a/b", None, 5]
)
def test_an_annotation_with_an_invalid_field_name_is_rejected(name: Any) -> None:
    board = Board()
    with pytest.raises(DeclarationError, match="x-mcp-header"):
        declare(board, with_header(name))
    declare(board, with_header("Region"))


@pytest.mark.requirement("modern/headers/annotation-unique")
@pytest.mark.parametrize("second", ["Region", "REGION", "region"])
def test_two_annotations_of_one_name_are_refused(second: str) -> None:
    schema = with_header("Region", {"type": "object"})
    schema["properties"]["a"] = {
        "type": "object",
        "properties": {
            "one": {"type": "string", "x-mcp-header": "Region"},
            "two": {"type": "object", "properties": {"three": {"type": "string", "x-mcp-header": second}}},
        },
    }
    with pytest.raises(DeclarationError, match="twice"):
        declare(Board(), schema)


@pytest.mark.requirement("modern/headers/annotation-primitive")
@pytest.mark.parametrize("kind", ["number", "object", "array", "null", ["string", "null"], None])
def test_an_annotation_on_anything_but_text_integers_and_booleans_is_refused(kind: Any) -> None:
    board = Board()
    with pytest.raises(DeclarationError, match="only strings, integers and booleans"):
        declare(board, with_header("Region", {"description": "any"} if kind is None else {"type": kind}))


@pytest.mark.parametrize("kind", ["string", "integer", "boolean"])
def test_text_integers_and_booleans_may_be_annotated(kind: str) -> None:
    declare(Board(), with_header("Region", {"type": kind}))


ANNOTATED = {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.requirement("modern/headers/annotation-reachable")
@pytest.mark.parametrize(
    "part",
    [
        {"type": "array", "items": ANNOTATED},
        {"type": "array", "prefixItems": [ANNOTATED]},
        {"type": "array", "contains": ANNOTATED},
        {"anyOf": [ANNOTATED, {"type": "null"}]},
        {"oneOf": [{"type": "object", "properties": {"b": ANNOTATED}}]},
        {"allOf": [ANNOTATED]},
        {"not": ANNOTATED},
        {"if": ANNOTATED, "then": {}},
        {"type": "object", "additionalProperties": ANNOTATED},
        {"type": "object", "patternProperties": {"^x": ANNOTATED}},
        {"$ref": "#/$defs/region"},
    ],
)
def test_an_annotation_that_properties_alone_do_not_lead_to_is_refused(part: dict[str, Any]) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": part}}
    if "$ref" in part:
        schema["$defs"] = {"region": ANNOTATED}
    with pytest.raises(DeclarationError, match="not allowed"):
        declare(Board(), schema)


TUPLE = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.requirement(
    "modern/base/dialect-2020-12",
    "modern/base/dialect-declared",
    "legacy/base/dialect-2020-12",
    "legacy/base/dialect-declared",
)
@ERAS
async def test_a_schema_is_read_in_its_dialect_and_in_2020_12_if_it_names_none(era: str) -> None:
    pairs = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}
    for schema in (
        {"type": "object", "properties": {"a": pairs}, "required": ["a"]},
        {"$schema": DRAFT_7, "type": "object", "properties": {"a": TUPLE}, "required": ["a"]},
    ):
        board = Board()
        declare(board, schema)
        client = await connect(board, era)
        assert (await client.result("tools/list"))["tools"][0]["inputSchema"] == schema
        for value, fits in ((["x", 1], True), (["x", {}], False)):
            result = await client.result("tools/call", {"name": "declared", "arguments": {"a": value}})
            assert result.get("isError", False) is not fits
    with pytest.raises(DeclarationError, match="/properties/a/items"):
        declare(Board(), {"type": "object", "properties": {"a": TUPLE}})
    # "prefixItems" says nothing in draft 7, so anything goes.
    board = Board()
    declare(board, {"$schema": DRAFT_7, "type": "object", "properties": {"a": pairs}})
    result = await (await connect(board, era)).result("tools/call", {"name": "declared", "arguments": {"a": ["x", {}]}})
    assert not result.get("isError", False)
