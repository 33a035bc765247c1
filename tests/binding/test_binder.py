"""From raw JSON to the values a function is called with."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import ipaddress
import pathlib
import uuid
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import annotated_types
import attrs
import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.schema.types.constraints import MaxLength, MinLength, Pattern, Range
from pegboard.schema.validator import Validator
from pegboard.tools.tool import Tool, tool_from_function
from tests.depth import every_case, examples

pytestmark = every_case


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    ONE = 1
    HALF = 0.5
    WORD = "word"
    NONE = None


class Shade(enum.Enum):
    DARK = (0, 0, 0)
    LIGHT = (9, 9, 9)


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Slug(str):
    __slots__ = ()


@dataclass
class Circle:
    radius: float


@dataclass
class Square:
    side: int
    name: str = "square"


@dataclass
class Named:
    side: int
    name: str
    colour: Colour = Colour.RED


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


@dataclass
class Hidden:
    shown: int
    secret: int = field(default=7, init=False)


@dataclass
class Seeded:
    start: InitVar[int]
    total: int = 0

    def __post_init__(self, start: int) -> None:
        self.total += start


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("must be even")


@attrs.define
class Positive:
    number: int = attrs.field(validator=attrs.validators.gt(0))


class Options(TypedDict):
    depth: int
    where: NotRequired[pathlib.Path]


class ReadOnlyOptions(typing_extensions.TypedDict):
    depth: typing_extensions.ReadOnly[int]


class Size(NamedTuple):
    width: int
    height: int = 1


class Sized(NamedTuple):
    where: pathlib.Path
    height: int = 1


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    tricks: list[str]


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: int = 0


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)
    born: dt.date | None = None
    friends: list[Person] = []

    @pydantic.field_validator("name")
    @classmethod
    def no_digits(cls, name: str) -> str:
        if any(letter.isdigit() for letter in name):
            raise ValueError("a name has no digits")
        return name


@dataclass
class Team:
    lead: Person
    places: set[pathlib.PurePosixPath]


Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | int | pathlib.PurePosixPath | None")


def tool_taking(annotation: Any, *default: Any) -> Tool:
    def f(value: Any = None) -> Any:
        return value

    f.__annotations__["value"] = annotation
    f.__defaults__ = default or None
    return tool_from_function(f)


def call(tool: Tool, **arguments: Any) -> Any:
    parsed = tool.parse(msgspec.json.encode(arguments))
    assert not parsed.errors, parsed.errors
    assert not parsed.warnings, parsed.warnings
    return tool.invoke(parsed.value, {})


BOUND: list[tuple[Any, Any, Any]] = [
    (int, 5, 5),
    (int, 5.0, 5),
    (int, 10**30, 10**30),
    (float, 5, 5.0),
    (bool, True, True),
    (str, "", ""),
    (Any, {"a": [1.0, None]}, {"a": [1.0, None]}),
    (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
    (decimal.Decimal, 3, decimal.Decimal(3)),
    (dt.datetime, "2026-07-28T10:00:00Z", dt.datetime(2026, 7, 28, 10, tzinfo=dt.UTC)),
    (dt.date, "2026-07-28", dt.date(2026, 7, 28)),
    (dt.time, "10:30:00", dt.time(10, 30)),
    (dt.timedelta, "PT90S", dt.timedelta(seconds=90)),
    (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
    (bytes, "aGk=", b"hi"),
    (pathlib.Path, "a/b", pathlib.Path("a/b")),
    (pathlib.PurePosixPath, "a/b", pathlib.PurePosixPath("a/b")),
    (ipaddress.IPv4Address, "10.0.0.1", ipaddress.IPv4Address("10.0.0.1")),
    (Slug, "a-b", Slug("a-b")),
    (Colour, "blue", Colour.BLUE),
    (Mixed, 0.5, Mixed.HALF),
    (Mixed, 1.0, Mixed.ONE),
    (Mixed, "word", Mixed.WORD),
    (Shade, "DARK", Shade.DARK),
    (Access, 3, Access.READ | Access.WRITE),
    (Literal["a", 1], 1, 1),
    (Literal[True, "auto"], True, True),
    (Literal[Colour.RED], "red", Colour.RED),
    (list[int], [1, 2.0], [1, 2]),
    (set[int], [1, 2], {1, 2}),
    (frozenset[str], ["a"], frozenset({"a"})),
    (set[pathlib.PurePosixPath], ["a"], {pathlib.PurePosixPath("a")}),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[pathlib.PurePosixPath, int], ["a", 1], (pathlib.PurePosixPath("a"), 1)),
    (dict[str, float], {"a": 1}, {"a": 1.0}),
    (dict[int, str], {"7": "a"}, {7: "a"}),
    (dict[Colour, int], {"red": 1}, {Colour.RED: 1}),
    (dict[dt.date, list[Slug]], {"2026-07-28": ["a"]}, {dt.date(2026, 7, 28): [Slug("a")]}),
    (dict[pathlib.PurePosixPath, int], {"a": 1}, {pathlib.PurePosixPath("a"): 1}),
    (int | str, "1", "1"),
    (int | str, 1.0, 1),
    (int | float, 1.0, 1.0),
    (Circle | Square, {"radius": 1}, Circle(1.0)),
    (Circle | Square | None, {"side": 2}, Square(2)),
    (Square | Named, {"side": 2, "name": "n", "colour": "blue"}, Named(2, "n", Colour.BLUE)),
    (Square | Named, {"side": 2, "name": "n"}, Square(2, "n")),
    (Cat | Dog, {"type": "Dog", "tricks": ["sit"]}, Dog(["sit"])),
    (str | dt.date, "2026-07-28", "2026-07-28"),
    (dt.date | str, "2026-07-28", dt.date(2026, 7, 28)),
    (dt.date | str, "someday", "someday"),
    (Tree, {"value": 1, "children": [{"value": 2.0}]}, Tree(1, [Tree(2)])),
    (Options, {"depth": 1, "where": "a"}, {"depth": 1, "where": pathlib.Path("a")}),
    (ReadOnlyOptions, {"depth": 1}, {"depth": 1}),
    (Size, [3], Size(3, 1)),
    (Sized, ["a", 2], Sized(pathlib.Path("a"), 2)),
    (Pair, [1, 2], Pair(1, 2)),
    (Seeded, {"start": 4}, Seeded(4)),
    (Even, {"number": 4}, Even(4)),
    (Positive, {"number": 4}, Positive(4)),
    (
        Person,
        {"name": "Ada", "age": 36.0, "born": "1815-12-10"},
        Person(name="Ada", age=36, born=dt.date(1815, 12, 10)),
    ),
    (list[Person], [{"name": "Ada", "age": 3}], [Person(name="Ada", age=3)]),
    (
        Team,
        {"lead": {"name": "Ada", "age": 3}, "places": ["x"]},
        Team(Person(name="Ada", age=3), {pathlib.PurePosixPath("x")}),
    ),
    (Json, {"a": [1.0, None, "p"]}, {"a": [1, None, pathlib.PurePosixPath("p")]}),
    (pydantic.HttpUrl, "https://a.example/", pydantic.HttpUrl("https://a.example/")),
    (Annotated[str, pydantic.AfterValidator(str.upper)], "abc", "ABC"),
]


@pytest.mark.parametrize(("annotation", "sent", "bound"), BOUND, ids=[f"{a}-{s}" for a, s, _ in BOUND])
def test_a_value_that_fits_becomes_what_the_function_takes(annotation: Any, sent: Any, bound: Any) -> None:
    got = call(tool_taking(annotation), value=sent)
    assert got == bound
    assert type(got) is type(bound)


@pytest.mark.parametrize(("annotation", "sent", "bound"), BOUND, ids=[f"{a}-{s}" for a, s, _ in BOUND])
def test_the_same_holds_when_another_argument_had_to_be_repaired(annotation: Any, sent: Any, bound: Any) -> None:
    def f(value: Any, other: int) -> Any:
        return value

    f.__annotations__["value"] = annotation
    tool = tool_from_function(f)
    parsed = tool.parse(msgspec.json.encode({"value": sent, "other": "5"}))
    assert [warning.path for warning in parsed.warnings] == ["other"]
    got = tool.invoke(parsed.value, {})
    assert got == bound
    assert type(got) is type(bound)


def test_a_decimal_keeps_every_digit() -> None:
    tool = tool_taking(decimal.Decimal)
    parsed = tool.parse(b'{"value": 0.1234567890123456789012345}')
    assert tool.invoke(parsed.value, {}) == decimal.Decimal("0.1234567890123456789012345")


def test_a_caller_cannot_set_a_field_kept_out_of_init() -> None:
    tool = tool_taking(Hidden)
    assert call(tool, value={"shown": 1}).secret == 7
    (error,) = tool.parse(b'{"value": {"shown": 1, "secret": 1}}').errors
    assert error.message == "value.secret: unknown property, remove it"


REFUSED: list[tuple[Any, Any, str, str]] = [
    (Even, {"number": 3}, "value", "must be even"),
    (list[Even], [{"number": 2}, {"number": 3}], "value[1]", "must be even"),
    (Positive, {"number": -1}, "value", "'number' must be > 0: -1"),
    (Person, {"name": "R2", "age": 3}, "value.name", "a name has no digits"),
    (Team, {"lead": {"name": "R2", "age": 3}, "places": []}, "value.lead.name", "a name has no digits"),
    (list[Person], [{"name": "R2", "age": 3}], "value[0].name", "a name has no digits"),
    (Annotated[dt.date, annotated_types.Ge(dt.date(2000, 1, 1))], "1999-01-01", "value", "must be at least 2000-01-01"),
    (Annotated[decimal.Decimal, annotated_types.Gt(0)], "-1", "value", "must be above 0"),
    (Annotated[bytes, MaxLength(1)], "aGk=", "value", "has 2 bytes, at most 1 are allowed"),
    (bytes, "a", "value", "Invalid base64 encoded string"),
    (ipaddress.IPv4Address, "10.0.0", "value", "Expected 4 octets in '10.0.0'"),
]


@pytest.mark.parametrize(("annotation", "sent", "path", "message"), REFUSED, ids=[f"{a}-{s}" for a, s, *_ in REFUSED])
def test_what_an_author_refuses_is_an_error_of_the_argument_at_its_path(
    annotation: Any, sent: Any, path: str, message: str
) -> None:
    parsed = tool_taking(annotation).parse(msgspec.json.encode({"value": sent}))
    assert [(error.path, error.message) for error in parsed.errors] == [(path, f"{path}: {message}")]


def test_all_problems_of_a_model_are_reported_together() -> None:
    class Two(pydantic.BaseModel):
        a: str
        b: str

        @pydantic.field_validator("a", "b")
        @classmethod
        def refuse(cls, value: str) -> str:
            raise ValueError("no")

    parsed = tool_taking(Two).parse(b'{"value": {"a": "", "b": ""}}')
    assert [error.path for error in parsed.errors] == ["value.a", "value.b"]


def test_null_for_an_optional_parameter_is_the_same_as_nothing() -> None:
    def f(
        a: int | None = None, b: pathlib.Path | None = None, c: Person | None = None, d: dt.date | None = None
    ) -> Any:
        return a, b, c, d

    tool = tool_from_function(f)
    assert call(tool, a=None, b=None, c=None, d=None) == (None, None, None, None)
    assert call(tool, a=1, d=None) == (1, None, None, None)
    assert call(tool) == (None, None, None, None)


def test_null_is_kept_where_it_says_something_else_than_nothing() -> None:
    def f(mood: str | None = "good", where: pathlib.Path | None = pathlib.Path("x")) -> Any:
        return mood, where

    tool = tool_from_function(f)
    assert call(tool, mood=None, where=None) == (None, None)
    assert call(tool) == ("good", pathlib.Path("x"))


def test_null_for_a_parameter_with_a_default_takes_the_default_with_a_warning() -> None:
    def f(limit: int = 5) -> int:
        return limit

    tool = tool_from_function(f)
    parsed = tool.parse(b'{"limit": null}')
    assert [warning.code for warning in parsed.warnings] == ["null_replaced_by_default"]
    assert tool.invoke(parsed.value, {}) == 5


def test_a_mutable_default_is_copied_for_each_call() -> None:
    shared: list[int] = [1]

    def f(a: list[int] = shared, b: Tree = Tree(1), c: Person | None = None) -> Any:  # noqa: B008 (what is tested)
        return a

    given = call(tool_from_function(f))
    assert given == shared
    # A call that changes its default must not change it for the others.
    assert given is not shared


def test_keyword_only_and_injected_parameters_find_their_places() -> None:
    class Service: ...

    service = Service()

    def f(first: Service, a: int, b: int = 2, *, c: int, last: Service) -> Any:
        return first is last, a, b, c

    tool = tool_from_function(f, is_injected=lambda annotation: annotation is Service)
    parsed = tool.parse(b'{"a": 1, "c": 3}')
    assert tool.injected == {"first": Service, "last": Service}
    assert tool.invoke(parsed.value, {"first": service, "last": service}) == (True, 1, 2, 3)
    assert "first" not in str(tool.input_schema)


def test_what_is_injected_cannot_be_sent() -> None:
    class Service: ...

    def f(a: int, service: Service) -> None: ...

    tool = tool_from_function(f, is_injected=lambda annotation: annotation is Service)
    assert [error.path for error in tool.parse(b'{"a": 1, "service": {}}').errors] == ["service"]


def test_an_alias_reaches_its_parameter() -> None:
    def send(from_: Annotated[str, pydantic.Field(alias="from")]) -> str:
        return from_

    assert call(tool_from_function(send), **{"from": "me"}) == "me"


def test_the_arguments_can_be_looked_at_by_name() -> None:
    def f(day: dt.date, limit: int = 3) -> None: ...

    assert tool_from_function(f).parse(b'{"day": "2026-07-28"}').arguments == {"day": dt.date(2026, 7, 28), "limit": 3}


# The typed decoder and the JSON Schema are two readings of one shape: they must agree on every JSON value.
AGREEING: list[Any] = [
    int,
    float,
    str,
    bool,
    None | int,
    Any,
    decimal.Decimal,
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    uuid.UUID,
    bytes,
    Colour,
    Mixed,
    Access,
    Literal["a", 1, None],  # noqa: PYI061 (people write it)
    Literal[True, 2],
    list[int],
    set[int],
    tuple[int, ...],
    tuple[int, str],
    dict[str, int],
    dict[int, str],
    dict[Colour, int],
    int | str,
    int | float | None,
    bool | list[int],
    Circle,
    Square,
    Circle | Square,
    Tree,
    Options,
    Size,
    Pair,
    Cat,
    Cat | Dog,
    Person,
    list[Circle] | dict[str, int],
    Json,
    Annotated[int, Range(0, 3)],
    Annotated[float, Range(0.5, 2)],
    Annotated[float, annotated_types.Gt(0), annotated_types.Lt(2**70)],
    Annotated[int, annotated_types.MultipleOf(2)],
    Annotated[float, annotated_types.MultipleOf(0.5)],
    Annotated[str, MinLength(1), MaxLength(2)],
    Annotated[str, Pattern("^a|b$")],
    Annotated[list[int], MinLength(1)],
    Annotated[dict[str, int], MaxLength(1)],
    list[Annotated[int, Range(1)]],
    Annotated[int | str, Range(0)],
]

words = st.sampled_from(
    ["", "a", "b", "b\n", "ab", "red", "word", "aGk=", "2026-07-28", "2026-07-28T10:00:00Z", "2026-07-28T10:00:00",
     "2026-07-28 10:00:00Z", "10:30", "10:30:00", "PT5M", "P1D", "P1Y", "1.10", "NaN", " 1", "1_0", "x", "side", "radius",
     "12345678-1234-5678-1234-567812345678", "12345678123456781234567812345678", "Cat", "Dog", "7", "07", "\u0663"]
)  # fmt: skip
numbers = st.sampled_from([0, 1, -1, 2, 3, 4, 0.5, 1.0, 1.5, -0.0, 2.0, 2**53 + 1, 2**63, 2**64, 2**70, 10**30, 1e300])
leaves = st.none() | st.booleans() | numbers | words | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
names = st.sampled_from(
    ["value", "children", "radius", "side", "name", "type", "lives", "tricks", "depth", "where", "age", "born", "friends",
     "1", "07", "red", "a", "extra"]
)  # fmt: skip
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)


@pytest.mark.parametrize("annotation", AGREEING, ids=str)
@settings(max_examples=examples(10), deadline=None)
@given(value=values)
def test_the_decoder_and_the_schema_agree(annotation: Any, value: Any) -> None:
    tool = _tools.setdefault(str(annotation), tool_taking(annotation))
    judge = _judges.setdefault(str(annotation), Validator(tool.input_schema))
    sent = {"value": value}
    parsed = tool.parse(msgspec.json.encode(sent), "strict")
    optional = value is None and "value" not in tool.input_schema.get("required", ())
    if judge.is_valid(sent) or optional:
        # The schema takes it: then it is bound, or refused for what no schema can say.
        assert all(error.code in {"invalid_value", "invalid_timestamp_format"} for error in parsed.errors), (
            parsed.errors
        )
    else:
        assert parsed.errors


_tools: dict[str, Tool] = {}
_judges: dict[str, Validator] = {}


@pytest.mark.parametrize(
    ("annotation", "sent", "code"),
    [
        (Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 3})], "x", "string_too_short"),
        (Annotated[str, msgspec.Meta(extra_json_schema={"format": "date"})], "x", "invalid_date_format"),
        (Annotated[list[int], msgspec.Meta(extra_json_schema={"minItems": 2})], [1], "array_too_short"),
        (Annotated[int, msgspec.Meta(ge=0, extra_json_schema={"multipleOf": 5})], 3, "number_not_a_multiple"),
    ],
)
def test_keywords_an_author_adds_to_the_schema_hold(annotation: Any, sent: Any, code: str) -> None:
    def take(value: Any) -> None:
        """Takes it."""

    take.__annotations__["value"] = annotation
    [error] = tool_from_function(take).parse(msgspec.json.encode({"value": sent})).errors
    assert error.code == code


@dataclass
class Defaulted:
    street: str
    number: int = 1


def test_a_default_of_a_dataclass_is_in_the_instance_and_is_written_again() -> None:
    def take(place: Defaulted, places: list[Defaulted]) -> None:
        """Takes them."""

    raw = b'{"place": {"street": "Main"}, "places": [{"street": "Side"}]}'
    arguments = tool_from_function(take).parse(raw).arguments
    assert vars(arguments["place"]) == {"street": "Main", "number": 1}
    assert msgspec.json.encode(arguments["places"]) == b'[{"street":"Side","number":1}]'
