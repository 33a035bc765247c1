"""A server behind a URL: detects its era and transport."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from pegboard.call import Channel, Json
from pegboard.client.http.address import read_address
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.links.era_cache import (
    choose_version,
    forget,
    probe,
    recall,
    remember,
    versions_in_answer,
    versions_in_refusal,
)
from pegboard.client.links.link import Authorizer, Identity, LinkOptions, OutgoingRequest
from pegboard.client.links.server_messages import MODERN_CODES, refusal_of
from pegboard.client.transports.http_endpoint import EndpointClient, HttpRejection
from pegboard.client.transports.modern_http import ModernHttp
from pegboard.client.transports.session_http import SessionHttp
from pegboard.client.transports.sse_pipe import SseLink
from pegboard.errors import (
    MalformedMessage,
    PegboardError,
    Refusal,
    ResponseTimeout,
    ServerFault,
    Unauthorized,
    UnsupportedVersion,
)
from pegboard.logs.log_lines import ServerName
from pegboard.protocol.revisions import MODERN, NEWEST_LEGACY, REVISIONS

_log = logging.getLogger("pegboard.client")

# What servers of the first transport return for a POST, and what busy or protected servers do not.
_NO_POST = frozenset({400, 404, 405})
_UNDECIDED = frozenset({401, 403, 407, 408, 429, 502, 503, 504})


EraTransport: TypeAlias = ModernHttp | SessionHttp | SseLink
"""One HTTP transport to a server."""


class HttpLink:
    """A link to a URL; `version` pins the revision, otherwise the newest common one is negotiated."""

    transport = "http"

    def __init__(
        self,
        url: str,
        identity: Identity,
        unattributed: Channel,
        options: LinkOptions,
    ) -> None:
        address = read_address(url)
        self.name = ServerName(str(address), options.server)
        self._identity = identity
        self._unattributed = unattributed
        self._options = options
        self._pinned = options.version
        self._timeout = options.connect_timeout
        self._pool = HttpPool(ca=options.ca, connections=options.connections, connect_timeout=self._timeout)
        auth = options.auth
        self.authorizer: Authorizer | None = None if auth is None else auth.authorizer(address, self._pool)
        self._endpoint = EndpointClient(self._pool, address, options.headers or {}, self.authorizer)
        self._era_transport: EraTransport | None = None
        self._opening = asyncio.Lock()

    @property
    def version(self) -> str:
        return MODERN if self._era_transport is None else self._era_transport.version

    @property
    def mirrors(self) -> bool:
        return self._era_transport is not None and self._era_transport.mirrors

    @property
    def is_open(self) -> bool:
        return self._era_transport is not None and self._era_transport.is_open

    async def open(self) -> None:
        self._pool.open()
        await self._ready_transport()

    async def close(self) -> None:
        era_transport, self._era_transport = self._era_transport, None
        try:
            if era_transport is not None:
                await era_transport.close()
        finally:
            # Also if it is cancelled while the session is being ended.
            await self._pool.close()

    def request(self, out: OutgoingRequest) -> Coroutine[Any, Any, Mapping[str, Json]]:
        era_transport = self._era_transport
        if type(era_transport) is ModernHttp or type(era_transport) is SessionHttp:
            return era_transport.request(out, self._request_again)
        return self._request(out)

    async def _request(self, out: OutgoingRequest) -> Mapping[str, Json]:
        era_transport = self._era_transport
        if era_transport is None or not era_transport.is_open:
            era_transport = await self._ready_transport()
        try:
            return await era_transport.request(out)
        except (UnsupportedVersion, HttpRejection) as problem:
            return await self._request_again(out, era_transport, problem)

    async def _request_again(
        self, out: OutgoingRequest, rejected_by: EraTransport, rejection: UnsupportedVersion | HttpRejection
    ) -> Mapping[str, Json]:
        """Repeat a rejected request in the other era, if the server may have changed it."""
        problem: PegboardError = rejection.explain(self.name) if isinstance(rejection, HttpRejection) else rejection
        if (
            isinstance(rejection, HttpRejection)
            and not isinstance(problem, UnsupportedVersion)
            and not _may_have_changed_era(rejected_by, rejection)
        ):
            raise problem from None
        renewed = await self._ready_transport(instead_of=rejected_by)
        if type(renewed) is type(rejected_by) and not isinstance(problem, UnsupportedVersion):
            raise problem
        try:
            return await renewed.request(out)
        except HttpRejection as again:
            raise again.explain(self.name) from None

    async def _ready_transport(self, instead_of: EraTransport | None = None) -> EraTransport:
        async with self._opening:
            if self._era_transport is not None and not self._era_transport.is_open:
                lost, self._era_transport = self._era_transport, None
                await lost.close()
            if self._era_transport is None:
                self._era_transport = await self._detect()
            elif self._era_transport is instead_of:
                _log.info("%s: the protocol revision has changed; detecting it again", self.name)
                forget(self.name)
                self._era_transport = await self._probe()
                await instead_of.close()
            return self._era_transport

    async def _detect(self) -> EraTransport:
        if self._pinned is not None:
            return await self._legacy(self._pinned) if REVISIONS[self._pinned].has_sessions else self._modern()
        known = recall(self.name)
        if known is not None:
            if not REVISIONS[known].has_sessions:
                return self._modern()
            try:
                return await self._legacy(known)
            except (Refusal, MalformedMessage):
                forget(self.name)
        return await self._probe()

    async def _probe(self) -> EraTransport:
        """A modern request first; "anything else identifies a legacy server" (Backward Compatibility)."""
        if self._pinned is not None:
            return await self._detect()
        modern = self._modern()
        versions = await self._discover(modern)
        version = NEWEST_LEGACY if versions is None else choose_version(versions, self.name)
        if REVISIONS[version].has_sessions:
            return await self._legacy(version)
        remember(self.name, MODERN)
        return modern

    async def _discover(self, modern: ModernHttp) -> Sequence[str] | None:
        """The revisions that a modern server supports; None for a legacy server."""
        try:
            async with asyncio.timeout(self._timeout):
                return await versions_in_answer(modern.request(probe()))
        except TimeoutError:
            return None
        except HttpRejection as rejection:
            if rejection.status in _UNDECIDED:
                raise rejection.explain(self.name) from None
            return None if rejection.error is None else versions_in_refusal(refusal_of(rejection.error))

    def _modern(self) -> ModernHttp:
        return ModernHttp(self._endpoint, self._identity, MODERN, self.name)

    async def _legacy(self, version: str) -> EraTransport:
        legacy = SessionHttp(self._endpoint, self._identity, self._unattributed, self.name, version, self._timeout)
        try:
            async with asyncio.timeout(self._timeout):
                await legacy.open()
        except TimeoutError:
            await legacy.close()
            raise ResponseTimeout(f"{self.name}: no response to initialize within {self._timeout:g} s") from None
        except HttpRejection as rejection:
            if rejection.status in _NO_POST and (rejection.error is None or rejection.error.code not in MODERN_CODES):
                first = await self._http_sse(version)
                if first is not None:
                    return first
            raise rejection.explain(self.name) from None
        except BaseException:
            await legacy.close()
            raise
        remember(self.name, legacy.version)
        return legacy

    async def _http_sse(self, version: str) -> EraTransport | None:
        """HTTP+SSE of 2024-11-05: "issue a GET request to the server URL, expecting … an `endpoint` event"."""
        options = replace(self._options, version=version)
        duplex = SseLink(self._endpoint, self._pool, self.name, self._identity, self._unattributed, options)
        try:
            async with asyncio.timeout(self._timeout):
                await duplex.open()
        except Unauthorized:
            await duplex.close()
            raise
        except (ServerFault, Refusal, TimeoutError) as problem:
            _log.debug("%s: does not support HTTP+SSE either: %s", self.name, problem)
            await duplex.close()
            return None
        return duplex


def _may_have_changed_era(era_transport: EraTransport, rejection: HttpRejection) -> bool:
    """Whether this rejection may mean that the server now speaks the other era."""
    if rejection.status in _UNDECIDED:
        return False
    if not REVISIONS[era_transport.version].has_sessions:
        # An error without the id of our request comes from a server that did not understand it.
        return rejection.error is None or not isinstance(rejection.request_id, int)
    return rejection.error is not None and rejection.error.code in MODERN_CODES
