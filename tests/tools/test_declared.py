"""Declared tools: what is wrong with them is said at registration, and their values, lifetime and outcomes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from pegboard import (
    Board,
    Cardinality,
    Client,
    MaxLength,
    MinLength,
    Parameter,
    Pattern,
    Range,
    Tool,
    ToolCallRequest,
    ToolExecutionContext,
    ToolExecutor,
    ToolResult,
    ValueKind,
)
from pegboard.errors import DeclarationError
from pegboard.middleware import Logging


class Probe(Tool):
    """Keeps the arguments of its last call."""

    name = "probe"

    def __init__(self, *parameters: Any, **options: Any) -> None:
        self.parameters = parameters
        self.got: Any = None
        self.__dict__.update(options)

    def execute(self, context: ToolExecutionContext) -> str:
        self.got = context.request.arguments
        return "done"


@pytest.mark.parametrize(
    ("parameter", "says"),
    [
        (Parameter("x", "integer"), r"kind='integer'; use ValueKind.INTEGER"),
        (Parameter("x", int), r"kind=<class 'int'>; use one of ValueKind.STRING, "),
        (Parameter("x", cardinality="LIST"), r"cardinality='LIST'; use Cardinality.LIST"),
        (Parameter("x", required="no"), r"required='no'; use True or False"),
        (Parameter("x", description=5), r"description=5; use text"),
        (Parameter("x", ValueKind.INTEGER, default="abc"), r"default: 'abc' does not fit \{\"type\":\"integer\"\}"),
        (Parameter("x", ValueKind.TIMESTAMP, default="soon"), r"default: 'soon' does not fit"),
        (Parameter("x", default="c", enum=["a", "b"]), r"default: 'c' does not fit"),
        (Parameter("x", cardinality=Cardinality.LIST, default="a"), r"default: 'a' does not fit"),
        (Parameter("x", enum=[]), r"enum=\[\]; list at least one allowed value"),
        (Parameter("x", enum="abc"), r"enum='abc'; use a list of values"),
        (Parameter("x", ValueKind.INTEGER, enum=["a"]), r"enum: 'a' does not fit"),
        (Parameter("x", constraints=Range(1, 2)), r"constraints=Range.*; use a list, as in \[Range\(1, 100\)\]"),
        (Parameter("x", constraints=[Range(1, 2)]), r"set maximum, minimum, which a STRING does not have"),
        (Parameter("x", ValueKind.INTEGER, constraints=[Pattern("a")]), r"set pattern, which a INTEGER does not have"),
        (Parameter("x", ValueKind.URI, constraints=[MinLength(3)]), r"set min_length, which a URI does not have"),
        (Parameter("x", constraints=[Pattern("(")]), r"pattern"),
        (Parameter("x", parameters=[Parameter("y")]), r"only a JSON_OBJECT has parameters, and its kind is STRING"),
        (
            Parameter("x", ValueKind.JSON_OBJECT, parameters=[Parameter("y", "text")]),
            r"Parameter 'x': Parameter 'y': kind='text'",
        ),
        ("x", r"'x' in parameters; use Parameter"),
    ],
)
def test_a_parameter_that_cannot_work_is_rejected_with_its_place(parameter: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=says) as rejected:
        Board().add(Probe(parameter))
    assert "test_declared.py:" in str(rejected.value) or "enum='abc'" in str(rejected.value)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"arguments": "strictt"}, "arguments='strictt'; use 'lenient' or 'strict'"),
        ({"on_parse_error": "pas"}, "on_parse_error='pas'; use 'refuse' or 'pass'"),
        ({"timeout": "5"}, "timeout='5'; use seconds greater than 0"),
        ({"timeout": 0}, "timeout=0; use seconds greater than 0"),
        ({"transports": "ws"}, "transports='ws'; use a list of some of http, stdio, ws"),
        ({"requires": ["elicitaton"]}, "requires='elicitaton' is not a client capability"),
        ({"task": "always"}, "task='always'"),
        ({"tags": "a"}, "tags='a'; use a list of texts"),
        ({"title": 5}, "title=5; use text"),
        ({"description": ["a"]}, r"description=\['a'\]; use text"),
        ({"inline": "yes"}, "inline='yes'; use True or False"),
        ({"middleware": Logging()}, "middleware must be a list"),
        ({"parameters": Parameter("x")}, "use a tuple of Parameters"),
    ],
)
def test_an_option_of_the_wrong_kind_is_rejected_in_every_style(option: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        Board().add(Probe(**option))
    if "parameters" not in option:
        with pytest.raises(DeclarationError, match=says):
            Board().tool("probe", **option)(lambda: None)


async def test_constraints_and_nested_parameters_hold_at_every_depth() -> None:
    probe = Probe(
        Parameter("limit", ValueKind.INTEGER, constraints=[Range(1, 10)]),
        Parameter("tags", cardinality=Cardinality.LIST, constraints=[MaxLength(2), Pattern("^[a-z]+$")]),
        Parameter(
            "filters",
            ValueKind.JSON_OBJECT,
            Cardinality.LIST,
            parameters=[
                Parameter("field", description="The field", enum=["name", "age"]),
                Parameter("count", ValueKind.INTEGER, default=3),
                Parameter("since", ValueKind.TIMESTAMP, required=False),
            ],
        ),
    )
    board = Board()
    board.add(probe)
    sent = {"limit": "5", "tags": "a", "filters": {"field": "NAME", "since": "2026-01-02T03:04:05Z"}}
    async with Client(board) as client:
        (tool,) = await client.list_tools()
        properties = tool["inputSchema"]["properties"]
        assert properties["limit"] == {"type": "integer", "minimum": 1, "maximum": 10}
        assert properties["tags"] == {
            "type": "array",
            "items": {"type": "string", "pattern": "^[a-z]+$"},
            "maxItems": 2,
        }
        item = properties["filters"]["items"]
        assert item["required"] == ["field"]
        assert item["properties"]["field"]["description"] == "The field"
        assert (await client.call("probe", sent)).text == "done"
        since = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        assert probe.got == {"limit": 5, "tags": ["a"], "filters": [{"field": "name", "count": 3, "since": since}]}
        wrong = await client.call("probe", {"limit": 11, "tags": ["a", "B"], "filters": [{"field": "height"}]})
    assert wrong.is_error
    paths = {error["path"] for error in wrong.meta["dev.pegboard/parseErrors"]}
    assert paths == {"limit", "tags[1]", "filters[0].field"}


@pytest.mark.parametrize("arguments", ["lenient", "strict"])
async def test_numbers_of_a_kind_keep_their_range_and_decimals_their_digits(arguments: Any) -> None:
    probe = Probe(
        Parameter("small", ValueKind.INT32, required=False),
        Parameter("price", ValueKind.DECIMAL, required=False),
        Parameter("prices", ValueKind.DECIMAL, Cardinality.MAP, required=False),
        arguments=arguments,
    )
    executor = ToolExecutor(_board(probe))

    async def run(text: str) -> str:
        return (await executor.execute(ToolCallRequest(tool_name="probe", raw_arguments=text))).status

    assert await run('{"small": 2147483647, "price": 1.10, "prices": {"a": "2.50", "b": 3}}') == "success"
    assert probe.got["small"] == 2147483647
    assert [str(probe.got["price"]), str(probe.got["prices"]["a"])] == ["1.10", "2.50"]
    assert probe.got["prices"]["b"] == Decimal(3)
    assert await run('{"small": 2147483648}') == "failed"


@pytest.mark.parametrize("cardinality", [Cardinality.SINGLE, Cardinality.LIST])
async def test_a_timestamp_is_a_datetime_and_a_wrong_one_is_refused(cardinality: Cardinality) -> None:
    probe = Probe(Parameter("when", ValueKind.TIMESTAMP, cardinality))
    async with Client(_board(probe)) as client:
        await client.call("probe", {"when": "2026-01-02T03:04:05+01:00"})
        got = probe.got["when"]
        (value,) = got if cardinality is Cardinality.LIST else [got]
        assert value.isoformat() == "2026-01-02T03:04:05+01:00"
        assert (await client.call("probe", {"when": "tomorrow"})).is_error


def _board(*tools: Tool) -> Board:
    board = Board()
    for tool in tools:
        board.add(tool)
    return board


class Connected(Tool):
    name = "connected"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.started, self.stopped = asyncio.Event(), asyncio.Event()

    async def start(self) -> None:
        self.log.append("start")
        self.started.set()

    def stop(self) -> None:  # type: ignore[override]  # a plain `def` is allowed too
        self.log.append("stop")
        self.stopped.set()

    async def execute(self, context: ToolExecutionContext) -> str:
        self.log.append("execute")
        return ""


async def test_a_tool_starts_and_stops_with_its_boards() -> None:
    tool = Connected()
    first, second = _board(tool), _board(tool)
    async with Client(first) as client, Client(second):
        await client.call("connected")
        assert tool.log == ["start", "execute"]
    assert tool.log == ["start", "execute", "stop"]


async def test_a_tool_that_is_removed_is_stopped() -> None:
    tool, board = Connected(), Board()
    async with Client(board) as client:
        board.add(tool)
        await tool.started.wait()
        await client.call("connected")
        board.remove("connected")
        await tool.stopped.wait()
    assert tool.log == ["start", "execute", "stop"]


class Skipping(Tool):
    name = "skipping"
    output_schema: ClassVar = {"type": "object", "required": ["a"]}

    def execute(self, context: ToolExecutionContext) -> ToolResult:
        return ToolResult("nothing to do", skipped=True, metadata={"why": "empty"})


async def test_a_tool_may_say_that_it_skipped_the_call() -> None:
    board = _board(Skipping())
    batch = await ToolExecutor(board).execute_batch([ToolCallRequest(tool_name="skipping", tool_call_id="1")])
    (record,) = batch.records
    assert (record.status, record.result, record.metadata["why"]) == ("skipped", "nothing to do", "empty")
    assert batch.error is None
    async with Client(board) as client:
        result = await client.call("skipping")
    assert (result.is_error, result.text, result.meta) == (False, "nothing to do", {"dev.pegboard/skipped": True})
