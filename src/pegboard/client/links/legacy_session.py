"""A session with a legacy server, translated to the modern protocol.

The result of the handshake answers `server/discover`, and unsolicited notifications answer `subscriptions/listen`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.background_tasks import OwnedTasks
from pegboard.call import Channel, Json, Notification, RequestId
from pegboard.client.links.change_listeners import ChangeListeners
from pegboard.client.links.incoming_questions import IncomingQuestions
from pegboard.client.links.link import Identity, OutgoingRequest
from pegboard.errors import MalformedMessage, PegboardError, ServerFault
from pegboard.protocol import jsonrpc
from pegboard.protocol.json_values import as_object
from pegboard.protocol.params import PREFIX
from pegboard.protocol.revisions import CHANGE_KINDS, REVISIONS, trim

Ask: TypeAlias = Callable[[OutgoingRequest], Awaitable[Mapping[str, Json]]]

_log = logging.getLogger("pegboard.client")


class _Initialized(Struct):
    protocolVersion: str  # noqa: N815 — the member's name on the wire
    capabilities: dict[str, Json] = {}
    serverInfo: dict[str, Json] = {}  # noqa: N815 — the member's name on the wire
    instructions: str | None = None


class LegacySession:
    """The legacy half of a link; `ask` sends its own requests, `send` any other message.

    `discovered` is what `server/discover` would have returned; it is empty before the handshake.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        unattributed: Channel,
        ask: Ask,
        send: Callable[[bytes], Awaitable[None]],
        timeout: float,
    ) -> None:
        self.discovered: Mapping[str, Json] = {}
        self.questions = IncomingQuestions(send, identity.limits)
        self._listeners = ChangeListeners()
        self._name = name
        self._identity = identity
        self._unattributed = unattributed
        self._ask = ask
        self._send = send
        self._timeout = timeout
        self._tasks = OwnedTasks()
        self.start = self._tasks.start
        """Runs a background task until the session is closed."""

    def initialize_params(self, version: str) -> dict[str, Any]:
        """The params of `initialize`."""
        return {
            "protocolVersion": version,
            "capabilities": self._identity.capabilities,
            "clientInfo": trim("implementation", self._identity.client, version),
        }

    def accept(self, result: Mapping[str, Json]) -> str:
        """Store the result of `initialize`, and return the negotiated revision."""
        answer = _read_initialized(result, self._name)
        self.discovered = _as_discovered(answer)
        return answer.protocolVersion

    async def begin(self) -> None:
        """Complete the handshake, set the log level, and renew the subscriptions of an earlier session."""
        await self._send(jsonrpc.notification("notifications/initialized", {}))
        if self._identity.log_level is not None and "logging" in as_object(self.discovered["capabilities"]):
            await self._request_quietly("logging/setLevel", {"level": self._identity.log_level})
        for uri in self._listeners.uris:
            await self._request_quietly("resources/subscribe", {"uri": uri})

    async def listen(
        self, out: OutgoingRequest, ask: Ask, until_lost: Callable[[], Awaitable[object]]
    ) -> Mapping[str, Json]:
        """Subscribe with `ask`, and forward changes to the channel of a `subscriptions/listen` until a fault."""
        wanted = out.params.get("notifications", {})
        unsubscribes = True
        try:
            for uri in self._listeners.add(out.channel, wanted):
                await ask(self._request("resources/subscribe", {"uri": uri}))
            await out.channel.emit(Notification("notifications/subscriptions/acknowledged", {"notifications": wanted}))
            await until_lost()
        except ServerFault:
            unsubscribes = False
            raise
        finally:
            for uri in self._listeners.remove(out.channel):
                if unsubscribes:
                    self.start(self._request_quietly("resources/unsubscribe", {"uri": uri}))
        raise AssertionError("only a fault ends the wait")

    async def deliver(self, notice: Notification) -> None:
        """Forward a notification that does not belong to a request."""
        await self._unattributed.emit(notice)
        if notice.method in CHANGE_KINDS:
            await self._listeners.notify(notice)

    async def report_missed(self) -> None:
        """Report everything that has a listener as changed, since changes may have been missed."""
        await self._listeners.notify_all()

    async def close(self, seconds: float = 0.0) -> None:
        """Stop answering; background tasks have this long to finish."""
        await self.questions.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()

    def _request(self, method: str, params: Mapping[str, Json]) -> OutgoingRequest:
        return OutgoingRequest(method=method, params=params, channel=self._unattributed)

    async def _request_quietly(self, method: str, params: Mapping[str, Json]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._ask(self._request(method, params))
        except (PegboardError, TimeoutError) as problem:
            _log.info("%s: %s failed: %s", self._name, method, problem)


def cancellation(request_id: RequestId) -> dict[str, Json]:
    """The params of `notifications/cancelled`."""
    return {"requestId": request_id, "reason": "The client does not wait any longer"}


def _read_initialized(result: Mapping[str, Json], name: str) -> _Initialized:
    """The result of `initialize`, with a revision that has a handshake."""
    try:
        answer = msgspec.convert(result, _Initialized)
    except msgspec.ValidationError as problem:
        raise MalformedMessage(f"{name}: the result of initialize is invalid: {problem}") from None
    revision = REVISIONS.get(answer.protocolVersion)
    if revision is None or not revision.has_sessions:
        known = ", ".join(name for name, known in REVISIONS.items() if known.has_sessions)
        raise MalformedMessage(
            f"{name}: negotiated the revision {answer.protocolVersion[:40]!r}; this client supports {known}"
        )
    return answer


def _as_discovered(answer: _Initialized) -> dict[str, Json]:
    """The result of `initialize` as one of `server/discover`, with the negotiated revision only."""
    discovered: dict[str, Json] = {
        "supportedVersions": [answer.protocolVersion],
        "capabilities": answer.capabilities,
        "_meta": {PREFIX + "serverInfo": answer.serverInfo},
    }
    if answer.instructions is not None:
        discovered["instructions"] = answer.instructions
    return discovered
