"""Tools of every style, seen as one."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Optional

import msgspec
import pydantic
import pytest

from pegboard import Board, CancellationToken, Client, Context, ToolConnector
from pegboard.errors import DeclarationError
from pegboard.media import Image
from pegboard.schema.types.constraints import Header, Pattern
from pegboard.tools.message import JsonRpcMessage, ToolResponse
from pegboard.tools.parameters import Cardinality, Parameter, ToolCallRequest, ToolExecutionContext, ValueKind
from pegboard.tools.tool import Tool, tool_from_function
from pegboard.tools.tool_result import ToolResult

if TYPE_CHECKING:
    from somewhere import NotThere


class Repository:
    def get(self, user_id: int) -> str:
        return f"user {user_id}"


class Logger: ...


def is_service(annotation: Any) -> bool:
    return annotation in {Repository, Logger}


@dataclass
class User:
    id: int
    name: str


NUMBERS = {
    "type": "object",
    "properties": {
        "number1": {"type": "number", "description": "First number"},
        "number2": {"type": "number", "description": "Second number"},
    },
    "required": ["number1", "number2"],
}


@dataclass
class Numbers:
    number1: float
    number2: float


def run(tool: Tool, raw: bytes, **injected: Any) -> Any:
    parsed = tool.parse(raw)
    assert not parsed.errors
    return tool.invoke(parsed.value, injected)


# The design's five examples.


def test_example_1_a_function_says_everything() -> None:
    def Add(a: float, b: float) -> float:  # noqa: N802 (the design's own name)
        """Adds two numbers"""
        return a + b

    tool = tool_from_function(Add)
    assert tool.definition() == {
        "name": "add",
        "title": "Add",
        "description": "Adds two numbers",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "outputSchema": {"type": "number"},
    }
    assert list(tool.definition()) == ["name", "title", "description", "inputSchema", "outputSchema"]
    assert run(tool, b'{"a": 1, "b": 2.5}') == 3.5
    assert tool.function is Add


def test_example_2_what_may_be_left_out_is_not_required() -> None:
    def Greet(name: str, prefix: Optional[str] = None) -> str:  # noqa: N802, UP045
        """Greets a user by name"""
        return f"{prefix} {name}!" if prefix is not None else f"Hello, {name}!"

    tool = tool_from_function(Greet, "greet")
    assert tool.input_schema["required"] == ["name"]
    assert set(tool.input_schema["properties"]) == {"name", "prefix"}
    assert tool.output_schema is None
    assert run(tool, b'{"name": "Ada"}') == "Hello, Ada!"
    assert run(tool, b'{"name": "Ada", "prefix": null}') == "Hello, Ada!"
    assert run(tool, b'{"name": "Ada", "prefix": "Dear"}') == "Dear Ada!"


async def test_example_3_services_are_injected_and_never_in_the_schema() -> None:
    async def GetUser(userId: int, repo: Repository, logger: Logger) -> User:  # noqa: N802, N803
        """Fetches user by ID"""
        return User(userId, repo.get(userId))

    tool = tool_from_function(GetUser, is_injected=is_service)
    assert tool.name == "get_user"
    assert list(tool.input_schema["properties"]) == ["userId"]
    assert tool.injected == {"repo": Repository, "logger": Logger}
    assert tool.kind == "async"
    assert await run(tool, b'{"userId": 7}', repo=Repository(), logger=Logger()) == User(7, "user 7")


def test_example_4_as_printed_is_refused_with_the_place_of_the_mistake() -> None:
    schema = {"type": "object", "properties": [{"filters": {"type": "array"}}, {"options": {"type": "object"}}]}

    def complex_query(request: JsonRpcMessage, db: Repository) -> dict[str, Any]: ...

    with pytest.raises(DeclarationError, match=rf"{re.escape(__file__)}:\d+: schema at /properties"):
        tool_from_function(complex_query, input_schema=schema, is_injected=is_service)


def test_example_4_fixed_takes_the_request_and_a_service() -> None:
    schema = {"type": "object", "properties": {"filters": {"type": "array"}, "options": {"type": "object"}}}

    def complex_query(request: JsonRpcMessage, db: Repository) -> dict[str, Any]:
        """Executes a complex database query"""
        return {"filters": request.params["filters"]}

    tool = tool_from_function(complex_query, input_schema=schema, is_injected=is_service)
    assert tool.input_schema == schema
    assert tool.injected == {"request": JsonRpcMessage, "db": Repository}
    parsed = tool.parse(b'{"filters": [1], "options": {}}')
    assert parsed.arguments == {"filters": [1], "options": {}}
    request = JsonRpcMessage(id=1, params=parsed.arguments)
    assert tool.invoke(parsed.value, {"request": request, "db": Repository()}) == {"filters": [1]}


def test_example_5_everything_explicit() -> None:
    def add_tool(request: JsonRpcMessage) -> JsonRpcMessage:
        args = request.params_as(Numbers)
        return ToolResponse.success(request.id, {"result": args.number1 + args.number2})

    tool = tool_from_function(
        add_tool,
        "add_numbers",
        title="Add Numbers",
        description="Adds two numbers and return result. Example: 5 + 3 = 8",
        input_schema=NUMBERS,
    )
    assert tool.definition() == {
        "name": "add_numbers",
        "title": "Add Numbers",
        "description": "Adds two numbers and return result. Example: 5 + 3 = 8",
        "inputSchema": NUMBERS,
    }
    parsed = tool.parse(b'{"number1": 5, "number2": "3"}')
    assert [warning.path for warning in parsed.warnings] == ["number2"]
    request = JsonRpcMessage(id=1, params=parsed.arguments)
    assert tool.invoke(parsed.value, {"request": request}) == ToolResponse.success(1, {"result": 8.0})
    assert [error.path for error in tool.parse(b'{"number1": "x"}').errors] == ["number2", "number1"]


# How names, titles and descriptions are found.


def test_a_name_is_given_or_taken_from_the_function() -> None:
    def AddNumbersTool() -> None: ...  # noqa: N802

    assert tool_from_function(AddNumbersTool, "add_numbers").name == "add_numbers"
    assert tool_from_function(AddNumbersTool, name="add.numbers").name == "add.numbers"
    inferred = tool_from_function(AddNumbersTool)
    assert (inferred.name, inferred.title, inferred.description) == ("add_numbers_tool", "Add Numbers Tool", "")


def test_what_is_given_goes_before_what_is_found() -> None:
    def add() -> None:
        """From the docstring."""

    assert tool_from_function(add).description == "From the docstring."
    assert tool_from_function(add, description="Given").description == "Given"
    assert tool_from_function(add, description="").description == ""
    assert tool_from_function(add, title="Given").title == "Given"


def test_parameters_are_described_by_annotation_before_docstring() -> None:
    def paint(color: str, finish: Annotated[str, "Annotated"] = "matt") -> None:
        """Paint a thing.

        Args:
            color: From the docstring
            finish: From the docstring
        """

    tool = tool_from_function(paint)
    assert tool.description == "Paint a thing."
    described = {name: part["description"] for name, part in tool.input_schema["properties"].items()}
    assert described == {"color": "From the docstring", "finish": "Annotated"}


def test_options_are_kept_as_given() -> None:
    hook = object()
    tool = tool_from_function(
        lambda: None,
        "x",
        annotations={"readOnlyHint": True},
        icons="https://x.example/i.png",
        meta={"a": 1},
        category="data",
        tags={"a"},
        middleware=[hook],
        timeout=2.5,
        inline=True,
        requires=["sampling"],
        arguments="strict",
    )
    assert tool.definition()["annotations"] == {"readOnlyHint": True}
    assert tool.definition()["icons"] == [{"src": "https://x.example/i.png"}]
    assert tool.definition()["_meta"] == {"a": 1}
    assert (tool.category, tool.tags, tool.hooks) == ("data", frozenset({"a"}), (hook,))
    assert (tool.timeout, tool.inline, tool.requires, tool.arguments) == (2.5, True, ("sampling",), "strict")


@pytest.mark.parametrize("seconds", [0, -1, "5", True, float("nan")])
def test_a_timeout_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(DeclarationError, match="use seconds greater than 0"):
        tool_from_function(lambda: None, "x", timeout=seconds)


@pytest.mark.parametrize(
    "requires",
    [
        ["samplng"],
        ["sampling", "url"],
        "sampling",
        ["elicitation.urls"],
        ["sampling."],
        ["roots.form"],
        ["extensions."],
    ],
)
def test_what_is_required_of_clients_is_a_list_of_capabilities_that_there_are(requires: Any) -> None:
    class Declared(Tool):
        name = "x"

        def execute(self, _context: ToolExecutionContext) -> None: ...

    with pytest.raises(DeclarationError, match=r"capabilit|there is (elicitation|sampling|roots|extensions) and"):
        tool_from_function(lambda: None, "x", requires=requires)
    Declared.requires = requires
    with pytest.raises(DeclarationError, match=r"requires"):
        Declared().prepare()


def test_parts_of_capabilities_can_be_required_too() -> None:
    required = ["elicitation.url", "sampling.tools", "extensions.io.example/thing", "experimental.x"]
    assert tool_from_function(lambda: None, "x", requires=required).requires == tuple(required)


def test_a_plain_function_on_the_loop_cannot_take_what_has_to_be_waited_for() -> None:
    def ask(ctx: Context) -> None: ...

    def stream(out: ToolConnector) -> None: ...

    async def wait(ctx: Context) -> None: ...

    def look(token: CancellationToken) -> None: ...

    for function in (ask, stream):
        with pytest.raises(DeclarationError, match=r"inline=True .* cannot wait .* write `async def`"):
            tool_from_function(function, inline=True)
        tool_from_function(function)
    for function in (wait, look):
        assert tool_from_function(function, inline=True).inline


def test_an_unknown_option_is_rejected() -> None:
    with pytest.raises(DeclarationError, match="unknown option 'titel'; did you mean 'title'"):
        tool_from_function(lambda: None, "x", titel="X")  # type: ignore[call-arg]


# What can be a tool.


class Calculator:
    def __init__(self, base: int) -> None:
        self.base = base

    def add(self, a: int) -> int:
        """Add to the base."""
        return self.base + a

    @classmethod
    def zero(cls, a: int = 0) -> int:
        return a

    @staticmethod
    def one(a: int = 1) -> int:
        return a

    async def __call__(self, a: int) -> int:
        """Called."""
        return self.base * a


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def test_methods_callables_partials_and_decorated_functions_are_tools() -> None:
    calculator = Calculator(10)
    tool = tool_from_function(calculator.add)
    assert (tool.name, tool.description, run(tool, b'{"a": 5}')) == ("add", "Add to the base.", 15)
    assert run(tool_from_function(Calculator.zero), b"{}") == 0
    assert run(tool_from_function(Calculator.one), b"{}") == 1

    tool = tool_from_function(calculator)
    assert (tool.name, tool.description, tool.kind) == ("calculator", "Called.", "async")

    def convert(value: float, unit: str, digits: int = 2) -> str:
        """Convert."""
        return f"{value:.{digits}f} {unit}"

    tool = tool_from_function(functools.partial(convert, unit="C"))
    assert (tool.name, tool.description) == ("convert", "Convert.")
    assert list(tool.input_schema["properties"]) == ["value", "digits"]
    assert run(tool, b'{"value": 1}') == "1.00 C"
    assert tool.parse(b'{"value": 1, "unit": "F"}').errors

    tool = tool_from_function(functools.partial(convert, 3.0))
    assert list(tool.input_schema["properties"]) == ["unit", "digits"]
    assert run(tool, b'{"unit": "K"}') == "3.00 K"

    tool = tool_from_function(logged(convert))
    assert tool.input_schema["required"] == ["value", "unit"]
    assert run(tool, b'{"value": 1, "unit": "C"}') == "1.00 C"


def test_the_kind_is_seen_through_wrappers() -> None:
    async def wait() -> None: ...
    def count() -> Iterator[int]:
        yield 1

    async def stream() -> AsyncIterator[int]:
        yield 1

    assert tool_from_function(len_of).kind == "sync"
    for function, kind in ((wait, "async"), (count, "generator"), (stream, "async_generator")):
        assert tool_from_function(function).kind == kind
        assert tool_from_function(logged(function)).kind == kind
        assert tool_from_function(functools.partial(logged(function))).kind == kind


def len_of(text: str) -> int:
    return len(text)


def test_local_classes_are_found_though_annotations_are_text() -> None:
    @dataclass
    class Inner:
        x: int

    @dataclass
    class Outer:
        inner: Inner

    def f(outer: Outer) -> Inner:
        return outer.inner

    tool = tool_from_function(f)
    assert run(tool, b'{"outer": {"inner": {"x": 1}}}') == Inner(1)
    assert tool.output_schema == {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


# What the return annotation says.


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (float, {"type": "number"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (User | None, {"type": ["object", "null"]}),
        (Awaitable[int], {"type": "integer"}),
        (Iterator[int], {"type": "array", "items": {"type": "integer"}}),
        (AsyncIterator[User], {"type": "array"}),
        (dict[str, Any], {"type": "object"}),
        (str, None),
        (str | None, None),
        (None, None),
        (Any, None),
        (bytes, None),
        (Iterator[str], {"type": "array", "items": {"type": "string"}}),
        (JsonRpcMessage, None),
        (Image, None),
        (list[Image], None),
        (list[str | Image], None),
        (ToolResult, None),
        (Repository, None),
    ],
)
def test_the_output_schema_is_natural_or_absent(annotation: Any, schema: dict[str, Any] | None) -> None:
    def f() -> Any: ...

    f.__annotations__["return"] = annotation
    found = tool_from_function(f).output_schema
    assert found == schema if schema is None else {key: found[key] for key in schema} == schema  # type: ignore[index]


def test_an_output_schema_that_is_none_is_refused() -> None:
    with pytest.raises(DeclarationError, match="output_schema cannot be used"):
        tool_from_function(lambda: None, "x", output_schema={"type": "nothing"})


# Declared tools.


class MemorySearch(Tool):
    name = "memory.search"
    description = "Finds memories."
    category = "memory"
    tags = ("search",)
    parameters = (
        Parameter("query", ValueKind.STRING, description="What to look for", example="agent state"),
        Parameter("limit", ValueKind.INTEGER, cardinality=Cardinality.OPTIONAL, required=False, example="3"),
        Parameter("order", ValueKind.ENUM_TOKEN, required=False, enum=["new", "old"], default="new"),
    )

    async def execute(self, context: ToolExecutionContext) -> str:
        return f"{context.request.arguments}"


def test_a_declared_tool_is_prepared_once_and_seen_like_any_other() -> None:
    tool = MemorySearch().prepare()
    assert tool.definition() == {
        "name": "memory.search",
        "title": "Memory Search",
        "description": "Finds memories.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for", "examples": ["agent state"]},
                "limit": {"type": "integer", "examples": [3]},
                "order": {"type": "string", "enum": ["new", "old"], "default": "new"},
            },
            "required": ["query"],
        },
    }
    assert (tool.kind, tool.injected) == ("async", {"context": ToolExecutionContext})
    assert tool.prepare() is tool


async def test_a_declared_tool_gets_its_request_with_defaults_and_without_absent_optionals() -> None:
    tool = MemorySearch().prepare()
    parsed = tool.parse(b'{"query": "x"}')
    request = ToolCallRequest(tool_name=tool.name, arguments=parsed.arguments)
    assert parsed.arguments == {"query": "x", "order": "new"}
    assert await tool.invoke(parsed.value, {"context": ToolExecutionContext(request)}) == str(parsed.arguments)


def test_a_declared_tool_passes_unknown_names_on_with_a_warning() -> None:
    parsed = MemorySearch().prepare().parse(b'{"query": "x", "colour": "red"}')
    assert [warning.code for warning in parsed.warnings] == ["unknown_parameter"]
    assert parsed.arguments["colour"] == "red"


def test_a_declared_tool_may_take_services_and_its_own_schema() -> None:
    class Finder(Tool):
        """Finds a user."""

        name = "find"
        input_schema = MappingProxyType(
            {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
        )

        def execute(self, context, repo: Repository):  # type: ignore[no-untyped-def]
            return repo.get(context.request.arguments["id"])

    tool = Finder().prepare(is_service)
    assert tool.description == "Finds a user."
    assert tool.injected == {"context": ToolExecutionContext, "repo": Repository}
    assert tool.kind == "sync"
    parsed = tool.parse(b'{"id": 3}')
    context = ToolExecutionContext(ToolCallRequest(tool_name="find", arguments=parsed.arguments))
    assert tool.invoke(parsed.value, {"context": context, "repo": Repository()}) == "user 3"


def test_a_declared_tool_may_have_a_constructor_of_its_own() -> None:
    class Named(Tool):
        def __init__(self, name: str) -> None:
            self.name = name

        def execute(self, context: ToolExecutionContext) -> str:
            return self.name

    assert Named("one").prepare().definition()["title"] == "One"


def test_a_declared_tool_without_execute_is_refused() -> None:
    class Lazy(Tool):
        name = "lazy"

    with pytest.raises(DeclarationError, match=r"Lazy declares a tool and has no execute\(self, context\)"):
        Lazy().prepare()


def test_a_declared_tool_without_a_name_is_refused() -> None:
    class Nameless(Tool):
        def execute(self, context: ToolExecutionContext) -> None: ...

    with pytest.raises(DeclarationError, match="the tool name is empty"):
        Nameless().prepare()


def test_execute_takes_nothing_a_caller_would_have_to_send() -> None:
    class Greedy(Tool):
        name = "greedy"

        def execute(self, context: ToolExecutionContext, number: int) -> None: ...

    with pytest.raises(DeclarationError, match="parameter 'number' of execute is not a registered service"):
        Greedy().prepare()


# Hybrid tools: an own schema and plain parameters.


def test_a_hybrid_tool_binds_its_parameters_by_its_own_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"user": {"type": "object"}, "times": {"type": "integer", "maximum": 3}},
        "required": ["user"],
    }

    def greet(user: User, repo: Repository, times: int = 1) -> str:
        return f"{user.name} {times} {repo.get(user.id)}"

    tool = tool_from_function(greet, input_schema=schema, is_injected=is_service)
    assert run(tool, b'{"user": {"id": 1, "name": "Ada"}}', repo=Repository()) == "Ada 1 user 1"
    assert [error.path for error in tool.parse(b'{"user": {"id": 1, "name": "A"}, "times": 4}').errors] == ["times"]
    # The schema takes any object, the function does not.
    assert [(error.path, error.message) for error in tool.parse(b'{"user": {"id": 1}}').errors] == [
        ("user.name", "user.name: is required")
    ]
    assert tool.parse(b'{"user": {"id": 1, "name": "A"}, "times": 2.0}').arguments == {
        "user": {"id": 1, "name": "A"},
        "times": 2,
    }


def test_a_schema_and_a_signature_that_disagree_are_refused() -> None:
    schema = {"type": "object", "properties": {"user_id": {"type": "integer"}}}

    def f(userId: int) -> None: ...  # noqa: N803
    def g() -> None: ...
    def h(user_id: int, extra: int) -> None: ...

    with pytest.raises(DeclarationError, match="parameter 'userId' is not in input_schema; did you mean 'user_id'"):
        tool_from_function(f, input_schema=schema)
    with pytest.raises(DeclarationError, match="parameter 'extra' is not in input_schema"):
        tool_from_function(h, input_schema=schema)
    schema["properties"]["more"] = {}  # type: ignore[index]
    with pytest.raises(DeclarationError, match="input_schema declares 'more', which has no parameter"):
        tool_from_function(lambda user_id: None, "x", input_schema=schema)


# Reading arguments.


def test_nothing_at_all_is_an_empty_object() -> None:
    tool = tool_from_function(lambda: 1, "one")
    assert run(tool, b"null") == 1
    assert run(tool, b"{}") == 1


@pytest.mark.parametrize("tool", [tool_from_function(len_of), MemorySearch().prepare()])
def test_bytes_that_are_not_json_are_an_error_and_no_crash(tool: Tool) -> None:
    assert [error.code for error in tool.parse(b'{"a": ').errors] == ["json_parse_error"]


def test_arguments_sent_as_json_text_are_read() -> None:
    tool = tool_from_function(len_of)
    parsed = tool.parse(json.dumps('{"text": "abc"}').encode())
    assert tool.invoke(parsed.value, {}) == 3
    assert parsed.warnings


def test_strict_tools_repair_nothing() -> None:
    def f(a: int) -> int:
        return a

    raw = b'{"a": "5"}'
    assert not tool_from_function(f).parse(raw).errors
    assert tool_from_function(f).parse(raw, "strict").errors
    assert tool_from_function(f, arguments="strict").parse(raw).errors
    assert not tool_from_function(f, arguments="lenient").parse(raw, "strict").errors
    assert (
        tool_from_function(f, arguments="strict").invoke(tool_from_function(f).parse(b'{"a": 5.0}', "strict").value, {})
        == 5
    )


def test_a_raw_message_without_a_schema_takes_any_object() -> None:
    def raw(request: JsonRpcMessage) -> None: ...

    tool = tool_from_function(raw)
    assert tool.input_schema == {"type": "object"}
    parsed = tool.parse(b'{"anything": [1]}')
    assert (parsed.arguments, parsed.warnings, parsed.errors) == ({"anything": [1]}, (), ())
    assert tool.parse(b"[1]").errors


def test_raw_arguments_may_come_as_a_slice_of_a_message() -> None:
    assert run(tool_from_function(len_of), msgspec.Raw(b'{"text": "ab"}')) == 2  # type: ignore[arg-type]


def test_enum_members_may_be_named_though_the_schema_does_not_show_it() -> None:
    import enum

    class Level(enum.Enum):
        LOW = 1
        HIGH = 2

    def f(level: Level) -> Level:
        return level

    tool = tool_from_function(f)
    assert tool.input_schema["properties"] == {"level": {"type": "integer", "enum": [1, 2]}}
    parsed = tool.parse(b'{"level": "high"}')
    assert tool.invoke(parsed.value, {}) is Level.HIGH
    assert [warning.code for warning in parsed.warnings] == ["enum_token_matched"]


# Declarations that cannot work.


def starred(*numbers: int) -> None: ...
def keywords(**options: int) -> None: ...
def positional(a: int, /) -> None: ...
def unknown_type(a: NotThere) -> None: ...
def custom_class(a: Repository) -> None: ...
def custom_inside(a: list[dict[str, Repository]]) -> None: ...
def bad_literal(a: Annotated[str, Pattern("(")]) -> None: ...
def bad_header(a: Annotated[str, Header("Re gion")]) -> None: ...
def float_header(a: Annotated[float, Header("Ratio")]) -> None: ...
def same_header(a: Annotated[str, Header("X")], b: Annotated[str, Header("x")]) -> None: ...
def deep_header(a: list[Annotated[str, Header("X")]]) -> None: ...
def same_alias(a: int, b: Annotated[int, pydantic.Field(alias="a")]) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (starred, r"parameter 'numbers': \*numbers has no names that a caller could send"),
        (keywords, r"parameter 'options': \*\*options hides the names"),
        (positional, "parameter 'a': a is positional-only, but arguments are passed by name"),
        (unknown_type, "parameter 'a': its annotation 'NotThere' is not defined at run time"),
        (custom_class, "parameter 'a': Repository cannot be read from JSON; .* register it as a service"),
        (custom_inside, "parameter 'a': Repository cannot be read from JSON"),
        (bad_literal, "schema at /properties/a"),
        (bad_header, "x-mcp-header at a: 'Re gion' is not a valid HTTP header name"),
        (float_header, "x-mcp-header at a: only strings, integers and booleans can be headers"),
        (same_header, "x-mcp-header at b: 'x' is used twice"),
        (deep_header, "x-mcp-header is not allowed inside a list"),
        (same_alias, "parameters 'a' and 'b' are both called 'a' in JSON"),
    ],
)
def test_a_declaration_that_cannot_work_names_its_line_and_the_fix(function: Callable[..., Any], says: str) -> None:
    line = function.__code__.co_firstlineno
    with pytest.raises(DeclarationError, match=rf"^{re.escape(__file__)}:{line}: {says}"):
        tool_from_function(function)


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (Calculator, "Calculator is a class; pass an instance or a method"),
        (MemorySearch, "MemorySearch is a class; pass an instance"),
        (Calculator.add, r"add is a method without its object; pass instance\.add"),
        (5, "5 is not callable"),
        (lambda: None, "a lambda has no name"),
    ],
)
def test_an_object_that_is_not_a_function_is_rejected(thing: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        tool_from_function(thing)


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"type": "object", "properties": {"a": {"type": "strin"}}}])
def test_an_explicit_schema_is_checked_when_the_tool_is_made(schema: dict[str, Any]) -> None:
    def f(request: JsonRpcMessage) -> None: ...

    with pytest.raises(DeclarationError, match="schema at "):
        tool_from_function(f, input_schema=schema)


def test_errors_can_only_be_passed_to_who_takes_the_message() -> None:
    with pytest.raises(DeclarationError, match="take the request as a JsonRpcMessage"):
        tool_from_function(len_of, on_parse_error="pass")

    def raw(request: JsonRpcMessage) -> None: ...

    assert tool_from_function(raw, on_parse_error="pass").on_parse_error == "pass"


def test_a_return_type_that_cannot_be_resolved_at_runtime_is_accepted() -> None:
    def f(a: int) -> NotThere: ...

    assert tool_from_function(f).output_schema is None


def test_a_return_annotation_that_makes_no_schema_is_refused_where_it_is_declared() -> None:
    def name() -> Annotated[str, Pattern("(")]:
        return "x"

    with pytest.raises(DeclarationError, match=r"test_tool.py:\d+: the schema of the return type cannot be used"):
        tool_from_function(name)


def raw_tool(request: JsonRpcMessage) -> None:
    """Takes it all."""


def text_tool(text: str) -> None:
    """Takes a text."""


TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
WAYS_TO_TAKE_TEXT = [
    lambda: tool_from_function(text_tool),
    lambda: tool_from_function(text_tool, input_schema=TEXT),
    lambda: tool_from_function(raw_tool, input_schema=TEXT),
    lambda: tool_from_function(raw_tool),
]


@pytest.mark.parametrize("make", WAYS_TO_TAKE_TEXT)
@pytest.mark.parametrize("raw", [b'{"text": "cut o', b'{"text": 1e999}', b"\xff", b"[" * 5000])
def test_invalid_json_is_an_argument_error_in_every_style(make: Callable[[], Tool], raw: bytes) -> None:
    for mode in ("lenient", "strict"):
        assert [error.code for error in make().parse(raw, mode).errors] == ["json_parse_error"]


@pytest.mark.parametrize("make", WAYS_TO_TAKE_TEXT)
def test_almost_valid_json_is_parsed_and_reported_in_every_style(make: Callable[[], Tool]) -> None:
    parsed = make().parse(b'{"text": "a",}')
    assert (parsed.arguments, parsed.errors) == ({"text": "a"}, ())
    assert parsed.warnings[0].code == "string_literal_converted_to_object"


@pytest.mark.parametrize("make", WAYS_TO_TAKE_TEXT)
def test_text_that_is_not_utf8_never_escapes_as_an_exception(make: Callable[[], Tool]) -> None:
    assert make().parse(b'{"text": "\xff"}', "strict").errors[0].code == "json_parse_error"
    assert make().parse(b'{"text": "\xff"}').warnings[0].code == "string_literal_converted_to_object"


SCHEMA_TEXT = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'


async def test_a_schema_is_read_from_json_text_in_every_style_that_takes_one() -> None:
    board = Board()

    @board.tool(input_schema=SCHEMA_TEXT, output_schema='{"type": "object", "required": ["a"]}')
    async def explicit(request: JsonRpcMessage) -> JsonRpcMessage:
        return ToolResponse.success(request.id, request.params)

    @board.tool(input_schema=SCHEMA_TEXT)
    async def hybrid(a: int) -> dict[str, int]:
        return {"a": a}

    class Declared(Tool):
        name = "declared"
        input_schema = SCHEMA_TEXT  # type: ignore[assignment]  # the attribute is a dict once the tool is added

        async def execute(self, context: ToolExecutionContext) -> Any:
            return dict(context.request.arguments)

    board.add(Declared())
    async with Client(board) as client:
        listed = {tool["name"]: tool for tool in await client.list_tools()}
        for name in ("explicit", "hybrid", "declared"):
            assert listed[name]["inputSchema"]["required"] == ["a"]
            assert (await client.call(name, {"a": "5"})).text == '{"a":5}'
        assert listed["explicit"]["outputSchema"] == {"type": "object", "required": ["a"]}
