"""Runs one middleware around a stub of a tool."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from pegboard.auth.principal import Principal
from pegboard.call import NULL_CHANNEL, Around, Call, Caller, Done, EncodedResult, Json
from pegboard.call_target import UNKNOWN_ITEM
from pegboard.hooks.middleware import Middleware, check_middleware
from pegboard.hooks.pipeline import Attachment, compose
from pegboard.protocol.content import joined_text
from pegboard.protocol.revisions import MODERN
from pegboard.tools.tool import Tool, tool_from_function
from pegboard.tools.tool_result import ResultWriter


async def give_answer(answer: Any, asked: Any, writer: ResultWriter) -> Done:
    """The result of a stub: of what a test gave as its answer, an exception to raise, or a function of what is asked."""
    value = answer(asked) if callable(answer) and not isinstance(answer, type) else answer
    if inspect.isawaitable(value):
        value = await value
    if isinstance(value, BaseException):
        raise value
    return value if isinstance(value, Done) else writer.write(value)


class Run(Struct, frozen=True):
    """The outcome of a call: its result or the exception, and how often the stub ran."""

    call: Call
    result: Mapping[str, Json] | None
    exception: BaseException | None
    ran: int

    @property
    def text(self) -> str:
        """The text blocks of the result, concatenated."""
        return "" if self.result is None else joined_text(self.result["content"])


def make_call(
    name: str = "stub",
    arguments: Mapping[str, Json] | None = None,
    *,
    category: str = "",
    tags: Iterable[str] = (),
    annotations: Mapping[str, Json] | None = None,
    meta: Mapping[str, Json] | None = None,
    principal: str | Principal = "",
    session: str = "",
    client: str = "test",
    transport: str = "direct",
    version: str = MODERN,
) -> Call:
    """Return a call, as hooks receive it, of a tool that accepts any arguments.

    name: the name of the tool.
    arguments: the arguments as sent.
    category: the category of the tool.
    tags: the tags of the tool.
    annotations: the annotations of the tool, such as readOnlyHint.
    meta: the `_meta` of the request.
    principal: the authenticated caller, or only its id.
    session: the id of the session.
    client: the name of the client.
    transport: the transport of the request.
    version: the protocol revision.
    """

    def stub() -> None: ...

    tool = tool_from_function(stub, name, category=category, tags=tags, annotations=annotations or {})
    return Call(
        method="tools/call",
        caller=Caller(
            version=version,
            transport=transport,
            principal=Principal(principal) if isinstance(principal, str) else principal,
            account=principal if isinstance(principal, str) else principal.id,
            session=session,
            client={"name": client, "version": "0"},
        ),
        channel=NULL_CHANNEL,
        id=1,
        name=name,
        raw=Raw(msgspec.json.encode(arguments or {})),
        params=Raw(msgspec.json.encode({"name": name, "arguments": arguments or {}, "_meta": meta or {}})),
        tool=tool,
    )


async def run_alone(
    *middleware: Middleware | Around, call: Call | None = None, answer: Callable[[Call], Any] | Any = "done"
) -> Run:
    """Run one call through this middleware only.

    `answer` is what the stub returns, an exception that it raises, or a function of the call, sync or async. The
    outcome is returned as it is: exceptions are neither raised nor turned into a result for the model. But what an `after`
    or `error` hook or an observer raises, which a board only logs, is raised here.
    """
    call = make_call() if call is None else call
    ran = 0
    failures: list[BaseException] = []

    async def stub(inner: Call) -> Done:
        nonlocal ran
        ran += 1
        return await give_answer(answer, inner, ResultWriter())

    for hook in middleware:
        check_middleware(hook)
    attached = [Attachment(hook, "board", "", None, index) for index, hook in enumerate(middleware)]
    tool = call.tool if isinstance(call.tool, Tool) else UNKNOWN_ITEM
    result: Mapping[str, Json] | None = None
    exception: BaseException | None = None
    try:
        reply = await compose(attached, tool, stub, failures=failures)(call)
        result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
    except BaseException as raised:  # noqa: BLE001 — whatever it is, the test wants to see it
        exception = raised
    if failures:
        raise failures[0]
    return Run(call, result, exception, ran)
