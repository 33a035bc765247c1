"""Delivers messages for a session to the process that runs its call."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from pegboard.background_tasks import OwnedTasks
from pegboard.call import RequestId
from pegboard.errors import StoreDown
from pegboard.protocol.jsonrpc import NOTHING, Message
from pegboard.sessions.open_questions import worker_of_question
from pegboard.sessions.resumable_streams import STREAM_HANDOFF, StreamHandoff
from pegboard.sessions.session import Session, SessionListener
from pegboard.sessions.sessions import Sessions
from pegboard.stores.cluster import Cluster
from pegboard.stores.store import digest

_log = logging.getLogger("pegboard.sessions")

_ANSWER: Final = "answer"
_CANCEL: Final = "cancel"
_LISTEN: Final = "listen"
_CARRY: Final = "carry"


class _Answer(Struct, array_like=True):
    session: str
    id: RequestId
    result: bytes
    error: bytes


class _Cancel(Struct, array_like=True):
    session: str
    id: RequestId


class _ListenPosition(Struct, array_like=True):
    """The last change that a session has received, on a stream that has just stopped or on none."""

    after: int | None
    carried: bool


class _Carry(Struct, array_like=True):
    session: str
    after: int


_encode = msgspec.msgpack.Encoder().encode
_decode_position = msgspec.msgpack.Decoder(_ListenPosition).decode

OrderT = TypeVar("OrderT", _Answer, _Cancel, _Carry, StreamHandoff)


class Relay:
    """Connects the sessions of this process with other processes that serve the same ones.

    `wake` sends pending changes to listeners.
    """

    def __init__(self, cluster: Cluster, sessions: Sessions, wake: Callable[[], object]) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self._wake = wake
        # By session: the process that carried its changes before the stream that is open here.
        self._before: dict[str, str] = {}
        self._passing = OwnedTasks()
        cluster.on_message(_LISTEN, self._receive_listen)
        self._on_message(_ANSWER, _Answer, _receive_answer)
        self._on_message(_CANCEL, _Cancel, lambda session, cancel: session.cancel(cancel.id))
        self._on_message(STREAM_HANDOFF, StreamHandoff, _receive_handoff)
        self._on_message(_CARRY, _Carry, self._receive_carry)

    def _on_message(self, kind: str, form: type[OrderT], act: Callable[[Session, OrderT], None]) -> None:
        """Act on messages of that kind and form if their session is here."""
        decode = msgspec.msgpack.Decoder(form).decode

        def receive(message: bytes) -> None:
            order = decode(message)
            session = self._sessions.find_by_digest(order.session)
            if session is not None:
                act(session, order)

        self._cluster.on_message(kind, receive)

    # -- calls -------------------------------------------------------------------------------------------------------

    def answer(self, session: Session, message: Message) -> Awaitable[object] | None:
        """Forward an answer of the client to the process that asked; None if that is this one."""
        worker = worker_of_question(message.id)
        if not worker or worker == self._cluster.me or isinstance(message.id, msgspec.UnsetType):
            session.answer(message)
            return None
        answer = _Answer(digest(session.caller.session), message.id, bytes(message.result), bytes(message.error))
        return self._cluster.send_to(worker, _ANSWER, _encode(answer))

    def cancel(self, session: Session, request_id: RequestId | None) -> Awaitable[object] | None:
        """Cancel the call with that id in any process; None if it runs here or nowhere."""
        if request_id is None or request_id in session.calls:
            session.cancel(request_id)
            return None
        return self._cluster.broadcast(_CANCEL, _encode(_Cancel(digest(session.caller.session), request_id)))

    # -- changes -----------------------------------------------------------------------------------------------------

    async def take_over(self, session: Session) -> None:
        """Stop the streams of a session in other processes from carrying changes; returns their last change."""
        answers = await self._cluster.ask_others(_LISTEN, digest(session.caller.session).encode())
        for worker, answer in answers.items():
            position = _decode_position(answer) if answer else _ListenPosition(None, carried=False)
            if position.carried:
                self._before[session.caller.session] = worker
            if position.after is not None and not session.listeners:
                session.heard = position.after if session.heard is None else max(position.after, session.heard)

    def end_listening(self, session: Session, listener: SessionListener) -> None:
        """A stream has ended; if none is left here, the previous carrier continues."""
        carried = not listener.idle
        session.end_listening(listener)
        if session.listeners or not carried:
            return
        worker = self._before.pop(session.caller.session, None)
        if worker is not None:
            message = _encode(_Carry(digest(session.caller.session), listener.after))
            self._passing.start(self._send_to_worker(worker, message))

    async def _send_to_worker(self, worker: str, message: bytes) -> None:
        try:
            await self._cluster.send_to(worker, _CARRY, message)
        except StoreDown:
            _log.warning("the previous stream could not be resumed: its client gets no changes until it listens again")

    def _receive_listen(self, message: bytes) -> Awaitable[bytes] | None:
        session = self._sessions.find_by_digest(message.decode())
        if session is None:
            return None
        position = _ListenPosition(session.heard, carried=False)
        for newest in session.listeners[-1:]:
            position = _ListenPosition(newest.after, carried=not newest.idle)
            newest.idle = True
        return _at_once(_encode(position))

    def _receive_carry(self, session: Session, carry: _Carry) -> None:
        session.heard = carry.after
        for newest in session.listeners[-1:]:
            newest.after, newest.idle = carry.after, False
            self._wake()


def _receive_answer(session: Session, answer: _Answer) -> None:
    session.answer(Message("2.0", id=answer.id, result=_raw(answer.result), error=_raw(answer.error)))


def _receive_handoff(session: Session, part: StreamHandoff) -> None:
    if session.streamed:
        session.streams.detach_connection(part.stream, part.retry_ms)


def _raw(member: bytes) -> Raw:
    return Raw(member) if member else NOTHING


async def _at_once(value: bytes) -> bytes:
    return value
