"""Those who call a tool while a flood goes on: `others.py PORT` calls until its input ends, and prints what they met as JSON.

Before that it prints a line when every road has been called a few times, and one when that has happened again after a
line of input: however slow the machine is, a flood begins and ends with calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import count
from typing import Any, TypeAlias

import messages
from websockets.asyncio.client import connect

DEADLINE_SECONDS = 3.0
PAUSE_SECONDS = 0.02
A_FEW = 5
HOST = "127.0.0.1"

Ask: TypeAlias = Callable[[int], Awaitable[Any]]
"""Has a number added to itself; what came back."""


class Met:
    """How long each call took, in seconds, the deadline where nothing came until then, and what went wrong."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        self._calls: Counter[str] = Counter()
        self._enough = asyncio.Event()

    async def count_anew(self, line: str) -> None:
        """Forget how long calls took; when every road has been called a few times, print a line."""
        self.seconds.clear()
        self._calls.clear()
        self._enough.clear()
        await self._enough.wait()
        print(line, flush=True)

    async def call(self, road: str, ask: Ask, number: int) -> None:
        """One call: it ends right, and in time."""
        since = time.perf_counter()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                got = await ask(number)
        except TimeoutError:
            self.seconds.append(DEADLINE_SECONDS)
            raise ConnectionError from None
        except (OSError, asyncio.IncompleteReadError) as problem:
            self.wrong.append(f"{road}: {problem!r}")
            raise ConnectionError from None
        self.seconds.append(time.perf_counter() - since)
        self._calls[road] += 1
        if len(self._calls) == len(ROADS) and min(self._calls.values()) >= A_FEW:
            self._enough.set()
        if got != 2 * number:
            self.wrong.append(f"{road}: {str(got)[:300]}")


def add(number: int) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": "add", "arguments": {"a": number, "b": number}}


def sum_of(answer: Any) -> Any:
    """The number in an answer, or else the answer."""
    try:
        return float(answer["result"]["content"][0]["text"])
    except (KeyError, TypeError, ValueError):
        return answer


# -- over HTTP ---------------------------------------------------------------------------------------------------------


class Line:
    """One connection that is kept."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.port = port
        self._reader = reader
        self._writer = writer

    async def post(self, body: bytes, headers: Mapping[str, str]) -> tuple[dict[str, str], Any]:
        self._writer.write(messages.post(self.port, body, headers))
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        said = await self._reader.readexactly(int(found["content-length"]))
        return found, json.loads(said) if " 200 " in status else f"{status} {said.decode()}"

    async def add(self, number: int) -> Any:
        """By 2026-07-28."""
        headers = {"MCP-Protocol-Version": messages.MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "add"}
        return sum_of((await self.post(messages.modern(*add(number), number), headers))[1])

    async def shake_hands(self) -> Ask:
        """By 2025-11-25."""
        found, _ = await self.post(messages.write(*messages.INITIALIZE, 0), {})
        headers = {"MCP-Protocol-Version": messages.LEGACY, "Mcp-Session-Id": found["mcp-session-id"]}

        async def ask(number: int) -> Any:
            return sum_of((await self.post(messages.write(*add(number), number), headers))[1])

        return ask


@contextlib.asynccontextmanager
async def line(port: int) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield Line(port, reader, writer)
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def kept_legacy(port: int) -> AsyncIterator[Ask]:
    async with line(port) as kept:
        yield await kept.shake_hands()


@contextlib.asynccontextmanager
async def kept_modern(port: int) -> AsyncIterator[Ask]:
    async with line(port) as kept:
        yield kept.add


@contextlib.asynccontextmanager
async def newcomer(port: int) -> AsyncIterator[Ask]:
    async def ask(number: int) -> Any:
        async with line(port) as new:
            return await new.add(number)

    yield ask


# -- over /ws ----------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def ws_modern(port: int) -> AsyncIterator[Ask]:
    async with connect(f"ws://{HOST}:{port}/ws", compression=None, proxy=None, ping_interval=None) as socket:

        async def ask(number: int) -> Any:
            await socket.send(messages.modern(*add(number), number).decode())
            return sum_of(json.loads(await socket.recv()))

        yield ask


@contextlib.asynccontextmanager
async def ws_legacy(port: int) -> AsyncIterator[Ask]:
    async with connect(f"ws://{HOST}:{port}/ws", compression=None, proxy=None, ping_interval=None) as socket:
        await socket.send(messages.write(*messages.INITIALIZE, 0).decode())
        await socket.recv()

        async def ask(number: int) -> Any:
            await socket.send(messages.write(*add(number), number).decode())
            return sum_of(json.loads(await socket.recv()))

        yield ask


ROADS = {
    "/mcp 2025-11-25": kept_legacy,
    "/mcp 2026-07-28": kept_modern,
    "/mcp, a new connection": newcomer,
    "/ws 2025-11-25": ws_legacy,
    "/ws 2026-07-28": ws_modern,
}


async def keep_calling(port: int, road: str, met: Met) -> None:
    """Call again and again, from a new place where the last one was lost."""
    numbers = count(1)
    while True:
        with contextlib.suppress(ConnectionError):
            async with contextlib.AsyncExitStack() as opened:
                try:
                    async with asyncio.timeout(DEADLINE_SECONDS):
                        ask = await opened.enter_async_context(ROADS[road](port))
                except TimeoutError:
                    met.seconds.append(DEADLINE_SECONDS)
                    raise ConnectionError from None
                except (OSError, asyncio.IncompleteReadError, KeyError) as problem:
                    met.wrong.append(f"{road}: cannot begin: {problem!r}")
                    raise ConnectionError from None
                while True:
                    await met.call(road, ask, next(numbers))
                    await asyncio.sleep(PAUSE_SECONDS)
        await asyncio.sleep(PAUSE_SECONDS)


async def main(port: int) -> None:
    met = Met()
    calling = [asyncio.create_task(keep_calling(port, road, met)) for road in ROADS]
    await met.count_anew("warm")
    await asyncio.to_thread(sys.stdin.readline)
    counting = asyncio.create_task(met.count_anew("enough"))
    await asyncio.to_thread(sys.stdin.read)
    for task in (*calling, counting):
        task.cancel()
    await asyncio.gather(*calling, counting, return_exceptions=True)
    print(json.dumps({"seconds": met.seconds, "wrong": met.wrong}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
