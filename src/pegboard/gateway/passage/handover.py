"""Legs of a call that come to another process than the one that holds its errand.

The ticket names the holder. What the caller answers goes into the holder's inbox, which attends the errand in the caller's
place and sends back what came of that; the next ticket still names the holder. Of what the server says meanwhile only
the newest progress comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.call import Call, Caller, Json, Notice, Question, ask_by_answer
from pegboard.client.incoming import WireError, refusal_of
from pegboard.client.link import PROGRESS
from pegboard.errors import InvalidParams, Refusal, StoreDown, ToolError
from pegboard.gateway.passage.errand import Errand
from pegboard.gateway.passage.messenger import told_to
from pegboard.gateway.passage.parking import Parking
from pegboard.gateway.passage.tickets import Parked
from pegboard.protocol.versions import MODERN
from pegboard.stores.crew import Crew

_ERRAND: Final = "errand"
_LOOK_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 3600.0


class _Visit(Struct, array_like=True):
    """What a caller brings; without answers it has left for good."""

    errand: str
    leg: int
    principal: str
    answers: dict[str, Json] | None
    wants_progress: bool = False


class Ended(Struct, array_like=True, tag="ended"):
    """The request has this result."""

    result: dict[str, Json]
    progress: dict[str, Json] | None = None


class Asks(Struct, array_like=True, tag="asks"):
    """The caller has to answer these first, and come back on that leg."""

    asked: dict[str, tuple[str, dict[str, Json]]]
    leg: int
    progress: dict[str, Json] | None = None

    @property
    def questions(self) -> dict[str, Question]:
        return {key: Question(method, params) for key, (method, params) in self.asked.items()}


class _Refused(Struct, array_like=True, tag="refused"):
    code: int
    message: str
    data: Json = None


class _Failed(Struct, array_like=True, tag="failed"):
    message: str
    meta: dict[str, Json] | None = None


Came: TypeAlias = Ended | Asks | _Refused | _Failed

_encode = msgspec.msgpack.Encoder().encode
_decode_visit = msgspec.msgpack.Decoder(_Visit).decode
_decode_came = msgspec.msgpack.Decoder(Came).decode


class _Afar:
    """The channel of a caller that waits at another process: it can only be asked by an answer."""

    def __init__(self) -> None:
        self.newest: dict[str, Json] | None = None

    async def emit(self, notice: Notice) -> None:
        if notice.method == PROGRESS:
            self.newest = dict(notice.params)

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        await ask_by_answer(asks)

    async def close_stream(self, retry_ms: int) -> None:
        """There is none."""


class Handover:
    """Visits errands that other processes hold, and has its own visited; `me` is how tickets name this process."""

    def __init__(self, parking: Parking) -> None:
        self.me = secrets.token_hex(8)
        self._parking = parking
        self._crew: Crew | None = None

    def share(self, crew: Crew) -> None:
        """Reach the others, and be reached."""
        self._crew = crew
        self.me = crew.me
        crew.hear(_ERRAND, self._hear)

    async def visit(self, ticket: Parked, call: Call, answers: Mapping[str, Json]) -> Ended | Asks | None:
        """What came of the visit; None where the holder is gone, and the errand with it."""
        crew = self._crew
        if crew is None:
            raise InvalidParams(
                "Invalid requestState: another process of this gateway holds the call, or held it before a restart, and "
                "without a store they cannot be asked; run with --store sqlite:PATH or redis://…, or with one worker"
            )
        principal = call.caller.principal
        order = _Visit(ticket.errand, ticket.leg, principal, dict(answers), call.token is not None)
        asking = asyncio.create_task(crew.ask(ticket.worker, _ERRAND, _encode(order), _LONGEST_SECONDS))
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=_LOOK_SECONDS)
                if not asking.done() and not await crew.is_alive(ticket.worker):
                    return None
            said = asking.result()
        except asyncio.CancelledError:
            gone = _Visit(ticket.errand, ticket.leg, principal, None)
            # Where it cannot be told, the holder gives the errand up in its own time.
            with contextlib.suppress(StoreDown, TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await crew.tell(ticket.worker, _ERRAND, _encode(gone))
            raise
        finally:
            asking.cancel()
        # Who does not know what is meant, as a process that is no gateway, has heard it and says nothing.
        return await self._bring(_decode_came(said), call) if said else None

    async def _bring(self, came: Came, call: Call) -> Ended | Asks:
        match came:
            case _Refused():
                raise refusal_of(WireError(came.code, came.message, came.data))
            case _Failed():
                raise ToolError(came.message, meta=came.meta)
        if came.progress is not None:
            told = told_to(call, Notice(PROGRESS, came.progress))
            if told is not None:
                await call.channel.emit(told)
        return came

    # -- being visited -----------------------------------------------------------------------------------------------

    def _hear(self, said: bytes) -> Awaitable[bytes] | None:
        visit = _decode_visit(said)
        if visit.answers is None:
            errand = self._parking.find(visit.errand, visit.principal)
            # Who left before the leg was taken can still come back with its ticket.
            return None if errand is None or errand.leg <= visit.leg else self._cancel(errand)
        return self._receive(visit, visit.answers)

    async def _cancel(self, errand: Errand) -> bytes:
        self._parking.leave(errand)
        await errand.cancel()
        return b""

    async def _receive(self, visit: _Visit, answers: Mapping[str, Json]) -> bytes:
        try:
            errand = self._parking.take(visit.errand, visit.leg, visit.principal)
            return _encode(await self._attend(errand, answers, wants_progress=visit.wants_progress))
        except Refusal as refusal:
            return _encode(_Refused(refusal.code, refusal.message, refusal.data))
        except ToolError as failed:
            return _encode(_Failed(failed.message, None if failed.meta is None else dict(failed.meta)))

    async def _attend(self, errand: Errand, answers: Mapping[str, Json], *, wants_progress: bool) -> Came:
        afar = _Afar()
        caller = Caller(version=MODERN, transport="crew", principal=errand.principal)
        call = Call(method="", caller=caller, channel=afar, token=0 if wants_progress else None)
        errand.take(answers)
        try:
            asks = await errand.attend(call)
        except BaseException:
            self._parking.leave(errand)
            raise
        if asks:
            self._parking.park(errand)
            asked = {key: (question.method, dict(question.params)) for key, question in asks.items()}
            return Asks(asked, errand.leg, afar.newest)
        self._parking.leave(errand)
        return Ended(dict(errand.result()), afar.newest)
