"""What a tool returned, told: every kind of value, and every kind that is refused."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections import Counter, OrderedDict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from ipaddress import ip_address
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import attrs
import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.argument_problems import ParseWarning
from pegboard.call import Done, EncodedResult
from pegboard.errors import InvalidParams, Refusal
from pegboard.media import Image, Link, Text
from pegboard.schema.plain_json import ResultProblem, find_problem
from pegboard.schema.problems import format_keys
from pegboard.tools.message import JsonRpcMessage, ToolResponse
from pegboard.tools.tool import tool_from_function
from pegboard.tools.tool_result import (
    PARSE_ERRORS,
    PARSE_WARNINGS,
    ResultWriter,
    ToolResult,
    error_result,
    is_wrapped,
    parse_error_result,
    with_warnings,
)
from tests.depth import every_case

pytestmark = every_case

PNG = b"\x89PNG\r\n\x1a\n and so on"
POINT_SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": ["number", "null"]}},
    "required": ["x"],
}


def blocks(done: Done) -> Any:
    assert isinstance(done.result, dict)
    return done.result["content"]


def text_of(done: Done) -> str:
    [block] = blocks(done)
    assert block["type"] == "text"
    return str(block["text"])


def structured(done: Done) -> Any:
    assert isinstance(done.result, dict)
    return done.result["structuredContent"]


@dataclasses.dataclass
class PointData:
    x: float
    y: float | None = None


class PointStruct(msgspec.Struct):
    x: float
    y: float | None = None


@attrs.define
class PointAttrs:
    x: float
    y: float | None = None


class PointModel(pydantic.BaseModel):
    x: float
    y: float | None = None


class PointDict(typing.TypedDict):
    x: float
    y: float | None


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024  # the untyped form is what is tested


class Shout(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "wrong"


class Cents(int):
    pass


class Ratio(float):
    pass


def test_none_is_success_without_content() -> None:
    assert ResultWriter().write(None) == Done({"content": []})


def test_none_is_returned_as_null_where_the_schema_allows_it() -> None:
    done = ResultWriter({"type": ["string", "null"]}).write(None)
    assert (text_of(done), structured(done)) == ("null", None)


def test_none_is_refused_where_the_schema_wants_a_value() -> None:
    with pytest.raises(ResultProblem, match="expected"):
        ResultWriter(POINT_SCHEMA).write(None)


def test_text_is_one_plain_block_and_nothing_more() -> None:
    done = ResultWriter().write('say "hi"')
    assert done.result == {"content": [{"type": "text", "text": 'say "hi"'}]}


def test_text_is_structured_where_declared() -> None:
    done = ResultWriter({"type": "string"}).write("hi")
    assert (text_of(done), structured(done), done.wrapped) == ("hi", "hi", True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (1.5, "1.5"),
        (True, "true"),
        (False, "false"),
        (2**70, "1180591620717411303424"),
        ([1, 2], "[1,2]"),
        ((1, "a"), '[1,"a"]'),
        ({"b": 1, "a": [None]}, '{"b":1,"a":[null]}'),
        ({1: "one"}, '{"1":"one"}'),
        ({3}, "[3]"),
        (frozenset({3}), "[3]"),
        (deque([1]), "[1]"),
        (range(3), "[0,1,2]"),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        (OrderedDict(a=1), '{"a":1}'),
        (Counter("aa"), '{"a":2}'),
        (Pair(1, 2), "[1,2]"),
        (datetime(2026, 7, 28, 12, tzinfo=UTC), "2026-07-28T12:00:00Z"),
        (date(2026, 7, 28), "2026-07-28"),
        (time(12, 30), "12:30:00"),
        (timedelta(days=1, seconds=90), "P1DT90S"),
        (Decimal("1.10"), "1.10"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("a/b"), "a/b"),
        (ip_address("127.0.0.1"), "127.0.0.1"),
        (b"\xff\x00", "/wA="),
        (bytearray(b"a"), "YQ=="),
        (Colour.RED, "red"),
        (Level.HIGH, "3"),
        (Word.YES, "yes"),
        (Shout("quiet"), "quiet"),
        (Cents(7), "7"),
        (Ratio(0.5), "0.5"),
        (PointDict(x=1, y=None), '{"x":1,"y":null}'),
    ],
)
def test_a_value_is_written_as_compact_json_and_a_single_string_stays_plain(value: Any, text: str) -> None:
    done = ResultWriter().write(value)
    assert text_of(done) == text
    assert "structuredContent" not in done.result  # type: ignore[operator]


@pytest.mark.parametrize("make", [PointData, PointStruct, PointAttrs, PointModel, PointDict])
def test_every_kind_of_record_gives_the_same_structured_content(make: Any) -> None:
    done = ResultWriter(POINT_SCHEMA, "point").write(make(x=1.0, y=None))
    assert json.loads(text_of(done)) == structured(done) == {"x": 1.0, "y": None}
    assert not done.wrapped


@pytest.mark.parametrize("make", [PointData, PointStruct, PointAttrs, PointModel, PointDict])
def test_nan_in_any_kind_of_record_is_refused_with_its_path(make: Any) -> None:
    with pytest.raises(ResultProblem, match="not a JSON number") as caught:
        ResultWriter(POINT_SCHEMA).write({"points": [make(x=1.0, y=float("nan"))]})
    assert caught.value.path == "points[0].y"


def test_an_alias_of_a_model_is_the_name_that_is_sent() -> None:
    class Aliased(pydantic.BaseModel):
        from_: int = pydantic.Field(alias="from")

    assert text_of(ResultWriter().write(Aliased.model_validate({"from": 3}))) == '{"from":3}'


@pytest.mark.parametrize(
    ("schema", "value", "wrapped"),
    [
        ({"type": "number"}, 3.5, True),
        ({"type": "number"}, 3, True),
        ({"type": "integer", "title": "N"}, 3, True),
        ({"type": "integer", "minimum": 1}, 3, True),
        ({"type": "integer"}, 3.0, True),
        ({"type": "boolean"}, True, True),
        ({"type": ["string", "null"]}, "a", True),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2], True),
        ({}, {"any": "thing"}, True),
        ({}, "thing", True),
        ({"type": "object"}, {"any": "thing"}, False),
    ],
)
def test_a_declared_value_is_structured_as_it_is_and_said_to_be_boxed(schema: Any, value: Any, wrapped: bool) -> None:
    done = ResultWriter(schema).write(value)
    assert structured(done) == value
    assert type(structured(done)) is type(value)
    assert done.wrapped is wrapped is is_wrapped(schema)


@pytest.mark.requirement("modern/tools/output-conforms", "legacy/tools/output-conforms")
@pytest.mark.parametrize(
    ("schema", "value", "path", "message"),
    [
        ({"type": "number"}, "3", "", "expected"),
        ({"type": "number"}, True, "", "expected"),
        ({"type": "integer"}, True, "", "expected"),
        ({"type": "integer"}, 3.5, "", "expected"),
        ({"type": "boolean"}, 1, "", "expected"),
        ({"type": "string"}, 1, "", "expected"),
        ({"type": "string"}, None, "", "expected"),
        ({"type": "integer", "minimum": 5}, 3, "", "of t: got 3, expected an integer at least 5"),
        (POINT_SCHEMA, {"x": "notint"}, "x", "expected"),
        (POINT_SCHEMA, {"y": 1}, "x", "required, but missing"),
        (POINT_SCHEMA, [1], "", "expected"),
        ({"type": "array", "items": {"type": "integer"}}, [1, "b"], "[1]", "expected"),
    ],
)
def test_a_value_that_does_not_fit_the_schema_is_never_sent(schema: Any, value: Any, path: str, message: str) -> None:
    with pytest.raises(ResultProblem, match=message) as caught:
        ResultWriter(schema, "t").write(value)
    assert caught.value.path == path


def test_structured_content_is_a_copy_of_what_the_author_holds() -> None:
    kept = {"x": 1.0, "y": None}
    done = ResultWriter(POINT_SCHEMA).write(kept)
    kept["x"] = 2.0
    assert structured(done) == {"x": 1.0, "y": None}


class Custom:
    pass


def looped() -> list[Any]:
    loop: list[Any] = []
    loop.append({"again": loop})
    return loop


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, {"type": ["number", "string", "array"]}])
@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), ""),
        (float("inf"), ""),
        (Ratio("nan"), ""),
        (Decimal("NaN"), ""),
        (Decimal("-Infinity"), ""),
        ({"a": [1, float("-inf")]}, "a[1]"),
        ({"a": None, "b": {"c": (None, float("nan"))}}, "b.c[1]"),
        ([{"price": Decimal("sNaN")}], "[0].price"),
        ({1: float("nan")}, "1"),
        (Custom(), ""),
        (Custom, ""),
        (1j, ""),
        ({"a": [Custom()]}, "a[0]"),
        ([(letter for letter in "ab")], "[0]"),
        ("\ud800", ""),
        ({"a": ["\udfff"]}, "a[0]"),
        ({"\ud800": 1}, ""),
        ({None: 1}, ""),
        ({(1, 2): 1}, ""),
        pytest.param(10**5000, "", id="more digits than Python writes"),
        ({"big": 10**5000}, "big"),
        (looped(), "[0].again"),
        ({"picture": Image(PNG)}, "picture"),
        ([[Image(PNG)]], "[0][0]"),
        ([Image(PNG), {"a": float("nan")}], "[1].a"),
    ],
)
def test_what_has_no_json_form_is_refused_with_its_path(schema: Any, value: Any, path: str) -> None:
    with pytest.raises(ResultProblem) as caught:
        ResultWriter(schema).write(value)
    assert caught.value.path == path
    assert "0x" not in caught.value.message


def test_nesting_beyond_reason_is_refused() -> None:
    with pytest.raises(ResultProblem):
        ResultWriter().write(deep())


def test_text_that_says_nan_is_only_text() -> None:
    done = ResultWriter({"type": "object"}).write({"a": "NaN", "b": None, "c": ("Infinity",)})
    assert structured(done) == {"a": "NaN", "b": None, "c": ["Infinity"]}


def test_a_result_over_the_limit_is_refused() -> None:
    writer = ResultWriter(limit=100)
    assert text_of(writer.write("x" * 100)) == "x" * 100
    for large in ("x" * 101, "é" * 51, ["x" * 100], Image(PNG * 10), ToolResult("x" * 101)):
        with pytest.raises(ResultProblem, match="the limit is 100"):
            writer.write(large)


def test_content_becomes_its_block() -> None:
    [block] = blocks(ResultWriter().write(Image(PNG)))
    assert block["type"] == "image"
    assert block["mimeType"] == "image/png"


def test_a_mixed_list_becomes_one_block_an_item() -> None:
    mixed = blocks(ResultWriter().write(["look:", Image(PNG), {"n": 1}, 5, Link("notes://a")]))
    assert [block["type"] for block in mixed] == ["text", "image", "text", "text", "resource_link"]
    assert [block["text"] for block in mixed if block["type"] == "text"] == ["look:", '{"n":1}', "5"]


def test_a_list_without_content_is_one_block() -> None:
    assert text_of(ResultWriter().write(["a", "b"])) == '["a","b"]'


def test_surrogates_in_a_content_object_are_refused() -> None:
    with pytest.raises(ResultProblem, match="surrogate"):
        ResultWriter().write([Text("\ud800")])


def test_a_tool_result_says_everything_itself() -> None:
    done = ResultWriter().write(
        ToolResult("done", structured={"n": 1}, meta={"k": PointData(1)}, metadata={"secret": 1})
    )
    assert done.result == {
        "content": [{"type": "text", "text": "done"}],
        "structuredContent": {"n": 1},
        "_meta": {"k": {"x": 1, "y": None}},
    }
    assert not done.wrapped


def test_a_tool_result_with_only_structured_content_is_also_written_as_text() -> None:
    done = ResultWriter().write(ToolResult(structured=[1, 2]))
    assert (text_of(done), structured(done), done.wrapped) == ("[1,2]", [1, 2], True)


def test_a_tool_result_may_be_a_failure_without_structured_content() -> None:
    done = ResultWriter(POINT_SCHEMA).write(ToolResult("no such point", is_error=True))
    assert done.result == {
        "content": [{"type": "text", "text": "no such point"}],
        "isError": True,
    }


def test_a_tool_result_has_to_fit_the_declared_schema() -> None:
    writer = ResultWriter(POINT_SCHEMA)
    assert structured(writer.write(ToolResult("here", structured=PointData(1.0)))) == {"x": 1.0, "y": None}
    with pytest.raises(ResultProblem, match="expected") as caught:
        writer.write(ToolResult("here", structured={"x": "?"}))
    assert caught.value.path == "x"
    for without in (ToolResult("here"), Image(PNG), ["here", Image(PNG)]):
        with pytest.raises(ResultProblem, match="must have structured content"):
            writer.write(without)


def test_a_message_with_a_plain_result_is_written_like_the_value() -> None:
    assert text_of(ResultWriter().write(ToolResponse.success(7, {"result": 8}), 7)) == '{"result":8}'
    assert structured(ResultWriter(POINT_SCHEMA).write(ToolResponse.success(7, PointModel(x=2)), 7)) == {
        "x": 2,
        "y": None,
    }
    assert blocks(ResultWriter().write(ToolResponse.success(7), 7)) == []


def test_a_message_with_content_passes_as_it_is() -> None:
    answer = {"content": [{"type": "text", "text": "hi"}], "isError": True, "_meta": {"a": 1}, "extra": 1}
    done = ResultWriter().write(ToolResponse.success("q", answer), "q")
    assert done.result == answer


def test_a_message_with_invalid_content_is_treated_as_a_plain_value() -> None:
    assert (
        text_of(ResultWriter().write(ToolResponse.success(1, {"content": "page one"}), 1)) == '{"content":"page one"}'
    )


def test_structured_content_of_a_message_has_to_fit_too() -> None:
    answer = {"content": [], "structuredContent": {"x": "?"}}
    with pytest.raises(ResultProblem, match="expected"):
        ResultWriter(POINT_SCHEMA).write(ToolResponse.success(1, answer), 1)


def test_a_message_for_another_request_is_refused() -> None:
    with pytest.raises(ResultProblem, match="answers request 8, but the call was 7"):
        ResultWriter().write(ToolResponse.success(8, 1), 7)


def test_a_message_that_answers_nothing_is_refused() -> None:
    with pytest.raises(ResultProblem, match="neither a result nor an error"):
        ResultWriter().write(JsonRpcMessage(id=7, method="tools/call"), 7)


def test_an_error_message_becomes_the_refusal_of_its_code() -> None:
    with pytest.raises(InvalidParams, match="no such city") as caught:
        ResultWriter().write(ToolResponse.error(7, -32602, "no such city", {"city": "?"}), 7)
    assert caught.value.data == {"city": "?"}
    with pytest.raises(Refusal) as other:
        ResultWriter().write(ToolResponse.error(7, 1001, "mine"), 7)
    assert (other.value.code, other.value.message) == (1001, "mine")


@pytest.mark.requirement("modern/base/error-codes-defined", "modern/base/error-codes-retired")
@pytest.mark.parametrize("code", [-32002, -32023, -32042, -32099])
def test_an_error_message_has_no_code_that_the_specification_keeps_for_itself(code: int) -> None:
    with pytest.raises(ResultProblem, match="specification"):
        ResultWriter().write(ToolResponse.error(7, code, "mine"), 7)


def test_an_error_message_without_code_or_text_is_refused() -> None:
    with pytest.raises(ResultProblem, match="code"):
        ResultWriter().write(JsonRpcMessage(id=7, error={"message": "mine"}), 7)
    with pytest.raises(ResultProblem, match="code"):
        ResultWriter().write(JsonRpcMessage(id=7, error="mine"), 7)


def test_an_error_result_carries_its_text_and_meta() -> None:
    assert error_result("no").result == {
        "content": [{"type": "text", "text": "no"}],
        "isError": True,
    }
    assert error_result("no", {"k": 1}).result["_meta"] == {"k": 1}  # type: ignore[index]


def test_an_error_result_cannot_fail_on_its_own_text() -> None:
    msgspec.json.encode(error_result("half \ud800 é").result)
    assert "é" in text_of(error_result("half \ud800 é"))


def test_meta_that_has_no_json_form_is_left_out_of_an_error_result(caplog: pytest.LogCaptureFixture) -> None:
    assert "_meta" not in error_result("no", {"k": Custom()}).result  # type: ignore[operator]
    assert "k: a Custom has no JSON form" in caplog.text


class Note(msgspec.Struct):
    path: str
    code: str


def test_parse_errors_travel_beside_their_sentences() -> None:
    done = parse_error_result("limit: 0 is below 1", [Note("limit", "minimum")])
    assert text_of(done) == "limit: 0 is below 1"
    assert done.result["isError"] is True  # type: ignore[index]
    assert done.result["_meta"] == {PARSE_ERRORS: [{"path": "limit", "code": "minimum"}]}  # type: ignore[index]


def test_warnings_are_added_and_nothing_else_changes() -> None:
    repair = ParseWarning("a", "b", "a: read as 1", "1", 1)
    done = ResultWriter({"type": "integer"}).write(ToolResult(structured=1, meta={"k": 1}))
    warned = with_warnings(done, [repair])
    listed = [{"path": "a", "code": "b", "message": "a: read as 1", "got": "1", "became": 1}]
    assert warned.result["_meta"] == {"k": 1, PARSE_WARNINGS: listed}  # type: ignore[index]
    assert (structured(warned), warned.wrapped) == (1, True)
    assert warned.result["content"][:-1] == done.result["content"]  # type: ignore[index]
    assert done.result["_meta"] == {"k": 1}  # type: ignore[index]
    assert with_warnings(done, []) is done
    assert with_warnings(Done(EncodedResult({"content": []})), [repair], "meta").result["content"] == []  # type: ignore[index]


def test_a_tool_that_makes_classes_as_it_runs_does_not_fill_the_memory() -> None:
    writer = ResultWriter()
    for number in range(200):
        writer.write(dataclasses.make_dataclass(f"Made{number}", [("x", int)])(number))
    assert len(writer._writers) <= 64


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_any_json_value_is_equal_after_encoding_and_decoding(value: Any) -> None:
    done = ResultWriter({}).write(value)
    assert json.loads(msgspec.json.encode(done.result))["structuredContent"] == value
    assert structured(done) == value
    text = text_of(done)
    assert text == value if isinstance(value, str) else json.loads(text) == value
    undeclared = ResultWriter().write(value)
    assert blocks(undeclared) == [] if value is None else text_of(undeclared) == text


@given(json_values, st.sampled_from([float("nan"), float("inf"), float("-inf"), Decimal("NaN")]), st.data())
def test_a_number_that_is_not_finite_is_refused_wherever_it_hides(value: Any, poison: Any, data: st.DataObject) -> None:
    path: list[str | int] = []
    poisoned: Any = poison
    for _ in range(data.draw(st.integers(0, 4))):
        if data.draw(st.booleans()):
            poisoned, path = [value, poisoned], [1, *path]
        else:
            poisoned, path = {"a": value, "b": poisoned}, ["b", *path]
    for schema in (None, {}, {"type": ["array", "object", "number"]}):
        with pytest.raises(ResultProblem) as caught:
            ResultWriter(schema).write(poisoned)
        assert caught.value.path == format_keys(path)


@given(json_values)
def test_a_json_value_has_no_problem_to_find(value: Any) -> None:
    assert find_problem(value) is None


class Typed(typing.NamedTuple):
    left: int
    right: str = "r"


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)

    from_: int = pydantic.Field(alias="from")
    at: datetime = datetime(2026, 7, 28, tzinfo=UTC)
    price: Decimal = Decimal("1.5")
    data: bytes = b"abc"
    inner: PointModel = PointModel(x=1)


class Renamed(msgspec.Struct, rename="camel"):
    first_name: str


@pytest.mark.parametrize(
    ("returns", "value"),
    [
        (int, 5),
        (float, 1.5),
        (float, 2),
        (bool, True),
        (list[int], [1, 2]),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2)),
        (set[int], {1, 2}),
        (frozenset[str], frozenset("a")),
        (dict[str, int], {"a": 1}),
        (dict[int, float], {1: 0.5}),
        (dict[str, Any], {"a": [None, {"b": 1}]}),
        (datetime, datetime(2026, 7, 28, 12, tzinfo=UTC)),
        (datetime, datetime(2026, 7, 28, 12)),  # noqa: DTZ001  # authors return naive times
        (date, date(2026, 7, 28)),
        (time, time(12, 30)),
        (timedelta, timedelta(days=1, seconds=1.5)),
        (timedelta, timedelta(seconds=-1)),
        (Decimal, Decimal("1.10")),
        (Decimal, Decimal("-1E+5")),
        (UUID, UUID(int=1)),
        (PurePosixPath, PurePosixPath("a/b")),
        (Colour, Colour.RED),
        (Level, Level.HIGH),
        (typing.Literal["a", 1], 1),
        (PointData, PointData(1)),
        (PointStruct, PointStruct(1)),
        (PointAttrs, PointAttrs(1)),
        (PointModel, PointModel(x=1)),
        (PointDict, PointDict(x=1, y=None)),
        (list[PointModel], [PointModel(x=1), {"x": 2, "y": None}]),
        (PointModel | None, None),
        (PointData | str, "none"),
        (Typed, Typed(1)),
        (Tree, Tree("a", [Tree("b")])),
        (Aliased, Aliased(from_=1)),
        (Renamed, Renamed("Ada")),
        (int, 2**70),
    ],
)
def test_what_a_function_returns_fits_the_schema_read_from_its_annotation(returns: Any, value: Any) -> None:
    def give() -> Any:
        return value

    give.__annotations__["return"] = returns
    tool = tool_from_function(give)
    assert tool.output_schema is not None
    done = ResultWriter(tool.output_schema, tool.name).write(value)
    sent = json.loads(msgspec.json.encode(done.result))
    jsonschema_rs.validator_for(dict(tool.output_schema)).validate(sent["structuredContent"])
    text = sent["content"][0]["text"]
    assert sent["structuredContent"] == (text if isinstance(sent["structuredContent"], str) else json.loads(text))


@pytest.mark.parametrize("returns", [None, str, Image, list[Image], ToolResult, JsonRpcMessage])
def test_what_is_not_json_by_its_annotation_declares_no_output(returns: Any) -> None:
    def give() -> Any: ...

    give.__annotations__["return"] = returns
    assert tool_from_function(give).output_schema is None
