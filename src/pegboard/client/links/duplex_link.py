"""A link over one channel for all messages in both directions, in both eras.

Theory of operation. `receive` gets every message in a callback of the event loop and sorts it: a response by its id,
progress by its token, a notification of a subscription by the id of its listen request. Messages for a request wait in
that request's own inbox; the coroutine that sent the request takes them out, so notifications are delivered in order
and before the response. A notification or question that names no request belongs to the only running one, unless the
server may still be working on an abandoned request; otherwise it is unattributed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn, Protocol

from pegboard.call import NULL_CHANNEL, Channel, Json, Notification, RequestId
from pegboard.client.links.abandoned_requests import AbandonedRequests
from pegboard.client.links.change_listeners import ChangeListeners
from pegboard.client.links.era_cache import forget, recall, remember
from pegboard.client.links.garbled_counts import count_garbled
from pegboard.client.links.handshake import initialize_params, read_initialized
from pegboard.client.links.incoming_questions import IncomingQuestions
from pegboard.client.links.link import (
    CHANGE_NOTIFICATIONS,
    PROGRESS_NOTIFICATION,
    Identity,
    OutgoingRequest,
    RequestMetadata,
    legacy_params,
    request_ids,
    with_server_name,
)
from pegboard.client.links.server_messages import MODERN_CODES, ServerMessage, read_server_message, result_of
from pegboard.errors import (
    ConnectionLost,
    MalformedMessage,
    PegboardError,
    Refusal,
    ResponseTimeout,
    ServerFault,
    UnsupportedVersion,
)
from pegboard.protocol import jsonrpc
from pegboard.protocol.params import PREFIX
from pegboard.protocol.revisions import MODERN, NEWEST_LEGACY, REVISIONS, SUPPORTED

_log = logging.getLogger("pegboard.client")

INBOX_MESSAGES: Final = 256
"""How many notices may wait for one request; beyond that the oldest are lost."""

_SUBSCRIPTION: Final = PREFIX + "subscriptionId"
# Nobody is asked, and nothing logged, in the name of these.
_MAX_TASKS: Final = frozenset(
    {
        "initialize", "ping", "logging/setLevel", "completion/complete", "tools/list", "prompts/list", "resources/list",
        "resources/templates/list", "resources/subscribe", "resources/unsubscribe", "subscriptions/listen",
    }
)  # fmt: skip


class MessagePipe(Protocol):
    """Carries messages to a server and back; it is opened once and closed once."""

    @property
    def name(self) -> str: ...

    @property
    def transport(self) -> str: ...

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[ServerFault], None]) -> None:
        """Begin to carry; `lost` is called once when it cannot any more, and not when it was closed."""

    async def send(self, message: bytes) -> None:
        """Hand a message over; waits while the server takes none."""

    def send_now(self, message: bytes) -> None:
        """The same for what must not wait, and may be lost."""

    async def close(self) -> None: ...


class _PendingRequest:
    """A request under way: what has come for it, and who waits for that."""

    __slots__ = ("answer", "fault", "inbox", "out", "waiter")

    def __init__(self, out: OutgoingRequest) -> None:
        self.out = out
        self.inbox: deque[ServerMessage] | None = None
        self.answer: ServerMessage | None = None
        self.fault: ServerFault | None = None
        self.waiter: asyncio.Future[None] | None = None

    def put(self, message: ServerMessage) -> None:
        """Something came before the answer."""
        if self.inbox is None:
            self.inbox = deque(maxlen=INBOX_MESSAGES)
        self.inbox.append(message)
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def wait(self, request_id: int) -> ServerMessage:
        """The answer, once what came before it is handed on."""
        while True:
            while self.inbox:
                message = self.inbox.popleft()
                await self.out.deliver(Notification(message.method or "", message.parameters()), request_id)
            if self.answer is not None:
                return self.answer
            if self.fault is not None:
                raise self.fault
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter


class DuplexLink:
    """A link over a pipe, in the era the server is of."""

    names_server: ClassVar[bool] = True
    mirrors = False

    def __init__(
        self,
        pipe: MessagePipe,
        identity: Identity,
        unattributed: Channel,
        *,
        version: str | None = None,
        timeout: float = 10.0,
        known_as: Hashable = None,
    ) -> None:
        self.version = version or MODERN
        self._pipe = pipe
        self._identity = identity
        self._unattributed = unattributed
        self._pinned = version
        self._cache_key = pipe.name if known_as is None else known_as
        self._timeout = timeout
        self._ids = request_ids()
        self._open: dict[RequestId, _PendingRequest] = {}
        self._listeners = ChangeListeners()
        self._asks = IncomingQuestions(pipe.send)
        self._abandoned = AbandonedRequests()
        self._envelope: RequestMetadata | None = None
        self._discovered: Mapping[str, Json] = {}
        self._fault: ServerFault | None = None
        self._gone = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return self._pipe.name

    @property
    def transport(self) -> str:
        return self._pipe.transport

    @property
    def lost(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._fault is not None

    async def until_lost(self) -> NoReturn:
        """Wait until nothing can be asked any more, and raise why."""
        await self._gone.wait()
        assert self._fault is not None  # noqa: S101 — it came with the event
        raise self._fault

    async def open(self) -> None:
        await self._pipe.open(self._receive, self._fail_all)
        try:
            if self._pinned is None:
                await self._probe()
            elif REVISIONS[self._pinned].has_sessions:
                await self._initialize(self._pinned)
            else:
                self._speak_modern()
        except ServerFault as fault:
            raise with_server_name(fault, self.name) from None

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._asks.close()
        self._fail_all(ConnectionLost(f"{self.name}: this client is closed"))
        await self._pipe.close()

    async def request(self, out: OutgoingRequest) -> Mapping[str, Json]:
        if self._envelope is None:
            match out.method:
                case "server/discover":
                    return self._discovered
                case "subscriptions/listen":
                    return await self._listen(out)
        return await self._ask(out)

    # Eras.

    async def _probe(self) -> None:
        """`server/discover` first: a modern error or result says modern, any other or silence says legacy."""
        known = recall(self._cache_key)
        if known is not None and REVISIONS[known].has_sessions:
            try:
                await self._initialize(known)
            except Refusal:
                forget(self._cache_key)
            else:
                return
        versions = await self._discover()
        if versions is None:
            await self._initialize(NEWEST_LEGACY)
            return
        spoken = next((version for version in SUPPORTED if version in versions), None)
        if spoken is None:
            told = ", ".join(map(str, versions))[:200]
            raise MalformedMessage(f"speaks {told or 'no revision'}; known are {', '.join(SUPPORTED)}")
        if REVISIONS[spoken].has_sessions:
            await self._initialize(spoken)
            return
        self._speak_modern()
        remember(self._cache_key, MODERN)

    async def _discover(self) -> Sequence[str] | None:
        """The revisions that the server says it speaks; None where it is no modern server, or silent."""
        self._speak_modern()
        probe = asyncio.create_task(
            self._ask(OutgoingRequest(method="server/discover", params={}, channel=NULL_CHANNEL))
        )
        handshake = None
        try:
            await asyncio.wait([probe], timeout=self._timeout / 2)
            self._envelope = None
            if not probe.done():
                # Slow or silent: the handshake is tried as well, and the first that is answered counts.
                handshake = asyncio.create_task(self._initialize(NEWEST_LEGACY))
                await asyncio.wait([probe, handshake], return_when=asyncio.FIRST_COMPLETED)
                if not probe.done():
                    await handshake
                    return [self.version]
            return _versions(probe)
        finally:
            probe.cancel()
            if handshake is not None:
                handshake.cancel()

    def _speak_modern(self) -> None:
        self.version = MODERN
        self._envelope = RequestMetadata(self._identity, MODERN)

    async def _initialize(self, version: str) -> None:
        if self._discovered:
            return
        self._envelope = None
        params = initialize_params(self._identity, version)
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._ask(
                    OutgoingRequest(method="initialize", params=params, channel=self._unattributed)
                )
        except TimeoutError:
            raise ResponseTimeout(f"{self.name}: no answer to initialize within {self._timeout:g} s") from None
        self._discovered = read_initialized(result, self.name)
        self.version = self._discovered["supportedVersions"][0]
        await self._pipe.send(jsonrpc.notification("notifications/initialized", {}))
        remember(self._cache_key, self.version)
        if self._identity.log_level is not None and "logging" in self._discovered["capabilities"]:
            await self._notify_quietly("logging/setLevel", {"level": self._identity.log_level})

    # Requests.

    async def _ask(self, out: OutgoingRequest) -> Mapping[str, Json]:
        if self._fault is not None:
            raise self._fault
        request_id = next(self._ids)
        envelope = self._envelope
        params = legacy_params(out, request_id) if envelope is None else envelope.around(out, request_id)
        message = jsonrpc.request(request_id, out.method, params)
        under_way = self._open[request_id] = _PendingRequest(out)
        try:
            await self._pipe.send(message)
            return result_of(await under_way.wait(request_id), out.read)
        except asyncio.CancelledError:
            # "The client MUST NOT attempt to cancel its initialize request", and no dead server hears.
            if out.method != "initialize" and not self.lost and under_way.answer is None:
                told = {"requestId": request_id, "reason": "The client does not wait any longer"}
                self._pipe.send_now(jsonrpc.notification("notifications/cancelled", told))
                if out.method not in _MAX_TASKS:
                    self._abandoned.add(request_id, out.owner)
            raise
        except ServerFault as fault:
            raise with_server_name(fault, self.name) from None
        finally:
            del self._open[request_id]

    async def _listen(self, out: OutgoingRequest) -> Mapping[str, Json]:
        wanted = out.params.get("notifications", {})
        try:
            for uri in self._listeners.add(out.channel, wanted):
                await self._ask(
                    OutgoingRequest(method="resources/subscribe", params={"uri": uri}, channel=self._unattributed)
                )
            await out.channel.emit(Notification("notifications/subscriptions/acknowledged", {"notifications": wanted}))
            await self._until_lost(out)
        finally:
            for uri in self._listeners.remove(out.channel):
                if not self.lost:
                    self._start(self._notify_quietly("resources/unsubscribe", {"uri": uri}))
        raise AssertionError("a wait that only a fault ends")

    async def _until_lost(self, out: OutgoingRequest) -> None:
        key = f"listen-{next(self._ids)}"
        waiting = self._open[key] = _PendingRequest(out)
        waiting.fault = self._fault
        try:
            await waiting.wait(0)
        finally:
            del self._open[key]

    async def _notify_quietly(self, method: str, params: Mapping[str, Json]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._ask(OutgoingRequest(method=method, params=params, channel=self._unattributed))
        except (PegboardError, TimeoutError) as problem:
            _log.info("%s: %s was refused: %s", self.name, method, problem)

    # What comes.

    def _receive(self, data: bytes) -> None:
        try:
            message = read_server_message(data)
        except MalformedMessage as problem:
            number = count_garbled(self._cache_key, str(problem).partition(":")[0])
            # The first, the second, the fourth …: what writes nothing else fills no log.
            if not number & (number - 1):
                _log.warning("%s: wrote %s (%d so far)", self.name, problem, number)
            return
        if message.method is None:
            self._receive_answer(message)
        elif message.id is not None:
            self._receive_question(message)
        else:
            self._receive_notification(message, message.method)

    def _receive_answer(self, message: ServerMessage) -> None:
        under_way = self._open.get(message.id) if message.id is not None else None
        if under_way is None and message.id is None and len(self._open) == 1:
            # An error with no id: the server could not read the only request there is.
            under_way = next(iter(self._open.values()))
        if under_way is None or under_way.answer is not None:
            _log.debug("%s: answered %r, which nobody waits for", self.name, message.id)
            self._abandoned.finished(message.id)
            return
        under_way.answer = message
        under_way.wake()

    def _receive_question(self, message: ServerMessage) -> None:
        if self._envelope is not None:
            # "Servers MUST NOT initiate JSON-RPC requests, and clients do not send JSON-RPC responses"
            _log.warning("%s: asked %s, which its revision does not have", self.name, message.method)
            return
        only = self._sole_request()
        self._asks.start(message, self._unattributed if only is None else only.out)

    def _receive_notification(self, message: ServerMessage, method: str) -> None:
        params = message.parameters()
        if method == "notifications/cancelled":
            self._receive_cancelled(params.get("requestId"))
            return
        meta = params.get("_meta")
        key = params.get("progressToken") if method == PROGRESS_NOTIFICATION else None
        if isinstance(meta, dict) and _SUBSCRIPTION in meta:
            key = meta[_SUBSCRIPTION]
        under_way = self._open.get(key) if isinstance(key, str | int) else None
        if under_way is None and method not in CHANGE_NOTIFICATIONS and method != PROGRESS_NOTIFICATION:
            under_way = self._sole_request()
        if under_way is not None:
            under_way.put(message)
        elif method != PROGRESS_NOTIFICATION:
            self._start(self._deliver(Notification(method, params)))

    def _receive_cancelled(self, request_id: Any) -> None:
        if self._envelope is None:
            self._asks.drop(request_id)
            return
        under_way = self._open.get(request_id) if isinstance(request_id, str | int) else None
        if under_way is not None and under_way.out.method == "subscriptions/listen":
            under_way.fault = ConnectionLost(f"{self.name}: ended the subscription")
            under_way.wake()

    async def _deliver(self, notice: Notification) -> None:
        await self._unattributed.emit(notice)
        if notice.method in CHANGE_NOTIFICATIONS:
            await self._listeners.notify(notice)

    def _sole_request(self) -> _PendingRequest | None:
        """The one request that the server can ask something for, where there is just one."""
        found: _PendingRequest | None = None
        for under_way in self._open.values():
            if under_way.out.method in _MAX_TASKS:
                continue
            if found is not None:
                return None
            found = under_way
        # An answer to the wrong person's question tells one what is the other's.
        return None if found is None or self._abandoned.may_belong_to_another(found.out.owner) else found

    def _fail_all(self, fault: ServerFault) -> None:
        if self._fault is None:
            self._fault = fault
            self._gone.set()
            for under_way in self._open.values():
                under_way.fault = fault
                under_way.wake()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _versions(probe: asyncio.Task[Mapping[str, Json]]) -> Sequence[str] | None:
    """What the answer to `server/discover` says that the server speaks; None where it is no modern server."""
    try:
        told = probe.result()
    except UnsupportedVersion as refused:
        supported = refused.data.get("supported") if isinstance(refused.data, dict) else None
        return supported if isinstance(supported, list) else [MODERN]
    except Refusal as refused:
        return [MODERN] if refused.code in MODERN_CODES else None
    versions = told.get("supportedVersions")
    return versions if isinstance(versions, list) else None
