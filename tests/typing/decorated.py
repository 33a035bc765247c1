"""What a type checker sees of decorated functions; `reveal_type` lines are judged by test_typing.py."""

from abc import ABC, abstractmethod
from typing import Protocol, reveal_type

from pegboard import Board, Client, ToolCatalog, ToolExecutionRecord, ToolExecutor, tool

board = Board("typed")


@board.tool
def add(a: int, b: int = 1) -> int:
    return a + b


@board.tool("named", title="Named", tags={"x"})
async def greet(name: str) -> str:
    return name


@tool
def marked(a: int) -> str:
    return str(a)


@board.group("g").tool(name="inside")
def grouped(a: bytes) -> None:
    return None


class Methods:
    @tool("method")
    def method(self, a: float) -> float:
        return a


reveal_type(add)  # Revealed type is "def (a: int, b: int =) -> int"
reveal_type(greet)  # Revealed type is "def (name: str) -> typing.Coroutine[Any, Any, str]"
reveal_type(marked)  # Revealed type is "def (a: int) -> str"
reveal_type(grouped)  # Revealed type is "def (a: bytes)"
reveal_type(Methods().method)  # Revealed type is "def (a: float) -> float"


class Repository(Protocol):
    def find(self, key: int) -> str: ...


class Store(ABC):
    @abstractmethod
    def get(self) -> str: ...


class Memory(Store):
    def get(self) -> str:
        return ""

    def find(self, key: int) -> str:
        return ""


def make() -> Memory:
    return Memory()


# An abstract type or a Protocol may stand for what supplies it.
board.services.value(Repository, Memory())
board.services.factory(Store, make, lifetime="app")
with board.services.override(Repository, Memory()):
    pass


async def embed() -> ToolExecutionRecord:
    executor = ToolExecutor(board, {"user": "Ada"})
    batch = await ToolExecutor(ToolCatalog([add, *board.tools])).execute_batch([])
    reveal_type(batch.records)  # Revealed type is "tuple[pegboard.execution.executor.ToolExecutionRecord, ...]"
    async with Client(board) as client:
        reveal_type((await client.call("add", {"a": 1})).text)  # Revealed type is "str"
    return await executor.execute(batch.records[0].metadata["request"])


board.tool("wrong", titel="x")  # error: no option is called so
board.tool(5)  # error: not a function
