"""Requests to servers that act for their callers: with the user's own credentials, or with the caller's token."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from pegboard.auth.principal import Principal
from pegboard.client.links.link import ClientAuth
from pegboard.config.gateway_config import GatewayConfig, ServerConfig
from pegboard.errors import SetupError
from pegboard.gateway.connections.connect_pages import PATH, ConnectPages
from pegboard.gateway.connections.user_connections import UserConnections, server_id
from pegboard.gateway.connections.vault import NEEDS_EXTRA, CredentialOwner, Vault, can_encrypt, vault_key_missing
from pegboard.gateway.forwarding.forwarder import Forwarder
from pegboard.gateway.servers.caller_key import CallerKey
from pegboard.gateway.servers.downstream import Downstream
from pegboard.gateway.servers.server_logins import Logins, exchange_login
from pegboard.security.seal import read_keys
from pegboard.server.hosting import Hosted
from pegboard.stores.cluster import SharedStore
from pegboard.stores.memory import MemoryStore

_log = logging.getLogger("pegboard.gateway")


class UserAccess:
    """How one gateway acts for its callers; `connections` is None until a server needs it."""

    def __init__(
        self,
        gateway: Hosted,
        logins: Logins,
        forwarder: Forwarder,
        find_servers: Callable[[], Iterable[Downstream]],
        secret: str,
    ) -> None:
        self._gateway = gateway
        self._logins = logins
        self._forwarder = forwarder
        self._find_servers = find_servers
        self._secret = secret
        self._vault_key = ""
        self.connections: UserConnections | None = None

    def check(self, config: GatewayConfig) -> None:
        """Raise SetupError where requests should act for their caller, and that is not possible."""
        auth = self._gateway.auth
        personal = [
            (f"{config.path or 'the configuration'}: {toolbox.name}/{server.name}", server)
            for toolbox in config.toolboxes.values()
            for server in toolbox.servers.values()
            if server.is_personal and server.enabled
        ]
        for where, server in personal:
            if auth is None:
                raise SetupError(
                    f"{where}: its requests act for their caller, and callers are not authenticated; add 'auth' to the "
                    'configuration, such as {"keys": true}'
                )
            if server.of_each_user and not (config.vault_key or self._secret):
                raise vault_key_missing(where)
            if server.of_each_user and not can_encrypt():
                raise SetupError(f"{where}: {NEEDS_EXTRA}")
            if server.of_each_user and not auth.has_sign_in:
                _log.warning(
                    "%s: users cannot sign in to connect it; add 'signIn' to an issuer of 'auth', accept API keys "
                    "('keys'), or name a 'proxy' that authenticates them",
                    where,
                )
        if auth is not None:
            auth.keeps_tokens = any(server.exchanges for _, server in personal)
        if any(server.of_each_user for _, server in personal):
            # Before the start, so that sign-ins are shared with other processes.
            _ = self._gateway.sign_in

    async def start(self, config: GatewayConfig, shared: SharedStore | None) -> None:
        """Open the vault for the first server that users connect themselves; it stays open."""
        servers = {
            (toolbox.name, server.name): server
            for toolbox in config.toolboxes.values()
            for server in toolbox.servers.values()
            if server.of_each_user and server.enabled
        }
        if servers and self.connections is None:
            self.connections = await self._open(config, shared)
        elif self.connections is not None and config.vault_key != self._vault_key:
            _log.warning("%s: restart the gateway to use another vault.key", config.path)
        if self.connections is not None:
            self.connections.configure(servers, config.rules)

    async def _open(self, config: GatewayConfig, shared: SharedStore | None) -> UserConnections:
        gateway = self._gateway
        store = MemoryStore() if shared is None else shared.store
        vault = Vault(store, read_keys(config.vault_key or self._secret))
        connections = UserConnections(config.name, vault, self._credentials_changed, lambda: gateway.audit)
        await connections.start()
        self._vault_key = config.vault_key
        gateway.routes[PATH] = ConnectPages(config.name, gateway.auth, gateway.sign_in, connections).accept
        self._forwarder.connect_users(connections, lambda: gateway.pages_url)
        return connections

    async def stop(self) -> None:
        connections, self.connections = self.connections, None
        if connections is not None:
            await connections.stop()

    def log_in(self, config: ServerConfig, caller: CallerKey | None) -> ClientAuth | None:
        """How to log in to a server, for one caller or for the gateway itself."""
        if caller is not None and config.auth is not None:
            if config.of_each_user and self.connections is not None:
                return self.connections.credentials(config, caller.principal, caller.issuer)
            if config.exchanges:
                return exchange_login(config.auth, caller.token)
        return self._logins.auth(config, "" if caller is None else caller.principal)

    def _credentials_changed(self, owner: CredentialOwner | None) -> None:
        """A user has connected or disconnected a server, here or elsewhere; None if any user may have."""
        for downstream in self._find_servers():
            if not downstream.config.of_each_user:
                continue
            if owner is None:
                downstream.drop_callers()
            elif server_id(downstream.config.url) == owner.server:
                downstream.drop_callers(Principal(owner.principal, issuer=owner.issuer))
