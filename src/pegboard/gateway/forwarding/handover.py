"""Continues a parked call when its caller reaches another process.

The ticket names the process that holds the parked call. The caller's answers go into the inbox of that process, which
waits with the parked call in the caller's place and sends the outcome back; the next ticket still names it. Of the
server's notifications meanwhile, only the newest progress is sent back.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.auth.principal import Principal
from pegboard.call import Call, Caller, Json, Notification, Question, ask_in_result
from pegboard.client.links.link import PROGRESS_NOTIFICATION
from pegboard.client.links.server_messages import WireError, refusal_of
from pegboard.errors import InvalidParams, Refusal, StoreDown, ToolError
from pegboard.gateway.forwarding.caller_channel import notification_for
from pegboard.gateway.forwarding.parked_call import ParkedCall
from pegboard.gateway.forwarding.parking_lot import ParkingLot
from pegboard.gateway.forwarding.tickets import ParkedTicket
from pegboard.protocol.revisions import MODERN
from pegboard.stores.cluster import Cluster

_LEG_MESSAGE: Final = "errand"
_POLL_SECONDS: Final = 1.0
_MAX_SECONDS: Final = 3600.0


class _RemoteLeg(Struct, array_like=True):
    """The answers of a caller; None if it has disconnected."""

    parked_call: str
    leg: int
    principal: str
    answers: dict[str, Json] | None
    wants_progress: bool = False


class LegResult(Struct, array_like=True, tag="ended"):
    """The result of the request."""

    result: dict[str, Json]
    progress: dict[str, Json] | None = None


class LegQuestions(Struct, array_like=True, tag="asks"):
    """The questions that the caller must answer first, and the number of its next leg."""

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


LegOutcome: TypeAlias = LegResult | LegQuestions | _Refused | _Failed

_encode = msgspec.msgpack.Encoder().encode
_decode_leg = msgspec.msgpack.Decoder(_RemoteLeg).decode
_decode_outcome = msgspec.msgpack.Decoder(LegOutcome).decode


class _RemoteChannel:
    """The channel of a caller that waits at another process: it can only be asked in the result."""

    def __init__(self) -> None:
        self.newest: dict[str, Json] | None = None

    async def emit(self, notice: Notification) -> None:
        if notice.method == PROGRESS_NOTIFICATION:
            self.newest = dict(notice.params)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        await ask_in_result(questions)

    async def close_stream(self, retry_ms: int) -> None:
        """Nothing to do: there is no stream."""


class Handover:
    """Resumes parked calls of other processes, and lets them resume ours; tickets name this process `me`."""

    def __init__(self, parking_lot: ParkingLot) -> None:
        self.me = secrets.token_hex(8)
        self._parking_lot = parking_lot
        self._cluster: Cluster | None = None

    def share(self, cluster: Cluster) -> None:
        """Join the cluster."""
        self._cluster = cluster
        self.me = cluster.me
        cluster.on_message(_LEG_MESSAGE, self._receive_leg)

    async def send_leg(
        self, ticket: ParkedTicket, call: Call, answers: Mapping[str, Json]
    ) -> LegResult | LegQuestions | None:
        """Resume a parked call at its process; None if that process has died, and the call with it."""
        cluster = self._cluster
        if cluster is None:
            raise InvalidParams(
                "Invalid requestState: another process of this gateway holds or held the call, and processes without a store "
                "cannot reach each other; run with --store sqlite:PATH or redis://…, or with one worker"
            )
        principal = call.caller.principal.id
        order = _RemoteLeg(ticket.parked_call, ticket.leg, principal, dict(answers), call.token is not None)
        asking = asyncio.create_task(cluster.ask(ticket.worker, _LEG_MESSAGE, _encode(order), _MAX_SECONDS))
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=_POLL_SECONDS)
                if not asking.done() and not await cluster.is_alive(ticket.worker):
                    return None
            answer = asking.result()
        except asyncio.CancelledError:
            gone = _RemoteLeg(ticket.parked_call, ticket.leg, principal, None)
            # If the process cannot be notified, it abandons the call when its time is over.
            with contextlib.suppress(StoreDown, TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await cluster.send_to(ticket.worker, _LEG_MESSAGE, _encode(gone))
            raise
        finally:
            asking.cancel()
        # A process without a handler for this message, such as one that is not a gateway, sends an empty reply.
        return await self._apply_outcome(_decode_outcome(answer), call) if answer else None

    async def _apply_outcome(self, came: LegOutcome, call: Call) -> LegResult | LegQuestions:
        match came:
            case _Refused():
                raise refusal_of(WireError(came.code, came.message, came.data))
            case _Failed():
                raise ToolError(came.message, meta=came.meta)
        if came.progress is not None:
            notification = notification_for(call, Notification(PROGRESS_NOTIFICATION, came.progress))
            if notification is not None:
                await call.channel.emit(notification)
        return came

    # -- resumed by other processes ----------------------------------------------------------------------------------

    def _receive_leg(self, message: bytes) -> Awaitable[bytes] | None:
        visit = _decode_leg(message)
        if visit.answers is None:
            parked_call = self._parking_lot.find(visit.parked_call, visit.principal)
            # A caller that disconnects before the leg was used can still resume with its ticket.
            return None if parked_call is None or parked_call.leg <= visit.leg else self._cancel(parked_call)
        return self._receive(visit, visit.answers)

    async def _cancel(self, parked_call: ParkedCall) -> bytes:
        self._parking_lot.remove(parked_call)
        await parked_call.cancel()
        return b""

    async def _receive(self, visit: _RemoteLeg, answers: Mapping[str, Json]) -> bytes:
        try:
            parked_call = self._parking_lot.unpark(visit.parked_call, visit.leg, visit.principal)
            return _encode(await self._attend(parked_call, answers, wants_progress=visit.wants_progress))
        except Refusal as refusal:
            return _encode(_Refused(refusal.code, refusal.message, refusal.data))
        except ToolError as failed:
            return _encode(_Failed(failed.message, None if failed.meta is None else dict(failed.meta)))

    async def _attend(
        self, parked_call: ParkedCall, answers: Mapping[str, Json], *, wants_progress: bool
    ) -> LegOutcome:
        afar = _RemoteChannel()
        principal = parked_call.principal
        caller = Caller(version=MODERN, transport="crew", principal=Principal(principal), account=principal)
        call = Call(method="", caller=caller, channel=afar, token=0 if wants_progress else None)
        parked_call.receive_answers(answers)
        questions = await self._parking_lot.wait_with(parked_call, call)
        if questions:
            asked = {key: (question.method, dict(question.params)) for key, question in questions.items()}
            return LegQuestions(asked, parked_call.leg, afar.newest)
        return LegResult(dict(parked_call.result()), afar.newest)
