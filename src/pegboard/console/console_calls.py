"""Calls that a person makes in the console: progress, logs and questions on one stream, answers in other requests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from pegboard.asking.questions import Accepted, Cancelled, Declined
from pegboard.auth.principal import Principal
from pegboard.call import Call, Handler, Json, Reply
from pegboard.client.client import Client
from pegboard.client.client_channel import Content, Elicitation
from pegboard.console.console_subject import ConsoleSubject
from pegboard.errors import Busy, InvalidParams, PegboardError
from pegboard.protocol.framing import sse
from pegboard.server.exchange.exchanges import STREAM
from pegboard.server.http_types import Sink

CLIENT_NAME: Final = "pegboard console"
MAX_CALLS: Final = 16
ANSWER_SECONDS: Final = 600.0
CALL_SECONDS: Final = 900.0

_encode = msgspec.json.Encoder(enc_hook=str).encode


class _Served:
    """The board or gateway of the console, for a client of one person that must neither start nor stop it."""

    def __init__(self, subject: ConsoleSubject, principal: Principal) -> None:
        self._subject = subject
        self._principal = principal

    @property
    def handler(self) -> Handler:
        inner, principal = self._subject.served.handler, self._principal

        async def handle(call: Call) -> Reply:
            # The person, so that the rules decide, limits count and records name them.
            call.caller = replace(call.caller, principal=principal, account=principal.id)
            return await inner(call)

        return handle

    @property
    def info(self) -> Mapping[str, Json]:
        return self._subject.served.info

    async def start(self) -> None:
        """It is served already."""

    async def stop(self) -> None:
        """It is served on."""


class ConsoleCalls:
    """The calls that run for the console, and their open questions."""

    def __init__(self, subject: ConsoleSubject) -> None:
        self._subject = subject
        self._questions: dict[str, tuple[Principal, asyncio.Future[Content]]] = {}
        self._running = 0

    async def stream(self, request: Mapping[str, Json], sink: Sink, principal: Principal) -> None:
        """Make a call as a person, and send all that happens as events: progress, log, question, then result or error."""
        if self._running >= MAX_CALLS:
            raise Busy(f"The console runs {MAX_CALLS} calls already; wait for one of them", retry_after=1)
        method, params = request.get("method", "tools/call"), _read_params(request)
        sink.start(200, STREAM)

        def send(kind: str, value: Json) -> None:
            sink.write(sse.event(_encode(value), name=kind))

        self._running += 1
        task = asyncio.current_task()
        if task is not None:
            sink.on_gone(task.cancel)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                send("result", await self._call(str(method), params, send, principal))
        except PegboardError as error:
            send("error", {"message": str(error)})
        except TimeoutError:
            send("error", {"message": f"There was no result within {CALL_SECONDS:g} s"})
        finally:
            self._running -= 1
            sink.end()

    async def _call(
        self, method: str, params: Mapping[str, Json], send: Callable[[str, Json], None], principal: Principal
    ) -> Mapping[str, Json]:
        async def elicit(asked: Elicitation) -> Content:
            question = {"message": asked.message, "schema": asked.schema, "url": asked.url}
            return await self._ask(question, send, principal)

        client = Client(
            _Served(self._subject, principal),
            name=CLIENT_NAME,
            elicit=elicit,
            log=lambda level, data: send("log", {"level": level, "data": data}),
            log_level="debug",
        )
        async with client:
            return await client.request(
                method,
                params,
                progress=lambda done, total, message: send(
                    "progress", {"done": done, "total": total, "message": message}
                ),
            )

    async def _ask(
        self, question: Mapping[str, Json], send: Callable[[str, Json], None], principal: Principal
    ) -> Content:
        key = secrets.token_urlsafe(12)
        future: asyncio.Future[Content] = asyncio.get_running_loop().create_future()
        self._questions[key] = principal, future
        send("question", {"id": key, **question})
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await future
        except TimeoutError:
            return Cancelled()
        finally:
            del self._questions[key]

    def answer(self, request: Mapping[str, Json], principal: Principal) -> None:
        """Answer an open question of this person: with the values of its form, or with `decline` or `cancel`."""
        asked, future = self._questions.get(str(request.get("id")), (None, None))
        if asked is None or future is None or future.done() or asked.id != principal.id:
            raise InvalidParams("This question is not open any more")
        match request.get("action"):
            case "accept":
                future.set_result(Accepted(request.get("content")))
            case "decline":
                future.set_result(Declined())
            case _:
                future.set_result(Cancelled())


_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "tools/call": ("name", "arguments"),
    "prompts/get": ("name", "arguments"),
    "prompts/list": (),
    "resources/list": (),
    "resources/read": ("uri",),
    "resources/templates/list": (),
}
"""The methods that the console sends, each with its params."""


def _read_params(request: Mapping[str, Json]) -> dict[str, Json]:
    wanted = _METHODS.get(str(request.get("method", "tools/call")))
    if wanted is None:
        raise InvalidParams(f"The console does not send {str(request.get('method'))[:40]!r}")
    params: dict[str, Json] = {name: request.get(name, {} if name == "arguments" else None) for name in wanted}
    for name, value in params.items():
        if not isinstance(value, dict if name == "arguments" else str):
            raise InvalidParams(f"{name} must be {'an object' if name == 'arguments' else 'a text'}")
    return params
