"""`OAuth`, the value of `auth=`: how a client gets its tokens."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from pegboard.client.http.address import Address
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.login.authentication import Credentials
from pegboard.client.login.authorizer import TokenAuthorizer
from pegboard.client.login.browser import BrowserLogin, Login
from pegboard.client.login.grants import JWT_BEARER, ClientGrant, CodeGrant, Grant
from pegboard.client.login.login_http import LoginClient
from pegboard.client.login.registration import check_document_url
from pegboard.client.login.storage import MemoryStorage, Storage
from pegboard.errors import SetupError


class GrantLogin(ABC):
    """A login whose tokens come from one grant; the subclass says from which."""

    def __init__(self, issuer: str | None, scopes: Sequence[str], storage: Storage | None) -> None:
        if isinstance(scopes, str):
            raise SetupError(f"scopes must be a list, for example {scopes.split()!r}")
        self._issuer = issuer
        self._scopes = list(scopes)
        self._storage: Storage = storage or MemoryStorage()

    def authorizer(self, server: Address, pool: HttpPool) -> TokenAuthorizer:
        """Return what holds the token for one server; the client calls this."""
        client = LoginClient(pool, server)
        grant = self._make_grant(client, pool)
        return TokenAuthorizer(server, grant, self._storage, client, scopes=self._scopes, issuer=self._issuer)

    @abstractmethod
    def _make_grant(self, client: LoginClient, pool: HttpPool) -> Grant:
        """The grant for the server of this client."""


class OAuth(GrantLogin):
    """Login by a person in a browser, once; afterwards the token is refreshed as long as possible.

    login: how the person logs in; without it, `BrowserLogin()`.
    storage: where tokens are stored; without it, in memory.
    client_id: the id of a client that is already registered.
    client_secret: its secret.
    client_metadata_url: the URL of a client metadata document, for servers that support it.
    client_name: the name under which an unregistered client registers itself.
    issuer: the only authorization server that may get the credentials.
    scopes: scopes to request besides those that the server asks for.
    """

    def __init__(
        self,
        *,
        login: Login | None = None,
        storage: Storage | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "Pegboard",
        issuer: str | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        if client_secret is not None and client_id is None:
            raise SetupError("client_secret needs a client_id")
        super().__init__(issuer, scopes, storage)
        self._login: Login = login or BrowserLogin()
        self._credentials = None if client_id is None else Credentials(client_id, client_secret)
        self._document_url = None if client_metadata_url is None else check_document_url(client_metadata_url)
        self._name = client_name

    def _make_grant(self, client: LoginClient, pool: HttpPool) -> Grant:
        return CodeGrant(client, self._storage, self._login, self._name, self._credentials, self._document_url)


class ClientCredentials(GrantLogin):
    """Login of the client itself, without a person: with a secret or a private key.

    client_id: the id of the client.
    client_secret: its secret.
    private_key: its private key in PEM, as text or as the path of a file; needs the `auth` extra.
    algorithm: the signature algorithm of the key.
    issuer: the only authorization server that may get the credentials.
    scopes: scopes to request besides those that the server asks for.
    storage: where tokens are stored; without it, in memory.
    """

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        *,
        private_key: str | Path | None = None,
        algorithm: str = "ES256",
        issuer: str | None = None,
        scopes: Sequence[str] = (),
        storage: Storage | None = None,
    ) -> None:
        if (client_secret is None) == (private_key is None):
            raise SetupError(f"The client {client_id} needs either a client_secret or a private_key")
        super().__init__(issuer, scopes, storage)
        self._credentials = Credentials(
            client_id, client_secret, private_key=read_key(private_key), algorithm=algorithm
        )

    def _make_grant(self, client: LoginClient, pool: HttpPool) -> Grant:
        return ClientGrant("client", client, self._credentials, [("grant_type", "client_credentials")])


class Assertion(GrantLogin):
    """Login with an assertion of a third party, such as an identity provider or the platform of a workload.

    client_id: the id of the client.
    vouch: a JWT, or a function of the issuer and the resource that returns one.
    client_secret: the secret of the client, if it has one.
    issuer: the only authorization server that may get the credentials.
    scopes: scopes to request besides those that the server asks for.
    storage: where tokens are stored; without it, in memory.
    """

    def __init__(
        self,
        client_id: str,
        vouch: str | Callable[[str, str], str | Awaitable[str]],
        *,
        client_secret: str | None = None,
        issuer: str | None = None,
        scopes: Sequence[str] = (),
        storage: Storage | None = None,
    ) -> None:
        super().__init__(issuer, scopes, storage)
        self._credentials = Credentials(client_id, client_secret)
        self._told = vouch

    def _make_grant(self, client: LoginClient, pool: HttpPool) -> Grant:
        return ClientGrant("assertion", client, self._credentials, [("grant_type", JWT_BEARER)], self._vouch)

    async def _vouch(self, issuer: str, resource: str) -> str:
        if isinstance(self._told, str):
            return self._told
        made = self._told(issuer, resource)
        return await made if inspect.isawaitable(made) else made


def read_key(key: str | Path | None) -> str | None:
    """A private key in PEM, given as text or as the path of a file."""
    if key is None or (isinstance(key, str) and key.lstrip().startswith("-----")):
        return key if isinstance(key, str) else None
    try:
        return Path(key).read_text("utf-8")
    except (OSError, ValueError):
        raise SetupError("private_key is neither a PEM nor a file with one") from None
