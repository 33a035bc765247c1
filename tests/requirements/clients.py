"""A client of either era, which asks a board over HTTP and keeps every message that came back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pegboard import Board
from pegboard.protocol.revisions import MODERN
from tests.server.fake_sink import PREFIX, Door, Legacy, Response, Visit, request

ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])


class Client:
    """One way to ask, in either era; `heard` is all the server said."""

    def __init__(self, door: Door, session: Legacy | None, capabilities: Mapping[str, Any]) -> None:
        self.door = door
        self.session = session
        self.heard: list[Any] = []
        self._capabilities = capabilities

    def ask(self, method: str, params: Mapping[str, Any] | None = None, token: Any = None) -> Visit:
        """Hand in a request."""
        params = {**(params or {})}
        meta = {**params.pop("_meta", {}), **({} if token is None else {"progressToken": token})}
        if self.session is not None:
            return self.session.ask(method, {**params, "_meta": meta})
        named = {"resources/read": "uri", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
        headers = {"mcp-name": params[named[method]]} if method in named else {}
        meta = {PREFIX + "clientCapabilities": self._capabilities, **meta}
        return self.door.modern(method, params, meta=meta, headers=headers)

    async def response(self, method: str, params: Mapping[str, Any] | None = None, token: Any = None) -> Response:
        """What a request is answered with."""
        response = await self.ask(method, params, token).response()
        streamed = response.content_type == "text/event-stream"
        self.heard += response.messages if streamed else [response.json] if response.body else []
        return response

    async def result(self, method: str, params: Mapping[str, Any] | None = None, token: Any = None) -> Any:
        """The result of a request that succeeds."""
        answer = (await self.response(method, params, token)).json
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The error of a request that is refused."""
        answer = (await self.response(method, params)).json
        assert "error" in answer, answer
        return answer["error"]

    async def capabilities(self) -> Any:
        """What the server declares."""
        if self.session is None:
            return (await self.result("server/discover"))["capabilities"]
        return (await self.door.initialize()).json["result"]["capabilities"]


async def connect(board: Board, era: str, capabilities: Mapping[str, Any] | None = None) -> Client:
    """A client with its own door to the board; in the legacy era it has shaken hands."""
    door = Door(handler=board.handler, info=board.info)
    declared = capabilities or {}
    if era == "modern":
        return Client(door, None, declared)
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": declared,
        "clientInfo": {"name": "t", "version": "1"},
    }
    response = await door.send(request("initialize", params)).response()
    assert response.status == 200, response.body
    return Client(door, Legacy(door, response.headers["mcp-session-id"], "2025-11-25"), declared)


__all__ = ["ERAS", "MODERN", "PREFIX", "Client", "connect"]
