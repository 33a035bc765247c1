"""The HTTP+SSE transport of revision 2024-11-05."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pegboard.background_tasks import OwnedTasks, end_tasks
from pegboard.call import Channel
from pegboard.client.http.address import Address
from pegboard.client.http.http_connection import Response
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.links.duplex_link import DuplexLink
from pegboard.client.links.link import Identity, LinkOptions
from pegboard.client.transports.http_endpoint import EndpointClient, is_stream, read_rejection
from pegboard.errors import ConnectionLost, MalformedMessage, PegboardError, ServerFault, Unreachable
from pegboard.limits import Limits
from pegboard.protocol.framing.sse import EventReader

_log = logging.getLogger("pegboard.client")


class SsePipe:
    """A pipe in two parts: one task reads the stream, and each message is a POST of its own."""

    transport = "sse"

    def __init__(self, endpoint: EndpointClient, pool: HttpPool, name: str, limits: Limits) -> None:
        self._limits = limits
        self.name = name
        self._endpoint = endpoint
        self._pool = pool
        self._post_address: EndpointClient | None = None
        self._found: asyncio.Future[Address] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._posts = OwnedTasks()
        self._lost: Callable[[ServerFault], None] | None = None

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[ServerFault], None]) -> None:
        self._lost = lost
        response = await self._endpoint.get()
        if response.status in (401, 403):
            await self._check_response(response)
        if not is_stream(response):
            response.close()
            raise MalformedMessage(f"{self.name}: answered {response.status} to GET without an event stream")
        self._found = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(response, receive))
        self._post_address = self._endpoint.at(await self._found, response.zone)

    async def send(self, message: bytes) -> None:
        if self._post_address is None:
            raise ConnectionLost(f"{self.name}: is not open")
        response = await self._post_address.post(message, urgent=True)
        if response.status == 404:
            response.close()
            # The server restarted and we have not seen the end of our stream yet: the message was not processed.
            self._report_lost(ConnectionLost(f"{self.name}: does not know our stream any more"))
            raise Unreachable(f"{self.name}: does not know our stream any more")
        await self._check_response(response)

    def send_now(self, message: bytes) -> None:
        self._posts.start(self._try_to_send(message))

    async def close(self) -> None:
        await end_tasks(*self._posts, self._reader)

    async def _check_response(self, response: Response) -> None:
        try:
            if not response.is_success:
                raise (await read_rejection(response, self._limits)).explain(self.name)
        finally:
            response.close()

    async def _try_to_send(self, message: bytes) -> None:
        try:
            await self.send(message)
        except PegboardError as problem:
            _log.debug("%s: %s", self.name, problem)

    async def _read(self, response: Response, receive: Callable[[bytes], None]) -> None:
        reader = EventReader(self._limits.server_message_bytes)
        fault: ServerFault = ConnectionLost(f"{self.name}: ended its stream")
        try:
            while chunk := await response.read():
                for event in reader.feed(chunk):
                    if event.name == "endpoint":
                        self._set_endpoint(event.data)
                    elif event.data:
                        receive(event.data.encode())
        except ServerFault as problem:
            fault = problem
        except ValueError as problem:
            fault = MalformedMessage(f"{self.name}: {problem}")
        finally:
            response.close()
        if self._found is not None and not self._found.done():
            self._found.set_exception(fault)
        self._report_lost(fault)

    def _report_lost(self, fault: ServerFault) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            lost(fault)

    def _set_endpoint(self, reference: str) -> None:
        if self._found is None or self._found.done():
            return
        try:
            address = self._endpoint.address.join(reference)
        except PegboardError:
            raise MalformedMessage(f"{self.name}: sent an invalid address for messages, {reference[:200]!r}") from None
        if address.origin != self._endpoint.address.origin:
            # Messages to this address carry the credentials for this server.
            raise MalformedMessage(f"{self.name}: the address for messages has another origin, {address}")
        self._found.set_result(address)


class SseLink(DuplexLink):
    """A link to a server that uses HTTP+SSE."""

    def __init__(
        self,
        endpoint: EndpointClient,
        pool: HttpPool,
        name: str,
        identity: Identity,
        unattributed: Channel,
        options: LinkOptions,
    ) -> None:
        super().__init__(name, "sse", identity, unattributed, options)
        self._endpoint = endpoint
        self._pool = pool

    async def _connect(self, again: bool, version: str | None) -> None:
        await self._speak(SsePipe(self._endpoint, self._pool, self.name, self._identity.limits), version)
