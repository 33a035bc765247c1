"""One server behind a gateway that tests look at."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pegboard.call import NULL_CHANNEL, Caller, Channel, Json, Notification, Question
from pegboard.config.gateway_config import ServerConfig
from pegboard.gateway.servers.downstream import Downstream
from tests.client.process_leftovers import nothing_left

BAD = Path(__file__).with_name("bad_server.py")
BATTERY = Path(__file__).parent.parent / "client" / "battery_board.py"
PEGBOARD = (sys.executable, "-m", "pegboard", "run")


def bad(how: str = "well", well: Path | None = None, **options: Any) -> ServerConfig:
    """A server that misbehaves until there is a file."""
    command = (sys.executable, "-S", str(BAD), how, *(() if well is None else (str(well),)))
    return ServerConfig(**{"name": "bad", "kind": "stdio", "command": command, "connect_timeout": 5.0, **options})


def battery(**options: Any) -> ServerConfig:
    """A good server, on stdio."""
    command = (*PEGBOARD, str(BATTERY), "--stdio")
    return ServerConfig(**{"name": "battery", "kind": "stdio", "command": command, **options})


class Watched(Downstream):
    """A downstream that writes down what it tells."""

    def __init__(self, config: ServerConfig, **options: Any) -> None:
        self.changes: list[tuple[str, str]] = []
        self.updates: list[str] = []
        super().__init__(
            "dev", config, on_change=self._note, on_updated=lambda _, uri: self.updates.append(uri), **options
        )

    def _note(self, downstream: Downstream) -> None:
        self.changes.append((downstream.state, "" if downstream.catalog is None else downstream.catalog.digest))

    @property
    def tools(self) -> list[str]:
        return [] if self.catalog is None else [tool["name"] for tool in self.catalog.tools]

    @property
    def digests(self) -> list[str]:
        """Each catalogue that was told, once."""
        return list(dict.fromkeys(digest for _, digest in self.changes if digest))


@asynccontextmanager
async def behind(config: ServerConfig, **options: Any) -> AsyncIterator[Watched]:
    """A downstream that has settled, and leaves nothing behind."""
    async with nothing_left(), kept(config, **options) as downstream:
        yield downstream


@asynccontextmanager
async def both(one: ServerConfig, two: ServerConfig) -> AsyncIterator[tuple[Watched, Watched]]:
    """Two of them side by side."""
    async with nothing_left(), kept(one) as first, kept(two) as second:
        yield first, second


@asynccontextmanager
async def kept(config: ServerConfig, **options: Any) -> AsyncIterator[Watched]:
    downstream = Watched(config, **options)
    downstream.start()
    try:
        if not config.lazy:
            await downstream.wait_connected()
        yield downstream
    finally:
        await downstream.stop()


async def call(
    downstream: Downstream,
    name: str,
    arguments: Mapping[str, Json] | None = None,
    *,
    channel: Channel = NULL_CHANNEL,
    caller: Caller | None = None,
    wants_progress: bool = False,
    timeout: float | None = None,
) -> str:
    """What a tool says."""
    params = {"name": name, "arguments": arguments or {}}
    result = await downstream.send(
        "tools/call", params, channel, caller, wants_progress=wants_progress, timeout=timeout
    )
    return "".join(block["text"] for block in result["content"])


class Person:
    """The channel of a caller who answers when they are let."""

    def __init__(self, *answers: Json) -> None:
        self.asked: list[Question] = []
        self.heard: list[Notification] = []
        self._answers = list(answers)

    async def emit(self, notice: Notification) -> None:
        self.heard.append(notice)

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        self.asked += asks.values()
        return {key: self._answers.pop(0) for key in asks}

    async def close_stream(self, retry_ms: int) -> None: ...
