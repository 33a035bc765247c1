"""`board.discover` finds every tool of a module, class or object, and says what it leaves out."""

from __future__ import annotations

import logging
import types
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from pegboard import Board, Client, Context, Parameter, Tool, ToolExecutionContext, ValueKind, tool
from pegboard.errors import DeclarationError


class Greetings:
    def __init__(self, word: str = "Hello") -> None:
        self.word = word


@tool
def plain(a: int) -> int:
    return a


class Kit:
    """A class whose constructor takes a service."""

    def __init__(self, greetings: Greetings) -> None:
        self.greetings = greetings
        self.calls = 0

    @tool
    async def greet(self, name: str, ctx: Context) -> str:
        self.calls += 1
        return f"{self.greetings.word}, {name} ({self.calls})"

    @tool("shout", category="loud")
    def cry(self, name: str, greetings: Greetings) -> str:
        return f"{greetings.word.upper()} {name}"

    @tool
    @staticmethod
    def outside(a: int) -> int:
        return a + 1

    @staticmethod
    @tool
    def inside(a: int) -> int:
        return a + 2

    @classmethod
    @tool
    def create(cls, a: int) -> str:
        return f"{cls.__name__} {a}"

    @property
    def dangerous(self) -> None:
        raise AssertionError("a property must not be read")


class Search(Tool):
    name = "memory.search"
    description = "Finds notes"
    parameters = (Parameter("query", ValueKind.STRING),)

    def __init__(self, greetings: Greetings, log: logging.Logger) -> None:
        self.greetings = greetings
        self.log = log

    def execute(self, context: ToolExecutionContext) -> str:
        return f"{self.greetings.word}: {context.request.arguments['query']}"


def module_of(*things: Any) -> types.ModuleType:
    """A module that defines these."""
    module = types.ModuleType(__name__)
    vars(module).update({getattr(thing, "__name__", f"thing{number}"): thing for number, thing in enumerate(things)})
    return module


def names(board: Board) -> list[str]:
    return [one.name for one in board.tools]


async def test_methods_static_and_class_methods_and_declared_tools_of_a_module_are_found() -> None:
    board = Board()
    board.services.value(Greetings, Greetings())
    board.discover(module_of(plain, Kit, Search))
    assert names(board) == ["plain", "greet", "shout", "outside", "inside", "create", "memory.search"]
    async with Client(board) as client:
        assert (await client.call("greet", {"name": "Ada"})).text == "Hello, Ada (1)"
        assert (await client.call("greet", {"name": "Ada"})).text == "Hello, Ada (2)"
        assert (await client.call("shout", {"name": "Ada"})).text == "HELLO Ada"
        assert (await client.call("outside", {"a": 1})).text == "2"
        assert (await client.call("inside", {"a": 1})).text == "3"
        assert (await client.call("create", {"a": 1})).text == "Kit 1"
        assert (await client.call("memory.search", {"query": "x"})).text == "Hello: x"
        (greet,) = [one for one in await client.list_tools() if one["name"] == "greet"]
    assert list(greet["inputSchema"]["properties"]) == ["name"]
    found = board.tools.get("shout")
    assert found is not None
    assert found.category == "loud"


@pytest.mark.parametrize(("lifetime", "second"), [("app", "(2)"), ("call", "(1)")])
async def test_an_instance_lives_as_long_as_configured(lifetime: Any, second: str) -> None:
    asked, registered = Board(), Board()
    for board in (asked, registered):
        board.services.value(Greetings, Greetings())
    asked.discover(Kit, lifetime=lifetime)
    registered.services.factory(Kit, Kit, lifetime=lifetime)
    registered.discover(Kit)
    for board in (asked, registered):
        async with Client(board) as client:
            await client.call("greet", {"name": "Ada"})
            assert second in (await client.call("greet", {"name": "Ada"})).text


async def test_methods_of_an_object_are_found_bound() -> None:
    board = Board()
    board.services.value(Greetings, Greetings("Hi"))
    board.discover(Kit(Greetings("Bye")))
    assert names(board) == ["greet", "shout", "outside", "inside", "create"]
    async with Client(board) as client:
        assert (await client.call("greet", {"name": "Ada"})).text == "Bye, Ada (1)"


@dataclass
class Base:
    greetings: Greetings

    @tool
    def shared(self) -> str:
        return type(self).__name__


class Derived(Base):
    """Inherits its constructor and its tool."""


class Abstract(ABC):
    @tool
    @abstractmethod
    def undone(self) -> None: ...


class Unfinished(Tool):
    name = "unfinished"


async def test_what_is_left_out_is_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    board = Board()
    board.services.value(Greetings, Greetings())
    with caplog.at_level(logging.INFO):
        board.discover(module_of(Base, Derived, Abstract, Unfinished))
    assert names(board) == ["shared"]
    assert "Base is left out: it is the base of another class" in caplog.text
    assert "Abstract is left out: it is abstract (undone)" in caplog.text
    assert "Unfinished is left out: it has no execute()" in caplog.text
    async with Client(board) as client:
        assert (await client.call("shared")).text == "Derived"


def test_an_instance_of_a_declared_tool_stands_for_its_class() -> None:
    board = Board()
    search = Search(Greetings(), logging.getLogger())
    board.discover(module_of(Search, search))
    assert list(board.tools) == [search]


def test_a_function_that_a_module_only_imports_is_left_to_the_other_module() -> None:
    module = types.ModuleType("elsewhere")
    vars(module)["plain"] = plain
    with pytest.raises(DeclarationError, match="Nothing in 'elsewhere' is a Tool or marked with @tool"):
        Board().discover(module)


def test_a_constructor_that_no_service_satisfies_is_an_error_at_once() -> None:
    with pytest.raises(DeclarationError, match="Nothing supplies Greetings"):
        Board().discover(Kit)
    with pytest.raises(DeclarationError, match="Nothing supplies Greetings"):
        Board().discover(Search)


async def make_greetings() -> AsyncIterator[Greetings]:
    yield Greetings()


def test_a_declared_tool_cannot_take_what_exists_only_during_a_call() -> None:
    board = Board()
    board.services.factory(Greetings, make_greetings, lifetime="app")
    with pytest.raises(DeclarationError, match="Search is made before the first call, and Greetings only during one"):
        board.discover(Search)
    board.services.factory(Greetings, lambda: Greetings("Hey"), lifetime="app")
    board.discover(Search)
    assert names(board) == ["memory.search"]
