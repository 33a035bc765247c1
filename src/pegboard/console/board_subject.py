"""What the console shows of a board: one lane, no servers."""

from __future__ import annotations

from collections.abc import Mapping
from time import time

from pegboard.auth.principal import Principal
from pegboard.board import Board
from pegboard.call import Json
from pegboard.console.console_subject import about, describe
from pegboard.errors import InvalidParams
from pegboard.middleware.observability.history import History


class BoardSubject:
    """A board: one lane, no servers."""

    def __init__(self, board: Board, history: History | None = None) -> None:
        self.served = self.board = board
        self.history = history or History()
        board.use(self.history)
        self._since = time()
        self._counted: tuple[int, dict[str, Json]] = (-1, {})

    def overview(self) -> dict[str, Json]:
        # Open pages ask for it every second; the tokens are counted again only when the tools change.
        if self._counted[0] != self.served.tools.generation:
            tools = self.tools()
            costs: dict[str, Json] = {"tools": len(tools), "all": sum(_tokens(tool) for tool in tools)}
            self._counted = self.served.tools.generation, costs
        return {**about("board", self.served, self._since), "toolboxes": [], "costs": self._counted[1]}

    def tools(self) -> list[dict[str, Json]]:
        name = self.served.name
        return [describe(tool.name, tool.definition(), name, "", "", tool.name) for tool in self.served.tools]

    def search(self, query: str) -> list[str]:
        words = query.lower().split()
        return [
            tool.name
            for tool in self.served.tools
            if all(word in f"{tool.name} {tool.title} {tool.description}".lower() for word in words)
        ]

    async def change_server(self, toolbox: str, server: str, action: str) -> None:
        raise InvalidParams("A board has no servers")

    def server_tools(self, toolbox: str, server: str) -> list[Json]:
        return []

    async def switch_tool(self, toolbox: str, server: str, tool: str, *, on: bool) -> None:
        raise InvalidParams("A board has no servers")

    async def connections(self, principal: Principal) -> Json:
        return None

    async def change_connection(self, principal: Principal, toolbox: str, server: str, action: str) -> str:
        raise InvalidParams("A board has no servers")

    async def lock(self) -> Json:
        return None

    async def accept(self, names: list[str]) -> None:
        raise InvalidParams("A board has no lock file")


def _tokens(tool: Mapping[str, Json]) -> int:
    tokens = tool["tokens"]
    return tokens if isinstance(tokens, int) else 0
