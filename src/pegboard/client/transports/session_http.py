"""Streamable HTTP of revisions up to 2025-11-25: sessions and resumable streams."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from pegboard.backoff import backoff
from pegboard.call import Channel, Json, Notification
from pegboard.client.http.http_connection import Response
from pegboard.client.links.legacy_session import IncomingQuestions, LegacySession, cancellation
from pegboard.client.links.link import (
    CANCEL_SECONDS,
    Identity,
    OutgoingRequest,
    request_ids,
    with_server_name,
    write_legacy,
)
from pegboard.client.links.server_messages import ServerMessage, result_of
from pegboard.client.links.server_output import warn_rarely
from pegboard.client.transports.http_endpoint import (
    EndpointClient,
    EventStream,
    HttpRejection,
    Reject,
    is_stream,
    read_answer,
    read_whole,
)
from pegboard.errors import ConnectionLost, PegboardError, ServerFault, Unreachable, UnsupportedVersion
from pegboard.protocol import jsonrpc
from pegboard.protocol.revisions import CHANGE_KINDS

RESUMPTIONS: Final = 5
"""How many attempts in a row to resume a stream may bring no event."""
STREAM_RETRY_SECONDS: Final = 1.0
_MAX_RETRY_SECONDS: Final = 30.0

_log = logging.getLogger("pegboard.client")


class ClientSession(Struct, frozen=True, eq=False):
    """The result of a handshake; `secrets` are the header lines with the session id."""

    version: str
    fields: bytes
    secrets: bytes


class SessionHttp:
    """Sends requests to one endpoint in a session; opens a new session if the server does not know it any more."""

    mirrors = False
    is_open = True

    def __init__(
        self,
        endpoint: EndpointClient,
        identity: Identity,
        unattributed: Channel,
        name: str,
        version: str,
        timeout: float,
    ) -> None:
        self._endpoint = endpoint
        self._unattributed = unattributed
        self._name = name
        self._asked = version
        self._ids = request_ids()
        self._session: ClientSession | None = None
        self._opening = asyncio.Lock()
        self._limits = identity.limits
        self._legacy = LegacySession(name, identity, unattributed, self._ask_in_session, self._send, timeout)
        self._stream_task: asyncio.Task[None] | None = None

    @property
    def version(self) -> str:
        return self._asked if self._session is None else self._session.version

    async def open(self) -> None:
        """Perform the handshake unless it is done; raises HttpRejection if the endpoint does not support it."""
        async with self._opening:
            if self._session is None:
                await self._open()

    async def close(self) -> None:
        """End the session; background tasks have a moment to finish."""
        if self._stream_task is not None:
            self._stream_task.cancel()
        await self._legacy.close(CANCEL_SECONDS)
        session, self._session = self._session, None
        if session is not None and session.secrets:
            try:
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self._endpoint.delete(session.fields, session.secrets)
            except (PegboardError, TimeoutError) as problem:
                _log.debug("%s: the session could not be ended: %s", self._name, problem)
        if self._stream_task is not None:
            await asyncio.wait([self._stream_task])

    async def request(self, out: OutgoingRequest, reject: Reject | None = None) -> Mapping[str, Json]:
        """Send a request; `reject` handles the rejection of its revision or of HTTP, which is raised without it."""
        session = self._session or await self._open_first()
        match out.method:
            case "server/discover":
                return self._legacy.discovered
            case "subscriptions/listen":
                return await self._legacy.listen(out, self.request, asyncio.get_running_loop().create_future)
        try:
            try:
                return await self._ask(out, session)
            except HttpRejection as rejection:
                if not _is_over(rejection, session):
                    raise
            # "it MUST start a new session by sending a new InitializeRequest"; a rejected request was not processed.
            await self._reopen(session)
            renewed = self._session
            assert renewed is not None  # noqa: S101 — otherwise opening had failed
            try:
                return await self._ask(out, renewed)
            except HttpRejection as rejection:
                raise rejection.explain(self._name) from None
        except (UnsupportedVersion, HttpRejection) as problem:
            if reject is None:
                raise
            return await reject(out, self, problem)

    # The session.

    async def _open_first(self) -> ClientSession:
        await self.open()
        assert self._session is not None  # noqa: S101 — otherwise opening had failed
        return self._session

    async def _open(self) -> None:
        request_id = next(self._ids)
        params = self._legacy.initialize_params(self._asked)
        response = await self._endpoint.post(jsonrpc.request(request_id, "initialize", params))
        try:
            answer = await read_answer(response, request_id, self._receive_unsolicited, EventStream(self._limits))
        finally:
            response.close()
        if answer is None:
            raise ConnectionLost(f"{self._name}: ended its stream before the response to initialize")
        version = self._legacy.accept(result_of(answer))
        session_id = response.headers.get(b"mcp-session-id", b"").strip()
        if not all(0x21 <= byte <= 0x7E for byte in session_id):
            raise ConnectionLost(f"{self._name}: its session id contains invalid characters")
        secrets = b"Mcp-Session-Id: %b\r\n" % session_id if session_id else b""
        session = ClientSession(version, f"MCP-Protocol-Version: {version}\r\n".encode(), secrets)
        self._session = session
        await self._legacy.begin()
        if self._stream_task is not None:
            self._stream_task.cancel()
        first_event = asyncio.Event()
        self._stream_task = asyncio.create_task(self._read_stream(session, first_event))
        # Many servers drop messages outside of requests until this stream is open; some send no head before the first.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STREAM_RETRY_SECONDS):
                await first_event.wait()

    async def _reopen(self, old: ClientSession) -> None:
        async with self._opening:
            if self._session is not old:
                return
            _log.info("%s: does not know our session any more; opening a new one", self._name)
            self._session = None
            try:
                await self._open()
            except HttpRejection as rejection:
                raise rejection.explain(self._name) from None
        await self._legacy.report_missed()

    # Requests.

    async def _ask(self, out: OutgoingRequest, session: ClientSession) -> Mapping[str, Json]:
        request_id = next(self._ids)
        body = write_legacy(out, request_id)
        try:
            response = await self._endpoint.post(body, session.fields, session.secrets)
            answer = read_whole(response, request_id, self._limits, out.read)
            if answer is None:
                answer = await self._read(response, out, request_id, session)
            return result_of(answer, out.read)
        except asyncio.CancelledError:
            self._legacy.start(self._cancel(request_id, session))
            raise
        except ServerFault as fault:
            raise with_server_name(fault, self._name) from None

    async def _read(
        self, response: Response, out: OutgoingRequest, request_id: int, session: ClientSession
    ) -> ServerMessage:
        """The response to a request, after the messages that come before it; resumes its stream if necessary."""
        stream, questions = EventStream(self._limits, out.read), IncomingQuestions(self._send, self._limits)

        async def handle(message: ServerMessage) -> None:
            await self._receive(message, out, request_id, questions)

        try:
            try:
                answer = await read_answer(response, request_id, handle, stream)
            except ConnectionLost:
                if stream.last_id is None:
                    raise
                answer = None
            else:
                if answer is None and stream.last_id is not None:
                    # The caller may also disconnect meanwhile, as the server asked us to.
                    await out.close_stream(round(min(stream.retry, _MAX_RETRY_SECONDS) * 1000))
            finally:
                response.close()
            while answer is None:
                answer = await self._resume(out, request_id, session, handle, stream)
            return answer
        finally:
            await questions.close()

    async def _resume(
        self, out: OutgoingRequest, request_id: int, session: ClientSession, handle: Any, stream: EventStream
    ) -> ServerMessage | None:
        """Resume a stream; "waiting the given number of milliseconds before attempting to reconnect"."""
        if stream.last_id is None:
            raise ConnectionLost(f"{self._name}: ended its stream without an MCP response to {out.method}")
        for attempt in range(RESUMPTIONS):
            await asyncio.sleep(_pause(stream, attempt))
            had_events = stream.has_events
            try:
                response = await self._endpoint.get(
                    session.fields + b"Last-Event-ID: %b\r\n" % stream.last_id.encode(), session.secrets
                )
                try:
                    if not is_stream(response):
                        raise ConnectionLost(
                            f"{self._name}: its stream broke off, and cannot be resumed (status {response.status})"
                        )
                    answer = await stream.read(response, request_id, handle)
                finally:
                    response.close()
            except Unreachable as problem:
                _log.info("%s", problem)
                continue
            except ConnectionLost:
                if stream.has_events == had_events:
                    raise
                return None
            if answer is not None or stream.has_events > had_events:
                return answer
        raise ConnectionLost(f"{self._name}: its stream broke off before the response to {out.method}")

    async def _receive(
        self, message: ServerMessage, out: OutgoingRequest, request_id: int, questions: IncomingQuestions
    ) -> None:
        """Handle a message on the stream of a request before the response."""
        if message.method is None:
            warn_rarely(self._name, self._name, "sent a response to a request that was not made")
        elif message.id is not None:
            questions.start(message, out)
        elif message.method in CHANGE_KINDS:
            await self._receive_unsolicited(message)
        elif message.method == "notifications/cancelled":
            questions.drop(message.parameters().get("requestId", ""))
        else:
            await out.deliver(Notification(message.method, message.parameters()), request_id)

    # Messages outside of requests.

    async def _read_stream(self, session: ClientSession, opened: asyncio.Event) -> None:
        stream = EventStream(self._limits)
        failures = 0
        while failures < RESUMPTIONS:
            had_events = stream.has_events
            fields = session.fields
            if stream.last_id is not None:
                fields += b"Last-Event-ID: %b\r\n" % stream.last_id.encode()
            try:
                try:
                    response = await self._endpoint.get(fields, session.secrets)
                finally:
                    opened.set()
                try:
                    if is_stream(response):
                        await stream.read(response, None, self._receive_unsolicited)
                    elif response.status != 401:
                        # 405 means that the server does not offer such a stream, 404 that the session has ended.
                        return
                finally:
                    response.close()
            except ServerFault as problem:
                _log.debug("%s: %s", self._name, problem)
            failures = 0 if stream.has_events > had_events else failures + 1
            await asyncio.sleep(_pause(stream, failures))
        _log.info("%s: its stream of notifications stays closed", self._name)

    async def _receive_unsolicited(self, message: ServerMessage) -> None:
        if message.method is None:
            return
        if message.id is not None:
            self._legacy.questions.start(message, self._unattributed)
        elif message.method == "notifications/cancelled":
            self._legacy.questions.drop(message.parameters().get("requestId", ""))
        else:
            await self._legacy.deliver(Notification(message.method, message.parameters()))

    # Other messages.

    async def _ask_in_session(self, out: OutgoingRequest) -> Mapping[str, Json]:
        """Send a request in the current session; does not open a new one."""
        session = self._session
        if session is None:
            raise ConnectionLost(f"{self._name}: the session is closed")
        try:
            return await self._ask(out, session)
        except HttpRejection as rejection:
            raise rejection.explain(self._name) from None

    async def _send(self, message: bytes) -> None:
        session = self._session
        if session is not None:
            response = await self._endpoint.post(message, session.fields, session.secrets, urgent=True)
            response.close()

    async def _cancel(self, request_id: int, session: ClientSession) -> None:
        message = jsonrpc.notification("notifications/cancelled", cancellation(request_id))
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                response = await self._endpoint.post(message, session.fields, session.secrets, urgent=True)
                response.close()
        except (PegboardError, TimeoutError) as problem:
            _log.debug("%s: %s", self._name, problem)


def _pause(stream: EventStream, failures: int) -> float:
    """The seconds until the next attempt; the first one waits for the time that the server requested."""
    return backoff(failures + 1, max(stream.retry, 0.05), max(_MAX_RETRY_SECONDS, stream.retry))


def _is_over(rejection: HttpRejection, session: ClientSession) -> bool:
    if not session.secrets:
        return False
    # Some servers of these revisions return 400 where the specification requires 404.
    names_session = rejection.error is not None and "session" in rejection.error.message.lower()
    return rejection.status == 404 or (rejection.status == 400 and names_session)
