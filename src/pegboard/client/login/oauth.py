"""`OAuth`, the value of `auth=`: how a client gets its tokens."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from pegboard.client.http.address import Address
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.login.authentication import Credentials
from pegboard.client.login.authorizer import TokenAuthorizer
from pegboard.client.login.browser import BrowserLogin, Login
from pegboard.client.login.grants import AssertionGrant, CodeGrant, CredentialsGrant
from pegboard.client.login.login_http import LoginClient
from pegboard.client.login.registration import check_document_url
from pegboard.client.login.storage import MemoryStorage, Storage
from pegboard.errors import SetupError


class OAuth:
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
        self._login: Login = login or BrowserLogin()
        self._storage: Storage = storage or MemoryStorage()
        self._credentials = None if client_id is None else Credentials(client_id, client_secret)
        self._document_url = None if client_metadata_url is None else check_document_url(client_metadata_url)
        self._name = client_name
        self._issuer = issuer
        self._scopes = _listed(scopes)

    def authorizer(self, server: Address, pool: HttpPool) -> TokenAuthorizer:
        """Return what holds the token for one server; the client calls this."""
        login_client = LoginClient(pool, server)
        grant = CodeGrant(login_client, self._storage, self._login, self._name, self._credentials, self._document_url)
        return TokenAuthorizer(server, grant, self._storage, login_client, scopes=self._scopes, issuer=self._issuer)


class ClientCredentials:
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
        self._credentials = Credentials(
            client_id, client_secret, private_key=read_key(private_key), algorithm=algorithm
        )
        self._issuer = issuer
        self._scopes = _listed(scopes)
        self._storage: Storage = storage or MemoryStorage()

    def authorizer(self, server: Address, pool: HttpPool) -> TokenAuthorizer:
        """Return what holds the token for one server; the client calls this."""
        login_client = LoginClient(pool, server)
        grant = CredentialsGrant(login_client, self._credentials)
        return TokenAuthorizer(server, grant, self._storage, login_client, scopes=self._scopes, issuer=self._issuer)


class Assertion:
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
        self._credentials = Credentials(client_id, client_secret)
        self._told = vouch
        self._issuer = issuer
        self._scopes = _listed(scopes)
        self._storage: Storage = storage or MemoryStorage()

    def authorizer(self, server: Address, pool: HttpPool) -> TokenAuthorizer:
        """Return what holds the token for one server; the client calls this."""
        login_client = LoginClient(pool, server)
        grant = AssertionGrant(login_client, self._credentials, self._vouch)
        return TokenAuthorizer(server, grant, self._storage, login_client, scopes=self._scopes, issuer=self._issuer)

    async def _vouch(self, issuer: str, resource: str) -> str:
        if isinstance(self._told, str):
            return self._told
        made = self._told(issuer, resource)
        return await made if inspect.isawaitable(made) else made


def _listed(scopes: Sequence[str]) -> list[str]:
    if isinstance(scopes, str):
        raise SetupError(f"scopes must be a list, for example {scopes.split()!r}")
    return list(scopes)


def read_key(key: str | Path | None) -> str | None:
    """A private key in PEM, given as text or as the path of a file."""
    if key is None or (isinstance(key, str) and key.lstrip().startswith("-----")):
        return key if isinstance(key, str) else None
    try:
        return Path(key).read_text("utf-8")
    except (OSError, ValueError):
        raise SetupError("private_key is neither a PEM nor a file with one") from None
