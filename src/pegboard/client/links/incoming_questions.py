"""Questions of a legacy server that are being answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import msgspec

from pegboard.background_tasks import end_tasks
from pegboard.call import Channel, Json, NeedInput, Question, RequestId
from pegboard.client.links.server_messages import ServerMessage
from pegboard.errors import Busy, InternalFailure, MethodNotFound, PegboardError, Refusal
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc

MAX_ID_LENGTH: Final = 1024

_log = logging.getLogger("pegboard.client")
_encode = msgspec.json.Encoder().encode


class IncomingQuestions:
    """Answers requests from a server through the channel they belong to; `send` sends the responses."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], limits: Limits) -> None:
        self._send = send
        self._most = limits.questions
        # Answered and rejected ones: a server that does not read our responses gets no more.
        self._max_open = 4 * max(1, limits.questions)
        self._open: dict[RequestId, asyncio.Task[None]] = {}
        self._dropped = 0

    def start(self, message: ServerMessage, channel: Channel) -> None:
        """Answer a request, or reject it if too many are being answered; beyond that it is dropped."""
        request_id, method = message.id, message.method
        assert request_id is not None  # noqa: S101 — otherwise it would be a notification
        assert method is not None  # noqa: S101
        too_long = isinstance(request_id, str) and len(request_id) > MAX_ID_LENGTH
        if request_id in self._open or len(self._open) >= self._max_open or too_long:
            self._count_dropped()
            return
        work: Coroutine[Any, Any, None]
        # These responses need no caller, so they keep no message while the server does not read.
        if method == "ping":
            work = self._send_answer(method, jsonrpc.answer(request_id, b"{}"))
        elif len(self._open) >= self._most:
            busy = Busy(f"This client answers {self._most} questions at a time")
            work = self._send_answer(method, jsonrpc.refusal(request_id, busy))
        else:
            work = self._answer(request_id, method, message, channel)
        task = self._open[request_id] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._open.pop(request_id, None))

    def drop(self, request_id: Json) -> None:
        """The server does not wait for this answer any more."""
        task = self._open.get(request_id) if isinstance(request_id, str | int) else None
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop answering."""
        await end_tasks(*self._open.values())

    async def _answer(self, request_id: RequestId, method: str, message: ServerMessage, channel: Channel) -> None:
        try:
            body = jsonrpc.answer(request_id, await self._result(request_id, method, message, channel))
        except Refusal as refusal:
            body = jsonrpc.refusal(request_id, refusal)
        except NeedInput:
            # Sent outside of a request, for example during the handshake.
            body = jsonrpc.refusal(request_id, MethodNotFound("There is no caller to ask"))
        except Exception:  # noqa: BLE001 — a response must be sent whatever fails
            # The exception comes from the program's own code: the server must not see its text.
            _log.exception("could not answer %s", method[:80])
            body = jsonrpc.refusal(request_id, InternalFailure("The client could not answer"))
        await self._send_answer(method, body)

    async def _send_answer(self, method: str, body: bytes) -> None:
        try:
            await self._send(body)
        except PegboardError as problem:
            _log.warning("an answer to %s did not reach the server: %s", method[:80], problem)

    async def _result(self, request_id: RequestId, method: str, message: ServerMessage, channel: Channel) -> bytes:
        key = str(request_id)
        answers = await channel.ask({key: Question(method, message.parameters())})
        return _encode(answers[key])

    def _count_dropped(self) -> None:
        self._dropped += 1
        # The first, the second, the fourth …: a flood of questions does not fill the log.
        if not self._dropped & (self._dropped - 1):
            _log.warning(
                "a server sends too many questions at a time, or reuses an id; %d dropped so far", self._dropped
            )
