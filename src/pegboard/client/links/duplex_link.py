"""A link over one pipe for all messages in both directions, in both eras; it opens a lost pipe again.

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
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol

from msgspec import Struct

from pegboard.call import Channel, Json, Notification, RequestId
from pegboard.client.links.abandoned_requests import AbandonedRequests
from pegboard.client.links.era_cache import choose_version, forget, probe, recall, remember, versions_in_answer
from pegboard.client.links.legacy_session import LegacySession, cancellation
from pegboard.client.links.link import (
    PROGRESS_NOTIFICATION,
    Authorizer,
    Identity,
    LinkOptions,
    OutgoingRequest,
    RequestMetadata,
    request_ids,
    with_server_name,
    write_legacy,
)
from pegboard.client.links.server_messages import ServerMessage, read_server_message, read_values, result_of
from pegboard.client.links.server_output import warn_rarely
from pegboard.errors import ConnectionLost, MalformedMessage, Refusal, ResponseTimeout, ServerFault, Unreachable
from pegboard.logs.log_lines import ServerName
from pegboard.protocol import jsonrpc
from pegboard.protocol.params import PREFIX
from pegboard.protocol.revisions import CHANGE_KINDS, MODERN, NEWEST_LEGACY, REVISIONS

_log = logging.getLogger("pegboard.client")

INBOX_MESSAGES: Final = 256
INBOX_BYTES: Final = 4 * 1024 * 1024
"""How many notifications may wait for one request, and their total size; beyond that the oldest are dropped."""

_LONG: Final = 16 * 1024
_SUBSCRIPTION: Final = PREFIX + "subscriptionId"
# What a legacy server has in another form.
_NOT_LEGACY: Final = frozenset({"server/discover", "subscriptions/listen"})
# A server neither asks nor logs on behalf of these requests.
_WITHOUT_QUESTIONS: Final = frozenset(
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
        """Open the pipe; `lost` is called once if the connection fails, but not after `close`."""

    def send(self, message: bytes) -> Coroutine[Any, Any, None] | None:
        """Send a message; returns what must be awaited if the server does not read, or if it could not be sent at once.

        That raises Unreachable if the server cannot have received the message.
        """

    def send_now(self, message: bytes) -> None:
        """Send a message without waiting; it may be lost."""

    async def close(self) -> None: ...


class _PendingRequest(Struct, eq=False):
    """A request that was sent: what has arrived for it, and the future of the coroutine that waits."""

    out: OutgoingRequest
    inbox: deque[tuple[ServerMessage, int]] | None = None
    size: int = 0
    answer: ServerMessage | None = None
    fault: ServerFault | None = None
    waiter: asyncio.Future[None] | None = None

    def put(self, message: ServerMessage, size: int) -> None:
        """Add a notification; `size` is the size of the whole message, which stays in memory."""
        if self.inbox is None:
            self.inbox = deque()
        self.inbox.append((message, size))
        self.size += size
        while len(self.inbox) > INBOX_MESSAGES or (self.size > INBOX_BYTES and len(self.inbox) > 1):
            self.size -= self.inbox.popleft()[1]
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def deliver(self, request_id: int) -> None:
        """Deliver the notifications that have arrived."""
        while self.inbox:
            message, size = self.inbox.popleft()
            self.size -= size
            await self.out.deliver(Notification(message.method or "", message.parameters()), request_id)


class EraInDoubt(Exception):
    """A slow server received both the probe and the handshake, and accepted both."""


class DuplexLink:
    """A link over a pipe, in the era of the server; a lost pipe is opened again for the next request.

    `_connect` creates the pipe and passes it to `_speak`.
    """

    names_server: ClassVar[bool] = True
    mirrors = False
    authorizer: Authorizer | None = None

    # The state of one pipe.
    _lost: asyncio.Future[ServerFault]
    _abandoned: AbandonedRequests
    _legacy: LegacySession
    _metadata: RequestMetadata | None
    """The metadata of every request to a modern server; None for a legacy one."""

    def __init__(
        self,
        name: str,
        transport: str,
        identity: Identity,
        unattributed: Channel,
        options: LinkOptions,
        known_as: Hashable = None,
    ) -> None:
        self.name = ServerName(name, options.server)
        self.transport = transport
        self.version = options.version or MODERN
        self.is_open = False
        self._identity = identity
        self._unattributed = unattributed
        self._options = options
        self._timeout = options.connect_timeout
        # A process that still installs its program answers late.
        self._start_timeout = options.start_timeout or options.connect_timeout
        self._cache_key = name if known_as is None else known_as
        self._ids = request_ids()
        self._opening = asyncio.Lock()
        self._closed = False
        self._pipe: MessagePipe | None = None
        self._pending: dict[RequestId, _PendingRequest] = {}

    async def open(self) -> None:
        self._closed = False
        await self._ready()

    async def until_lost(self) -> None:
        """Wait until the pipe of an open link is lost, and raise the reason."""
        if self._pipe is not None:
            raise await asyncio.shield(self._lost)

    async def close(self) -> None:
        self._closed = True
        async with self._opening:
            await self._end()

    def request(self, out: OutgoingRequest) -> Coroutine[Any, Any, Mapping[str, Json]]:
        if self.is_open and (self._metadata is not None or out.method not in _NOT_LEGACY):
            return self._ask(out)
        return self._request(out)

    async def _request(self, out: OutgoingRequest) -> Mapping[str, Json]:
        """A request that has to wait for the pipe, or that a legacy server does not have."""
        if not self.is_open:
            await self._ready()
        if self._metadata is None:
            match out.method:
                case "server/discover":
                    return self._legacy.discovered
                case "subscriptions/listen":
                    return await self._legacy.listen(out, self._ask, self.until_lost)
        return await self._ask(out)

    # Opening.

    async def _connect(self, again: bool, version: str | None) -> None:
        """Create a pipe, and `_speak` over it; `again` if there was one before."""
        raise NotImplementedError

    async def _ready(self) -> None:
        async with self._opening:
            if self.is_open:
                return
            if self._closed:
                # A retry would start a process that is never stopped.
                raise ConnectionLost(f"{self.name}: this client is closed")
            again = self._pipe is not None
            await self._end()
            try:
                await self._connect_in_one_era(again)
            except ConnectionLost as lost:
                # No request was sent yet, so it can be retried.
                raise Unreachable(str(lost)) from None
            self.is_open = not self._lost.done()

    async def _connect_in_one_era(self, again: bool) -> None:
        try:
            await self._connect(again, self._options.version)
        except EraInDoubt:
            _log.info("%s: responded late, and in both eras; reconnecting with the modern one", self.name)
            await self._connect(again=False, version=MODERN)

    async def _speak(self, pipe: MessagePipe, version: str | None) -> None:
        """Open a pipe and negotiate a revision; closes the pipe if that fails."""
        self._pipe = pipe
        self._metadata = None
        self._lost = asyncio.get_running_loop().create_future()
        self._abandoned = AbandonedRequests()
        self._legacy = LegacySession(
            self.name, self._identity, self._unattributed, self._ask, self._send, self._timeout
        )
        try:
            await pipe.open(self._receive, self._fail_all)
            if version is None:
                await self._find_era()
            elif REVISIONS[version].has_sessions:
                await self._initialize(version)
            else:
                self._speak_modern()
        except BaseException as problem:
            await self._end()
            if isinstance(problem, ServerFault):
                raise with_server_name(problem, self.name) from None
            raise

    async def _end(self) -> None:
        self.is_open = False
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self._fail_all(ConnectionLost(f"{self.name}: this client is closed"))
            await self._legacy.close()
            await pipe.close()

    async def _find_era(self) -> None:
        """Probe with `server/discover`: a modern error or result means modern, any other or none means legacy."""
        known = recall(self._cache_key)
        if known is not None and REVISIONS[known].has_sessions:
            try:
                await self._initialize(known)
            except Refusal:
                forget(self._cache_key)
            else:
                return
        versions = await self._probe()
        version = NEWEST_LEGACY if versions is None else choose_version(versions, self.name)
        if not REVISIONS[version].has_sessions:
            self._speak_modern()
            remember(self._cache_key, MODERN)
        elif not self._legacy.discovered:
            await self._initialize(version)

    async def _probe(self) -> Sequence[str] | None:
        """The revisions that the server supports; None for a legacy server, whose handshake may be done by then."""
        self._speak_modern()
        probing = asyncio.create_task(versions_in_answer(self._ask(probe())))
        tasks: list[asyncio.Task[Any]] = [probing]
        try:
            await asyncio.wait(tasks, timeout=self._timeout / 2)
            if probing.done():
                return probing.result()
            # Slow or silent: try the handshake as well. A legacy server need not respond to the probe.
            handshake = asyncio.create_task(self._initialize(NEWEST_LEGACY))
            tasks.append(handshake)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            versions = probing.result() if probing.done() else None
            try:
                await handshake
            except (Refusal, ResponseTimeout):
                if versions is None:
                    raise
            else:
                if versions is not None:
                    raise EraInDoubt
            return versions
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _speak_modern(self) -> None:
        self.version = MODERN
        self._metadata = RequestMetadata(self._identity, MODERN)

    async def _initialize(self, version: str) -> None:
        self._metadata = None
        params = self._legacy.initialize_params(version)
        try:
            async with asyncio.timeout(self._start_timeout):
                result = await self._ask(
                    OutgoingRequest(method="initialize", params=params, channel=self._unattributed)
                )
        except TimeoutError:
            raise ResponseTimeout(f"{self.name}: no response to initialize within {self._start_timeout:g} s") from None
        self.version = self._legacy.accept(result)
        await self._legacy.begin()
        remember(self._cache_key, self.version)

    # Requests.

    async def _send(self, message: bytes) -> None:
        """Send a message that is not a request."""
        waits = None if self._pipe is None else self._pipe.send(message)
        if waits is not None:
            await waits

    async def _ask(self, out: OutgoingRequest) -> Mapping[str, Json]:
        pipe, lost, metadata = self._pipe, self._lost, self._metadata
        if pipe is None or lost.done():
            raise lost.result()
        request_id = next(self._ids)
        message = write_legacy(out, request_id) if metadata is None else metadata.write(out, request_id)
        pending = self._pending[request_id] = _PendingRequest(out)
        try:
            waits = pipe.send(message)
            if waits is not None:
                await waits
            while True:
                if pending.inbox:
                    await pending.deliver(request_id)
                answer = pending.answer
                if answer is not None:
                    return result_of(answer, out.read)
                if pending.fault is not None:
                    raise pending.fault
                waiter = pending.waiter = asyncio.get_running_loop().create_future()
                await waiter
        except asyncio.CancelledError:
            # "The client MUST NOT attempt to cancel its initialize request"
            if out.method != "initialize" and not lost.done() and pending.answer is None:
                pipe.send_now(jsonrpc.notification("notifications/cancelled", cancellation(request_id)))
                if out.method not in _WITHOUT_QUESTIONS:
                    self._abandoned.add(request_id, out.owner)
            raise
        except ServerFault as fault:
            raise with_server_name(fault, self.name) from None
        finally:
            del self._pending[request_id]

    # Received messages.

    def _receive(self, data: bytes) -> None:
        # Which request a message is for is known after it is decoded.
        plain = len(data) > _LONG and all(pending.out.read is read_values for pending in self._pending.values())
        try:
            message = read_server_message(data, self._identity.limits, read_values if plain else None)
        except MalformedMessage as problem:
            kind, colon, detail = str(problem).partition(":")
            warn_rarely(self._cache_key, self.name, f"sent an {kind}", colon + detail)
            return
        if message.method is None:
            pending = self._pending.get(message.id) if message.id is not None else None
            if pending is None or pending.answer is not None:
                self._receive_stray_answer(message)
                return
            pending.answer = message
            waiter = pending.waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        elif message.id is not None:
            self._receive_question(message)
        else:
            self._receive_notification(message, message.method, len(data))

    def _receive_stray_answer(self, message: ServerMessage) -> None:
        """A response that names no open request."""
        pending = next(iter(self._pending.values())) if message.id is None and len(self._pending) == 1 else None
        if pending is not None and pending.answer is None:
            # An error without an id: the server could not parse the only pending request.
            pending.answer = message
            pending.wake()
            return
        _log.debug("%s: sent a response to %.80r, which is not an open request", self.name, message.id)
        self._abandoned.finished(message.id)

    def _receive_question(self, message: ServerMessage) -> None:
        if self._metadata is not None:
            # "Servers MUST NOT initiate JSON-RPC requests, and clients do not send JSON-RPC responses"
            asked = f": {str(message.method)[:80]}"
            warn_rarely(self._cache_key, self.name, "sent a request, which its revision does not allow", asked)
            return
        only = self._sole_request()
        self._legacy.questions.start(message, self._unattributed if only is None else only.out)

    def _receive_notification(self, message: ServerMessage, method: str, size: int) -> None:
        params = message.parameters()
        if method == "notifications/cancelled":
            self._receive_cancelled(params.get("requestId"))
            return
        meta = params.get("_meta")
        key = params.get("progressToken") if method == PROGRESS_NOTIFICATION else None
        if isinstance(meta, dict) and _SUBSCRIPTION in meta:
            key = meta[_SUBSCRIPTION]
        pending = self._pending.get(key) if isinstance(key, str | int) else None
        if pending is None and method not in CHANGE_KINDS and method != PROGRESS_NOTIFICATION:
            pending = self._sole_request()
        if pending is not None:
            pending.put(message, size)
        elif method != PROGRESS_NOTIFICATION:
            self._legacy.start(self._legacy.deliver(Notification(method, params)))

    def _receive_cancelled(self, request_id: Any) -> None:
        if self._metadata is None:
            self._legacy.questions.drop(request_id)
            return
        pending = self._pending.get(request_id) if isinstance(request_id, str | int) else None
        if pending is not None and pending.out.method == "subscriptions/listen":
            pending.fault = ConnectionLost(f"{self.name}: ended the subscription")
            pending.wake()

    def _sole_request(self) -> _PendingRequest | None:
        """The request that a question of the server belongs to, if there is only one candidate."""
        found: _PendingRequest | None = None
        for pending in self._pending.values():
            if pending.out.method in _WITHOUT_QUESTIONS:
                continue
            if found is not None:
                return None
            found = pending
        # An answer to a question of another client's request would disclose that client's data.
        return None if found is None or self._abandoned.may_belong_to_another(found.out.owner) else found

    def _fail_all(self, fault: ServerFault) -> None:
        self.is_open = False
        if not self._lost.done():
            self._lost.set_result(fault)
            for pending in self._pending.values():
                pending.fault = fault
                pending.wake()
