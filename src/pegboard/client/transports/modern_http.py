"""Streamable HTTP of revision 2026-07-28."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pegboard.call import Json, Notification
from pegboard.client.http.http_connection import Response
from pegboard.client.links.link import Identity, OutgoingRequest, RequestMetadata, request_ids, with_server_name
from pegboard.client.links.server_messages import ServerMessage, result_of
from pegboard.client.links.server_output import warn_rarely
from pegboard.client.transports.http_endpoint import (
    EndpointClient,
    EventStream,
    HttpRejection,
    Reject,
    read_answer,
    read_whole,
)
from pegboard.client.transports.mirrored_headers import mirror
from pegboard.errors import ConnectionLost, MethodNotFound, ServerFault, UnsupportedVersion
from pegboard.protocol.headers import encode_value
from pegboard.protocol.revisions import NAMED


class ModernHttp:
    """Sends requests to one endpoint, without state between them."""

    mirrors = True
    is_open = True

    def __init__(self, endpoint: EndpointClient, identity: Identity, version: str, name: str) -> None:
        self.version = version
        self._endpoint = endpoint
        self._limits = identity.limits
        self._metadata = RequestMetadata(identity, version)
        self._name = name
        self._ids = request_ids()

    async def request(self, out: OutgoingRequest, reject: Reject | None = None) -> Mapping[str, Json]:
        """Send a request; `reject` handles the rejection of its revision or of HTTP, which is raised without it."""
        request_id = next(self._ids)
        body = self._metadata.write(out, request_id)
        try:
            # A listening request stays open, so it does not count towards the limit of connections.
            listens = out.method == "subscriptions/listen"
            response = await self._endpoint.post(body, self._fields(out), urgent=listens)
            answer = read_whole(response, request_id, self._limits, out.read)
            if answer is None:
                answer = await self._read(response, request_id, out)
            return result_of(answer, out.read)
        except ServerFault as fault:
            raise with_server_name(fault, self._name) from None
        except (UnsupportedVersion, HttpRejection) as problem:
            if reject is None:
                raise
            return await reject(out, self, problem)

    async def _read(self, response: Response, request_id: int, out: OutgoingRequest) -> ServerMessage:
        """The response to a request, after the notifications that come before it."""

        async def handle(message: ServerMessage) -> None:
            if message.method is None or message.id is not None:
                # "Servers MUST NOT initiate JSON-RPC requests, and clients do not send JSON-RPC responses"
                sent = f": {(message.method or 'a response')[:80]}"
                warn_rarely(self._name, self._name, "sent a message of another kind on the stream of a request", sent)
                return
            await out.deliver(Notification(message.method, message.parameters()), request_id)

        try:
            answer = await read_answer(response, request_id, handle, EventStream(self._limits, out.read))
        finally:
            response.close()
        if answer is None:
            raise ConnectionLost(f"ended its stream without an MCP response to {out.method}")
        return answer

    def _fields(self, out: OutgoingRequest) -> bytes:
        member = NAMED.get(out.method)
        fields = _lines(self.version, out.method, None if member is None else out.params.get(member, ""))
        return fields + mirror(out.mirrors, out.params.get("arguments")) if out.mirrors else fields

    async def close(self) -> None:
        """Nothing to close."""


@lru_cache(maxsize=1024)
def _lines(version: str, method: str, about: str | None) -> bytes:
    """The header lines that repeat the subject of a request."""
    if not method.isascii() or not method.isprintable():
        # The name is written into a header as it is: a line break in it would start another header.
        raise MethodNotFound(f"There is no method {method[:80]!r}")
    lines = f"MCP-Protocol-Version: {version}\r\nMcp-Method: {method}\r\n".encode()
    return lines if about is None else lines + b"Mcp-Name: %b\r\n" % encode_value(about)
