"""The connections of users to servers: who is connected to what, and how a user connects and disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from pegboard.auth.principal import Principal
from pegboard.client.http.address import read_address
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.links.link import ClientAuth
from pegboard.client.login.authentication import Credentials
from pegboard.client.login.browser import NoBrowser
from pegboard.client.login.detached_login import DetachedLogin
from pegboard.client.login.oauth import OAuth
from pegboard.client.login.storage import MemoryStorage, Storage
from pegboard.config.config_keys import AuthConfig
from pegboard.config.gateway_config import ServerConfig
from pegboard.errors import Busy, InvalidParams, LoginFailed, StoreDown
from pegboard.gateway.connections.connect_links import BegunLogin, ConnectLink, ConnectLinks
from pegboard.gateway.connections.header_credential import VALUE, HeaderCredential
from pegboard.gateway.connections.vault import FEED, CredentialOwner, Vault, owner_of
from pegboard.logs.audit_sink import NO_AUDIT, AuditSink, Decision
from pegboard.rules.rule import Rule
from pegboard.rules.verdicts import Rules
from pegboard.stores.store import digest, wait_for_hint

_log = logging.getLogger("pegboard.gateway")

CHECK_SECONDS: Final = 5.0
"""How long after a removal a process may still use the credentials, if its hint was lost."""
_PAGE: Final = 100

Server: TypeAlias = tuple[str, str]
"""A toolbox, and a server in it."""

_decode_owner = msgspec.msgpack.Decoder(CredentialOwner).decode


class ConnectionStatus(Struct, frozen=True):
    """A server that each user connects themselves, as one user sees it.

    kind: `oauth` (the user logs in) or `header` (the user enters a key).
    since: when the user connected, in seconds since the epoch; None if they have not.
    """

    toolbox: str
    server: str
    kind: str
    since: float | None = None

    @property
    def connected(self) -> bool:
        return self.since is not None


def server_id(url: str) -> str:
    """What stands for the server with this URL in the vault: without user and query, which may contain secrets."""
    parts = urlsplit(url)
    mark = f"?{digest(parts.query)[:8]}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{mark}"


class UserConnections:
    """The connections that the users of one gateway have made, and the logins that make them.

    `changed` is called with each owner that was connected or removed, in whichever process, and with None if any may have
    been; `find_audit` returns where both are recorded.
    """

    def __init__(
        self,
        gateway: str,
        vault: Vault,
        changed: Callable[[CredentialOwner | None], None],
        find_audit: Callable[[], AuditSink] = lambda: NO_AUDIT,
    ) -> None:
        self._find_audit = find_audit
        self.vault = vault
        self.links = ConnectLinks(vault)
        self._gateway = gateway
        self._changed = changed
        self._servers: Mapping[Server, ServerConfig] = {}
        self._rules = Rules()
        self._pool = HttpPool()
        self._watching: asyncio.Task[None] | None = None

    def configure(self, servers: Mapping[Server, ServerConfig], rules: Sequence[Rule] = ()) -> None:
        """The servers that each user connects themselves, and who may see which of them."""
        self._servers = servers
        self._rules = Rules(rules, located=True)

    async def start(self) -> None:
        """Check the key of the vault, and follow its changes."""
        await self.vault.check()
        last = (await self.vault.feeds.read(FEED, 0, 1)).last
        self._watching = asyncio.create_task(self._watch(last))

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._pool.close()

    # -- what one user has ---------------------------------------------------------------------------------------------

    async def of(self, principal: Principal) -> list[ConnectionStatus]:
        """The servers that this user may see and can connect, in the order of the configuration."""
        kept = await self.vault.of(principal.id, principal.issuer)
        since = {entry.owner.server: entry.since for entry in kept}
        return [
            ConnectionStatus(toolbox, name, _settings(config).kind, since.get(server_id(config.url)))
            for (toolbox, name), config in self._servers.items()
            if self._may_see(principal, toolbox, name)
        ]

    async def start_login(self, principal: Principal, toolbox: str, server: str, challenge: str = "") -> ConnectLink:
        """A link for this user to the page where they connect the server."""
        config = self._config(toolbox, server)
        if not self._may_see(principal, toolbox, server):
            raise _unknown(toolbox, server)
        return await self.links.make(owner_of(principal, server_id(config.url)), toolbox, server, challenge)

    async def remove(self, principal: Principal, toolbox: str, server: str) -> str:
        """Delete what this user has for a server, and revoke its token; returns a sentence for people."""
        config = self._config(toolbox, server)
        owner = owner_of(principal, server_id(config.url))
        return await self.remove_owner(owner, config, by=principal.id, transport="http")

    async def remove_owner(
        self, owner: CredentialOwner, config: ServerConfig | None, *, by: str, transport: str
    ) -> str:
        """Delete credentials, and revoke the token if the server is still configured; `by` is who wants that."""
        values = await self.vault.read(owner)
        if values is not None:
            await self._record("connections.remove", owner, by, transport)
        if not await self.vault.remove(owner):
            return "there was no connection"
        if config is None or values is None or VALUE in values:
            return "removed"
        revoked = await self._login(config, await _filled(values)).revoke()
        return f"removed; {revoked}"

    def find_config(self, owner: CredentialOwner) -> tuple[Server, ServerConfig] | None:
        """The server that credentials are for, if the configuration has it."""
        return next(
            ((key, config) for key, config in self._servers.items() if server_id(config.url) == owner.server), None
        )

    # -- credentials for requests ----------------------------------------------------------------------------------------

    def credentials(self, config: ServerConfig, principal: str, issuer: str) -> ClientAuth:
        """How the gateway proves to a server that it acts for this user."""
        storage = self.vault.storage(CredentialOwner(principal, issuer, server_id(config.url)))
        settings = _settings(config)
        message = f"The user has to connect the server {config.name!r}"
        if settings.kind == "header":
            return HeaderCredential(settings.header, settings.scheme, storage, message)
        return OAuth(
            login=NoBrowser(message),
            storage=storage,
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            client_metadata_url=settings.client_metadata_url,
            issuer=settings.issuer,
            scopes=settings.scopes,
        )

    # -- the login of a user -------------------------------------------------------------------------------------------

    def takes_key(self, link: ConnectLink) -> bool:
        """Whether the user enters a key, rather than log in elsewhere."""
        return _settings(self.config_of(link)).kind == "header"

    def config_of(self, link: ConnectLink) -> ServerConfig:
        """The server of a link; LoginFailed if it was removed or changed since the link was made."""
        config = self._servers.get((link.toolbox, link.server))
        if config is None or server_id(config.url) != link.owner.server:
            raise LoginFailed("The server was changed in the configuration since this link was made; start again")
        return config

    async def begin(self, link: ConnectLink, base: str) -> str:
        """Begin the login of a link: the URL of the page at the authorization server."""
        config = self.config_of(link)
        if not await self.links.use(link):
            raise LoginFailed("This link was already used; start again")
        storage = await _filled((await self.vault.read(link.owner)) or {})
        url, pending = await self._login(config, storage).begin(
            link.challenge, f"{base}/connect/{link.server}/callback"
        )
        await self.links.begin(BegunLogin(link, pending, storage.values))
        return url

    async def finish(self, login: BegunLogin, callback: str) -> None:
        """Store the credentials that the redirect of an authorization server brings."""
        config = self.config_of(login.link)
        if not await self.links.use_login(login):
            raise LoginFailed("This login was already finished; start again")
        storage = await _filled(login.values)
        await self._login(config, storage).finish(login.link.challenge, login.pending, callback)
        await self._store(login.link, storage.values)

    async def enter(self, link: ConnectLink, value: str) -> None:
        """Store the key that a user has entered."""
        self.config_of(link)
        if not await self.links.use(link):
            raise LoginFailed("This link was already used; start again")
        await self._store(link, {VALUE: value.encode()})

    async def _store(self, link: ConnectLink, values: Mapping[str, bytes]) -> None:
        await self._record("connections.add", link.owner, link.owner.principal, "http")
        await self.vault.connect(link.owner, values)
        await self.links.complete(link)
        _log.info("%s/%s: the user %r has connected it", link.toolbox, link.server, link.owner.principal)

    async def _record(self, action: str, owner: CredentialOwner, by: str, transport: str) -> None:
        details = {"of": owner.principal, "issuer": owner.issuer}
        await self._find_audit().record(
            Decision(action, principal=by, name=owner.server, transport=transport, details=details)
        )

    def _login(self, config: ServerConfig, storage: Storage) -> DetachedLogin:
        settings = _settings(config)
        known = None if settings.client_id is None else Credentials(settings.client_id, settings.client_secret)
        return DetachedLogin(
            read_address(config.url),
            self._pool,
            storage,
            name=self._gateway,
            credentials=known,
            document_url=settings.client_metadata_url,
            issuer=settings.issuer,
            scopes=settings.scopes,
        )

    def _config(self, toolbox: str, server: str) -> ServerConfig:
        config = self._servers.get((toolbox, server))
        if config is None:
            raise _unknown(toolbox, server)
        return config

    def _may_see(self, principal: Principal, toolbox: str, server: str) -> bool:
        return not len(self._rules) or self._rules.view(principal).may_see(toolbox, server)

    # -- changes -------------------------------------------------------------------------------------------------------

    async def _watch(self, last: int) -> None:
        """Report the changes that any process makes, after a hint or after a while."""
        hint = asyncio.Event()
        stop = self.vault.feeds.watch(FEED, hint.set)
        try:
            while True:
                await wait_for_hint(hint, CHECK_SECONDS)
                with contextlib.suppress(StoreDown, Busy):
                    last = await self._report(last)
        finally:
            stop()

    async def _report(self, last: int) -> int:
        while True:
            page = await self.vault.feeds.read(FEED, last, _PAGE)
            if page.lost:
                self._changed(None)
            for entry in page.entries:
                self._changed(_decode_owner(entry.data))
            last = page.entries[-1].seq if page.entries else page.last
            if not page.more:
                return last


class _FilledStorage(MemoryStorage):
    """What a login has stored so far, until it is finished."""

    @property
    def values(self) -> dict[str, bytes]:
        return dict(self._values)


async def _filled(values: Mapping[str, bytes]) -> _FilledStorage:
    storage = _FilledStorage()
    for key, value in values.items():
        await storage.save(key, value)
    return storage


def _unknown(toolbox: str, server: str) -> InvalidParams:
    return InvalidParams(f"There is no server {toolbox}/{server} that users connect themselves")


def _settings(config: ServerConfig) -> AuthConfig:
    return config.auth or AuthConfig()
