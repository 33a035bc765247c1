"""A session with a legacy server, translated to the modern protocol.

The result of the handshake answers `server/discover`, and unsolicited notifications answer `subscriptions/listen`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.background_tasks import OwnedTasks, end_tasks
from pegboard.call import Channel, Json, NeedInput, Notification, Question, RequestId
from pegboard.client.links.link import Identity, OutgoingRequest
from pegboard.client.links.server_messages import ServerMessage
from pegboard.errors import Busy, InternalFailure, MalformedMessage, MethodNotFound, PegboardError, Refusal, ServerFault
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.json_values import as_object, texts_in
from pegboard.protocol.params import PREFIX
from pegboard.protocol.revisions import CHANGE_KINDS, CHANGE_METHODS, RESOURCE_UPDATED, REVISIONS, trim

Ask: TypeAlias = Callable[[OutgoingRequest], Awaitable[Mapping[str, Json]]]

_log = logging.getLogger("pegboard.client")

_KINDS: Final = {
    CHANGE_METHODS["tools"]: "toolsListChanged",
    CHANGE_METHODS["prompts"]: "promptsListChanged",
    CHANGE_METHODS["resources"]: "resourcesListChanged",
}


MAX_URI_LENGTH: Final = 8192
"""The maximum length of a URI that is accepted from a server."""

MAX_ID_LENGTH: Final = 1024

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


class FollowedUris:
    """The URIs that a listener subscribed to; finds out in one lookup whether a change belongs to one of them."""

    def __init__(self, uris: Iterable[str] = ()) -> None:
        self._uris = frozenset(uris)
        self._stems = frozenset(uri.rstrip("/") for uri in self._uris)
        self._lengths = sorted({len(stem) for stem in self._stems})

    def covers(self, uri: Json) -> bool:
        """Whether the URI is one of them, or below one; False for anything that is not a URI.

        ResourceUpdatedNotification: "This might be a sub-resource of the one that the client actually subscribed to".
        """
        if not isinstance(uri, str) or len(uri) > MAX_URI_LENGTH:
            return False
        return uri in self._uris or any(
            uri[length : length + 1] == "/" and uri[:length] in self._stems for length in self._lengths
        )


class ChangeListeners:
    """The listeners of one link, each with the filter of its `subscriptions/listen`."""

    def __init__(self) -> None:
        self._all: dict[Channel, Mapping[str, Json]] = {}
        self._followed: dict[Channel, FollowedUris] = {}
        self._uris: Counter[str] = Counter()

    @property
    def uris(self) -> list[str]:
        """The URIs that have a listener."""
        return list(self._uris)

    def add(self, channel: Channel, wanted: Mapping[str, Json]) -> list[str]:
        """Notify a channel from now on; returns the URIs that did not have a listener before."""
        self._all[channel] = wanted
        uris = _uris_in(wanted)
        self._followed[channel] = FollowedUris(uris)
        new = [uri for uri in uris if not self._uris[uri]]
        self._uris.update(uris)
        return new

    def remove(self, channel: Channel) -> list[str]:
        """Stop notifying a channel; returns the URIs that have no listener now."""
        wanted = self._all.pop(channel, {})
        self._followed.pop(channel, None)
        uris = _uris_in(wanted)
        self._uris.subtract(uris)
        gone = [uri for uri in uris if not self._uris[uri]]
        self._uris += Counter()
        return gone

    async def notify(self, notice: Notification) -> None:
        """Forward a change to all channels that listen for its kind or its resource."""
        member, uri = _KINDS.get(notice.method), notice.params.get("uri")
        for channel, wanted in list(self._all.items()):
            if wanted.get(member) if member is not None else self._followed[channel].covers(uri):
                await channel.emit(notice)

    async def notify_all(self) -> None:
        """Notify all channels of every possible change, since it is unknown what they missed."""
        for channel, wanted in list(self._all.items()):
            for method, member in _KINDS.items():
                if wanted.get(member):
                    await channel.emit(Notification(method, {}))
            for uri in _uris_in(wanted):
                await channel.emit(Notification(RESOURCE_UPDATED, {"uri": uri}))


def _uris_in(wanted: Mapping[str, Json]) -> list[str]:
    """The resources of a filter, each once."""
    return list(dict.fromkeys(texts_in(wanted.get("resourceSubscriptions"))))


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
