"""The sealed `requestState` that a caller carries between the requests of one call.

A ticket is the `requestState` of our response: sealed, bound to its principal and to this request, and limited in time.
The `requestState` of a server is never passed on unsealed: it is bound to our credentials there, so one caller could
present another's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.asking.rounds import request_digest
from pegboard.call import Call
from pegboard.errors import InvalidParams, MalformedMessage
from pegboard.gateway.forwarding.outcome import Destination
from pegboard.limits import Limits
from pegboard.security.seal import Seal

_PURPOSE: Final = "requestState of the gateway"


class ParkedTicket(Struct, array_like=True, frozen=True, tag="parked"):
    """A request waits for answers at a legacy server, held by one of our processes; valid for one leg."""

    worker: str
    parked_call: str
    leg: int
    asked: tuple[str, ...]


class StateTicket(Struct, array_like=True, frozen=True, tag="carried"):
    """The state that a modern server wants back unchanged.

    `declined` are its questions that this caller cannot be asked.
    """

    state: str | None
    asked: tuple[str, ...]
    declined: tuple[str, ...]


class ConnectTicket(Struct, array_like=True, frozen=True, tag="connect"):
    """The user has to connect the server first; `before` and `answers` are what the call had brought until then."""

    link: str
    before: StateTicket | None
    answers: dict[str, Any] | None


Ticket: TypeAlias = ParkedTicket | StateTicket | ConnectTicket


class _SealedTicket(Struct, array_like=True, frozen=True):
    request: str
    server: tuple[str, str]
    ticket: Ticket


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_SealedTicket).decode


class Tickets:
    """Writes tickets, and reads those that callers send back."""

    def __init__(self, keys: Sequence[bytes], gateway: str, limits: Limits) -> None:
        self._limits = limits
        self.seal = Seal(_PURPOSE, keys, audience=gateway, secret=True)

    def write(self, ticket: Ticket, call: Call, destination: Destination) -> str:
        """Encode the ticket for the caller."""
        sealed = self.seal.close(
            _encode(_SealedTicket(request_digest(call.origin), _server(destination), ticket)),
            bearer=call.caller.principal.id,
            expires=time.time() + self._limits.ticket_seconds,
        )
        if len(sealed) > self._limits.ticket_bytes:
            raise MalformedMessage("sent a requestState that is too large")
        return sealed

    def read(self, call: Call, destination: Destination) -> Ticket | None:
        """The ticket of a call; rejected unless it was issued to this principal for this request."""
        if call.ticket is None:
            return None
        opened = self.seal.open(call.ticket, now=time.time(), bearer=call.caller.principal.id)
        sealed = _decode(opened if isinstance(opened, bytes) else b"")
        if sealed.request != request_digest(call.origin) or sealed.server != _server(destination):
            raise InvalidParams("Invalid requestState: it belongs to another request; send the same arguments again")
        return sealed.ticket


def _server(destination: Destination) -> tuple[str, str]:
    return destination.downstream.toolbox, destination.downstream.name
