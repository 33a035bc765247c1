"""A client for boards in the same process: it speaks to the Handler itself, with no transport between."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
from msgspec import Raw, Struct

from pegboard.call import EMPTY_OBJECT, Call, Caller, Handler, Json, Kept, Notice, Question, ask_by_answer
from pegboard.protocol.versions import MODERN

Progress = Callable[[float, float | None, str | None], Awaitable[None] | None]

_encode = msgspec.json.Encoder().encode


class Served(Protocol):
    """What can be spoken to in process: a board."""

    @property
    def handler(self) -> Handler: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class CallResult(Struct, frozen=True):
    """What a tool answered."""

    content: list[dict[str, Json]]
    structured: Json = None
    is_error: bool = False
    meta: Mapping[str, Json] = {}

    @property
    def text(self) -> str:
        """The text blocks, one after the other."""
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")


def read_result(result: Mapping[str, Json]) -> CallResult:
    """A tools/call result as a value."""
    return CallResult(
        content=result.get("content", []),
        structured=result.get("structuredContent"),
        is_error=result.get("isError", False),
        meta=result.get("_meta", {}),
    )


class Client:
    """`async with Client(board) as client:` calls the board's tools as an agent would."""

    def __init__(
        self, board: Served, *, name: str = "pegboard", capabilities: Mapping[str, Json] | None = None
    ) -> None:
        self._board = board
        self._caller = Caller(
            version=MODERN,
            transport="direct",
            client={"name": name, "version": "0"},
            capabilities=capabilities or {},
        )
        self._ids = 0

    async def __aenter__(self) -> Self:
        await self._board.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._board.stop()

    async def discover(self) -> Mapping[str, Json]:
        """What the server says of itself."""
        return await self.request("server/discover")

    async def list_tools(self) -> list[dict[str, Json]]:
        """The definitions of all tools."""
        tools: list[dict[str, Json]] = (await self.request("tools/list"))["tools"]
        return tools

    async def call(
        self, name: str, arguments: Mapping[str, Json] | None = None, *, progress: Progress | None = None
    ) -> CallResult:
        """Call a tool; its failure is a result with `is_error`, a protocol error is raised as a Refusal."""
        sent = EMPTY_OBJECT if arguments is None else Raw(_encode(arguments))
        return read_result(await self.request("tools/call", name=name, arguments=sent, progress=progress))

    async def request(
        self, method: str, *, name: str = "", arguments: Raw = EMPTY_OBJECT, progress: Progress | None = None
    ) -> Mapping[str, Json]:
        """Any method of the protocol; the result as values."""
        self._ids += 1
        call = Call(
            method=method,
            caller=self._caller,
            channel=_Direct(progress),
            id=self._ids,
            name=name,
            raw=arguments,
            token=None if progress is None else self._ids,
        )
        reply = await self._board.handler(call)
        if not isinstance(reply.result, Kept):
            return reply.result
        # What is kept belongs to the board; its reader gets a copy, as it would from afar.
        copy: Mapping[str, Json] = msgspec.json.decode(_encode(reply.result.value))
        return copy


class _Direct:
    """The channel of a call in process: notices become calls of the caller's function."""

    __slots__ = ("_progress",)

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        await ask_by_answer(asks)

    async def close_stream(self, retry_ms: int) -> None:
        """There is none."""

    async def emit(self, notice: Notice) -> None:
        if self._progress is not None and notice.method == "notifications/progress":
            params: Mapping[str, Any] = notice.params
            told = self._progress(params["progress"], params.get("total"), params.get("message"))
            if inspect.isawaitable(told):
                await told
