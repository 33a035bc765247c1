"""A board in the gateway's own process, loaded on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from pegboard.board import Board
from pegboard.call import Call, Handler, Json, Reply
from pegboard.client.links.in_process import InProcessServer
from pegboard.loading import load_board


class LocalBoard:
    """The board in a file."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._board: InProcessServer | None = None

    @property
    def handler(self) -> Handler:
        return self._handle

    @property
    def info(self) -> Mapping[str, Json]:
        return {} if self._board is None else self._board.info

    def _scopes_of(self, kind: str, name: str) -> frozenset[str]:
        return self._board._scopes_of(kind, name) if isinstance(self._board, Board) else frozenset()

    async def start(self) -> None:
        """Load and start the board; in a thread, since importing the file may take long."""
        if self._board is None:
            self._board = await asyncio.to_thread(load_board, self._target)
        await self._board.start()

    async def stop(self) -> None:
        if self._board is not None:
            await self._board.stop()

    def _handle(self, call: Call) -> Coroutine[Any, Any, Reply]:
        assert self._board is not None  # noqa: S101 — start() comes before the first request
        return self._board.handler(call)
