"""Questions of a legacy server that are being answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from pegboard.call import Channel, NeedInput, Question, RequestId
from pegboard.client.links.server_messages import LIMITS, ServerMessage
from pegboard.errors import Busy, InternalFailure, MethodNotFound, PegboardError, Refusal
from pegboard.protocol import jsonrpc

_log = logging.getLogger("pegboard.client")
_encode = msgspec.json.Encoder().encode


class IncomingQuestions:
    """Answers requests from a server through the channel they belong to; `send` takes what is answered."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._open: dict[RequestId, asyncio.Task[None]] = {}

    def start(self, message: ServerMessage, channel: Channel) -> None:
        """Answer a request, in time."""
        assert message.id is not None  # noqa: S101 — or it would be a notice
        assert message.method is not None  # noqa: S101
        if message.id in self._open:
            _log.warning("a server asked twice under the id %r; the second question is dropped", message.id)
            return
        task = asyncio.create_task(self._answer(message.id, message.method, message, channel))
        self._open[message.id] = task
        task.add_done_callback(lambda _: self._open.pop(message.id, None))  # type: ignore[arg-type]  # it has an id

    def drop(self, request_id: RequestId) -> None:
        """The server does not wait for this answer any more."""
        task = self._open.get(request_id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Answer nothing more."""
        tasks = list(self._open.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _answer(self, request_id: RequestId, method: str, message: ServerMessage, channel: Channel) -> None:
        try:
            body = jsonrpc.answer(request_id, await self._result(request_id, method, message, channel))
        except Refusal as refusal:
            body = jsonrpc.refusal(request_id, refusal)
        except NeedInput:
            # Asked for nobody's request, as while hands are shaken.
            body = jsonrpc.refusal(request_id, MethodNotFound("Nobody is there to be asked"))
        except Exception:  # noqa: BLE001 — an answer has to be sent whatever fails
            # Whoever answers is the program's own code: its text is not for the server.
            _log.exception("could not answer %s", method)
            body = jsonrpc.refusal(request_id, InternalFailure("The client could not answer"))
        try:
            await self._send(body)
        except PegboardError as problem:
            _log.warning("an answer to %s did not reach the server: %s", method, problem)

    async def _result(self, request_id: RequestId, method: str, message: ServerMessage, channel: Channel) -> bytes:
        if method == "ping":
            return b"{}"
        if len(self._open) > LIMITS.questions:
            raise Busy(f"This client answers {LIMITS.questions} questions at a time")
        key = str(request_id)
        answers = await channel.ask({key: Question(method, message.parameters())})
        return _encode(answers[key])
