"""A server behind a URL: finds out which era and transport it is of, and asks again where that has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pegboard.call import NOBODY, Channel, Json
from pegboard.client.address import read_address
from pegboard.client.admission import Auth, Authorizer
from pegboard.client.duplex import Duplex
from pegboard.client.endpoint import Endpoint, Rejection
from pegboard.client.eras import forget, recall, remember
from pegboard.client.incoming import MODERN_CODES, refusal_of
from pegboard.client.legacy_http import LegacyHttp
from pegboard.client.link import Identity, Outbound
from pegboard.client.modern_http import ModernHttp
from pegboard.client.sse import SsePipe
from pegboard.client.web import CONNECTIONS, Web
from pegboard.errors import Garbled, NoAnswer, NotAdmitted, PegboardError, Refusal, ServerFault, UnsupportedVersion
from pegboard.protocol.versions import LEGACY, MODERN, NEWEST_LEGACY, SUPPORTED

_log = logging.getLogger("pegboard.client")

_DISCOVER = Outbound(method="server/discover", params={}, channel=NOBODY)
# What servers of the first transport answer to a POST, and what no busy or locked server does.
_NO_POST = frozenset({400, 404, 405})
_UNDECIDED = frozenset({401, 403, 407, 408, 429, 502, 503, 504})


class Talk(Protocol):
    """One way to speak with a server over HTTP."""

    @property
    def version(self) -> str: ...

    @property
    def mirrors(self) -> bool: ...

    @property
    def lost(self) -> bool:
        """Whether nothing can be asked this way any more."""

    async def request(self, out: Outbound) -> Mapping[str, Json]: ...

    async def close(self) -> None: ...


class HttpLink:
    """A link to a URL; `version` pins the revision, else the server is asked for the newest that both speak."""

    transport = "http"

    def __init__(
        self,
        url: str,
        identity: Identity,
        lobby: Channel,
        *,
        headers: Mapping[str, str] | None = None,
        version: str | None = None,
        ca: str | Path | None = None,
        connect_timeout: float = 10.0,
        connections: int = CONNECTIONS,
        auth: Auth | None = None,
    ) -> None:
        address = read_address(url)
        self.name = str(address)
        self._identity = identity
        self._lobby = lobby
        self._pinned = version
        self._timeout = connect_timeout
        self._web = Web(ca=ca, connections=connections, connect_timeout=connect_timeout)
        self.authorizer: Authorizer | None = None if auth is None else auth.authorizer(address, self._web)
        self._endpoint = Endpoint(self._web, address, headers or {}, self.authorizer)
        self._talk: Talk | None = None
        self._opening = asyncio.Lock()

    @property
    def version(self) -> str:
        return MODERN if self._talk is None else self._talk.version

    @property
    def mirrors(self) -> bool:
        return self._talk is not None and self._talk.mirrors

    @property
    def is_open(self) -> bool:
        return self._talk is not None and not self._talk.lost

    async def open(self) -> None:
        self._web.open()
        await self._talking()

    async def close(self) -> None:
        talk, self._talk = self._talk, None
        try:
            if talk is not None:
                await talk.close()
        finally:
            # Whoever is cancelled while it says goodbye leaves all the same.
            await self._web.close()

    async def request(self, out: Outbound) -> Mapping[str, Json]:
        talk = self._talk
        if talk is None or talk.lost:
            talk = await self._talking()
        try:
            return await talk.request(out)
        except UnsupportedVersion as refused:
            problem: PegboardError = refused
        except Rejection as rejection:
            problem = rejection.explain(self.name)
            if not isinstance(problem, UnsupportedVersion) and not _doubts(talk, rejection):
                raise problem from None
        renewed = await self._talking(instead_of=talk)
        if type(renewed) is type(talk) and not isinstance(problem, UnsupportedVersion):
            raise problem
        try:
            return await renewed.request(out)
        except Rejection as rejection:
            raise rejection.explain(self.name) from None

    async def _talking(self, instead_of: Talk | None = None) -> Talk:
        async with self._opening:
            if self._talk is not None and self._talk.lost:
                lost, self._talk = self._talk, None
                await lost.close()
            if self._talk is None:
                self._talk = await self._find()
            elif self._talk is instead_of:
                _log.info("%s: does not speak as it did; it is asked again how it does", self.name)
                forget(self.name)
                self._talk = await self._probe()
                await instead_of.close()
            return self._talk

    async def _find(self) -> Talk:
        if self._pinned is not None:
            return self._modern() if self._pinned == MODERN else await self._legacy(self._pinned)
        known = recall(self.name)
        if known == MODERN:
            return self._modern()
        if known is not None:
            try:
                return await self._legacy(known)
            except (Refusal, Garbled):
                forget(self.name)
        return await self._probe()

    async def _probe(self) -> Talk:
        """A modern request first; "anything else identifies a legacy server" (Backward Compatibility)."""
        if self._pinned is not None:
            return await self._find()
        modern = self._modern()
        for _ in range(2):
            versions = await self._discover(modern)
            if versions is None:
                break
            spoken = [version for version in SUPPORTED if version in versions]
            if not spoken:
                told = ", ".join(map(str, versions))[:200]
                raise Garbled(f"{self.name}: speaks {told or 'no revision'}; known are {', '.join(SUPPORTED)}")
            if spoken[0] != MODERN:
                return await self._legacy(spoken[0])
            remember(self.name, MODERN)
            return modern
        return await self._legacy(NEWEST_LEGACY)

    async def _discover(self, modern: ModernHttp) -> list[str] | None:
        """The versions that a modern server speaks; None for one that is not modern."""
        try:
            async with asyncio.timeout(self._timeout):
                told = await modern.request(_DISCOVER)
        except TimeoutError:
            return None
        except Rejection as rejection:
            if rejection.status in _UNDECIDED:
                raise rejection.explain(self.name) from None
            if rejection.error is None:
                return None
            refusal = refusal_of(rejection.error)
        except Refusal as answered:
            refusal = answered
        else:
            versions = told.get("supportedVersions")
            return versions if isinstance(versions, list) else None
        if isinstance(refusal, UnsupportedVersion):
            supported = refusal.data.get("supported") if isinstance(refusal.data, dict) else None
            return supported if isinstance(supported, list) else [MODERN]
        return [MODERN] if refusal.code in MODERN_CODES else None

    def _modern(self) -> ModernHttp:
        return ModernHttp(self._endpoint, self._identity, MODERN, self.name)

    async def _legacy(self, version: str) -> Talk:
        legacy = LegacyHttp(self._endpoint, self._identity, self._lobby, self.name, version)
        try:
            async with asyncio.timeout(self._timeout):
                await legacy.open()
        except TimeoutError:
            await legacy.close()
            raise NoAnswer(f"{self.name}: no answer to initialize within {self._timeout:g} s") from None
        except Rejection as rejection:
            if rejection.status in _NO_POST and (rejection.error is None or rejection.error.code not in MODERN_CODES):
                first = await self._first_transport(version)
                if first is not None:
                    return first
            raise rejection.explain(self.name) from None
        except BaseException:
            await legacy.close()
            raise
        remember(self.name, legacy.version)
        return legacy

    async def _first_transport(self, version: str) -> Talk | None:
        """HTTP+SSE of 2024-11-05: "issue a GET request to the server URL, expecting … an `endpoint` event"."""
        pipe = SsePipe(self._endpoint, self._web, self.name)
        duplex = Duplex(pipe, self._identity, self._lobby, version=version if version in LEGACY else NEWEST_LEGACY)
        try:
            async with asyncio.timeout(self._timeout):
                await duplex.open()
        except NotAdmitted:
            await duplex.close()
            raise
        except (ServerFault, Refusal, TimeoutError) as problem:
            _log.debug("%s: no HTTP+SSE either: %s", self.name, problem)
            await duplex.close()
            return None
        return duplex


def _doubts(talk: Talk, rejection: Rejection) -> bool:
    """Whether a server that answers so may have become one of the other era."""
    if rejection.status in _UNDECIDED:
        return False
    if talk.version == MODERN:
        # An error that names no request of ours was made by somebody who did not understand it.
        return rejection.error is None or not isinstance(rejection.request_id, int)
    return rejection.error is not None and rejection.error.code in MODERN_CODES
