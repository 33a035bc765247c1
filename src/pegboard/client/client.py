"""A client for boards in the same process: it speaks to the Handler itself, with no transport between."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
from msgspec import Raw, Struct

from pegboard.call import EMPTY_OBJECT, Call, Caller, Change, Follow, Handler, Json, Kept, Notice, Question, Reply
from pegboard.client.answers import Answers, OnElicit, OnSample
from pegboard.protocol.versions import MODERN, NAMED

Progress = Callable[[float, float | None, str | None], Awaitable[None] | None]
OnLog = Callable[[str, Json], Awaitable[None] | None]

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
    """`async with Client(board) as client:` calls the board's tools as an agent would.

    `elicit`, `sample` and `roots` answer what tools ask (see `Answers`); `log` hears what they log.
    """

    def __init__(
        self,
        board: Served,
        *,
        name: str = "pegboard",
        capabilities: Mapping[str, Json] | None = None,
        elicit: OnElicit | None = None,
        sample: OnSample | None = None,
        roots: Sequence[str] | None = None,
        log: OnLog | None = None,
        log_level: str = "info",
    ) -> None:
        self._board = board
        self._answers = Answers(elicit=elicit, sample=sample, roots=roots)
        self._log = log
        self._caller = Caller(
            version=MODERN,
            transport="direct",
            client={"name": name, "version": "0"},
            capabilities={**self._answers.capabilities(), **(capabilities or {})},
            log_level=None if log is None else log_level,
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
        return await self._all("tools/list", "tools")

    async def list_resources(self) -> list[dict[str, Json]]:
        """The resources that can be read as they are."""
        return await self._all("resources/list", "resources")

    async def list_templates(self) -> list[dict[str, Json]]:
        """The resources whose URI has places to fill in."""
        return await self._all("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[dict[str, Json]]:
        """The prompts and their arguments."""
        return await self._all("prompts/list", "prompts")

    async def call(
        self, name: str, arguments: Mapping[str, Json] | None = None, *, progress: Progress | None = None
    ) -> CallResult:
        """Call a tool; its failure is a result with `is_error`, a protocol error is raised as a Refusal."""
        sent = EMPTY_OBJECT if arguments is None else Raw(_encode(arguments))
        return read_result(await self.request("tools/call", name=name, arguments=sent, progress=progress))

    async def read(self, uri: str) -> list[dict[str, Json]]:
        """The contents of a resource."""
        contents: list[dict[str, Json]] = (await self.request("resources/read", name=uri))["contents"]
        return contents

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> list[dict[str, Json]]:
        """The messages of a prompt."""
        sent = EMPTY_OBJECT if arguments is None else Raw(_encode(arguments))
        told = await self.request("prompts/get", name=name, arguments=sent)
        messages: list[dict[str, Json]] = told["messages"]
        return messages

    async def complete(self, ref: Mapping[str, Json], argument: str, value: str) -> list[str]:
        """Values that begin like this, for an argument of a prompt or a template."""
        params = {"ref": ref, "argument": {"name": argument, "value": value}}
        values: list[str] = (await self.request("completion/complete", params))["completion"]["values"]
        return values

    async def listen(
        self, *, tools: bool = False, prompts: bool = False, resources: bool = False, uris: Iterable[str] = ()
    ) -> AsyncIterator[Change]:
        """The changes of the board from now on, of the kinds that are asked for."""
        wanted = {
            "toolsListChanged": tools,
            "promptsListChanged": prompts,
            "resourcesListChanged": resources,
            "resourceSubscriptions": list(uris),
        }
        reply = await self._reply("subscriptions/listen", {"notifications": wanted})
        if not isinstance(reply, Follow):
            return
        changed = asyncio.Event()
        end = reply.changes.watch(changed.set)
        after = reply.changes.last
        try:
            while True:
                changed.clear()
                for number, change in reply.changes.read(after):
                    after = max(after, number)
                    if (
                        change.uri in reply.filter.uris
                        if change.kind == "updated"
                        else getattr(reply.filter, change.kind)
                    ):
                        yield change
                await changed.wait()
        finally:
            end()

    async def request(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        name: str = "",
        arguments: Raw = EMPTY_OBJECT,
        progress: Progress | None = None,
    ) -> Mapping[str, Json]:
        """Any method of the protocol; the result as values."""
        reply = await self._reply(method, params, name=name, arguments=arguments, progress=progress)
        if not isinstance(reply.result, Kept):
            return reply.result
        # What is kept belongs to the board; its reader gets a copy, as it would from afar.
        copy: Mapping[str, Json] = msgspec.json.decode(_encode(reply.result.value))
        return copy

    async def _reply(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        name: str = "",
        arguments: Raw = EMPTY_OBJECT,
        progress: Progress | None = None,
    ) -> Reply:
        self._ids += 1
        call = Call(
            method=method,
            caller=self._caller,
            channel=_Direct(self._answers, progress, self._log),
            id=self._ids,
            name=name,
            raw=arguments,
            token=None if progress is None else self._ids,
        )
        if params is not None:
            call.params = Raw(_encode(params))
            call.name = name or params.get(NAMED.get(method, ""), "")
            if "arguments" in params:
                call.raw = Raw(_encode(params["arguments"]))
            if "inputResponses" in params:
                call.answers = Raw(_encode(params["inputResponses"]))
            call.ticket = params.get("requestState")
        return await self._board.handler(call)

    async def _all(self, method: str, member: str) -> list[dict[str, Json]]:
        found: list[dict[str, Json]] = []
        page = await self.request(method)
        while True:
            found += page[member]
            if page.get("nextCursor") is None:
                return found
            page = await self.request(method, {"cursor": page["nextCursor"]})


class _Direct:
    """The channel of a call in process: notices and questions become calls of the caller's functions."""

    __slots__ = ("_answers", "_log", "_progress")

    def __init__(self, answers: Answers, progress: Progress | None, log: OnLog | None) -> None:
        self._answers = answers
        self._progress = progress
        self._log = log

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        told = await asyncio.gather(*(self._answers.answer(question) for question in asks.values()))
        return dict(zip(asks, told, strict=True))

    async def close_stream(self, retry_ms: int) -> None:
        """There is none."""

    async def emit(self, notice: Notice) -> None:
        params: Mapping[str, Any] = notice.params
        told: Awaitable[None] | None = None
        if self._progress is not None and notice.method == "notifications/progress":
            told = self._progress(params["progress"], params.get("total"), params.get("message"))
        elif self._log is not None and notice.method == "notifications/message":
            told = self._log(params["level"], params["data"])
        if inspect.isawaitable(told):
            await told
