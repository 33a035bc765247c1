"""The OAuth grants: authorization code with a person, and those of a client alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from msgspec import Struct

from pegboard.client.links.server_output import shorten_output
from pegboard.client.login.access_tokens import Token, request_token
from pegboard.client.login.authentication import Credentials
from pegboard.client.login.browser import Login, NoBrowser
from pegboard.client.login.discovery import ProtectedResource, ServerMetadata
from pegboard.client.login.login_http import LoginClient
from pegboard.client.login.registration import Registration, register
from pegboard.client.login.storage import Storage
from pegboard.client.login.stored_tokens import recall
from pegboard.errors import LoginFailed, ResponseTimeout

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
OFFLINE = "offline_access"

Vouch = Callable[[str, str], Awaitable[str]]
"""Creates the assertion for an issuer and a resource."""


class PendingLogin(Struct, frozen=True, kw_only=True):
    """A login that has begun: what its redirect must match, and what gets the token."""

    issuer: str
    resource: str
    token_endpoint: str
    redirect_uri: str
    client_id: str
    state: str
    verifier: str
    scopes: list[str]

    def __repr__(self) -> str:
        return f"PendingLogin(at {self.issuer!r})"

    def fits(self, site: ProtectedResource) -> bool:
        """Whether the metadata of the server are those that the login began with."""
        server = site.server
        before = self.issuer, self.resource, self.token_endpoint
        return before == (server.issuer, site.resource, server.token_endpoint)


class CodeGrant:
    """A person logs in and consents (authorization code with PKCE)."""

    kind = "person"
    silent = False

    def __init__(
        self,
        login_client: LoginClient,
        storage: Storage,
        login: Login,
        name: str,
        credentials: Credentials | None,
        document_url: str | None,
    ) -> None:
        self.bound_id = None if credentials is None else credentials.client_id
        self._login_client = login_client
        self._storage = storage
        self._login = login
        self._name = name
        self._credentials = credentials
        self._document_url = document_url

    def check_present(self) -> None:
        """Raise LoginRequired if only a person who is not here can get the first token."""
        if isinstance(self._login, NoBrowser):
            raise self._login.required()

    async def obtain(self, site: ProtectedResource, scopes: Sequence[str]) -> Token:
        """The token of a person who logs in now."""
        registered = await self._registered(site.server)
        async with self._login.opened(None if registered is None else registered.redirect_uri) as redirect:
            url, pending = await self.begin(site, scopes, redirect.uri)
            try:
                callback = await redirect.visit(url)
            except ResponseTimeout:
                # The server may have shown an unknown-client error: register a new client the next time.
                await self._storage.delete(_client_key(site.server.issuer))
                raise
            code = read_callback(callback, pending.state, site.server)
        return await self.redeem(site, pending, code)

    async def begin(
        self, site: ProtectedResource, scopes: Sequence[str], redirect_uri: str
    ) -> tuple[str, PendingLogin]:
        """The URL of the login page, and what is needed to finish the login; registers the client if needed."""
        server = site.server
        if server.authorization_endpoint is None or "S256" not in (server.code_challenge_methods_supported or ()):
            # "If `code_challenge_methods_supported` is absent, … MCP clients MUST refuse to proceed."
            raise LoginFailed(f"{server.issuer}: does not support PKCE with S256, without which a login is not safe")
        known = await self._known(server)
        if known is None:
            registered = await self._registered(server)
            if registered is None or registered.redirect_uri != redirect_uri:
                registered = await register(self._login_client, server, self._name, redirect_uri)
                await self._storage.save(_client_key(server.issuer), msgspec.json.encode(registered))
            known = registered.credentials
        verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(32)
        asked = _with_offline(scopes, server)
        url = _authorization_url(server.authorization_endpoint, [
            ("response_type", "code"),
            ("client_id", known.client_id),
            ("redirect_uri", redirect_uri),
            ("code_challenge", challenge_of(verifier)),
            ("code_challenge_method", "S256"),
            ("state", state),
            ("resource", site.resource),
            *write_scopes(asked),
            # OpenID grants offline access only with consent in this login.
            *([("prompt", "consent")] if OFFLINE in asked else []),
        ])  # fmt: skip
        self._login_client.check_address(url)
        return url, PendingLogin(
            issuer=server.issuer,
            resource=site.resource,
            token_endpoint=server.token_endpoint,
            redirect_uri=redirect_uri,
            client_id=known.client_id,
            state=state,
            verifier=verifier,
            scopes=list(scopes),
        )

    async def redeem(self, site: ProtectedResource, pending: PendingLogin, code: str) -> Token:
        """The token for the code of a redirect."""
        known = await self.client(site.server)
        if known is None or known.client_id != pending.client_id:
            raise LoginFailed(f"{site.server.issuer}: the client of this login is not registered any more; start again")
        form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", pending.redirect_uri),
            ("code_verifier", pending.verifier),
        ]
        return await self._request(site, known, form, pending.scopes)

    async def refresh(self, site: ProtectedResource, token: Token) -> Token | None:
        """The next token; None if only another grant can get one."""
        known = await self.client(site.server)
        if token.refresh_token is None or known is None or known.client_id != token.client_id:
            return None
        form = [("grant_type", "refresh_token"), ("refresh_token", token.refresh_token)]
        return await self._request(site, known, form, token.scopes, previous=token.refresh_token)

    async def _request(
        self,
        site: ProtectedResource,
        known: Credentials,
        form: Sequence[tuple[str, str]],
        scopes: Sequence[str],
        previous: str | None = None,
    ) -> Token:
        try:
            return await request_token(self._login_client, site, known, form, scopes, previous=previous)
        except LoginFailed as failure:
            if failure.reason == "invalid_client":
                # The server no longer knows the registration.
                await self._storage.delete(_client_key(site.server.issuer))
            raise

    async def client(self, server: ServerMetadata) -> Credentials | None:
        """The client, if it is known or registered."""
        known = await self._known(server)
        registered = await self._registered(server) if known is None else None
        return known if registered is None else registered.credentials

    async def _registered(self, server: ServerMetadata) -> Registration | None:
        if await self._known(server) is not None:
            return None
        registered = await recall(self._storage, _client_key(server.issuer), Registration)
        return registered if registered is not None and registered.holds(server.issuer) else None

    async def _known(self, server: ServerMetadata) -> Credentials | None:
        """The client that needs no registration; "Use pre-registered client information … if the client has it"."""
        if self._credentials is not None:
            return self._credentials
        if self._document_url is not None and server.client_id_metadata_document_supported:
            return Credentials(self._document_url)
        return None


class ClientGrant:
    """A client gets a token without a person; `kind` names how, and tokens of different kinds are stored apart.

    form: the fields of the request besides those of the client and the server.
    vouch: creates the assertion of an identity provider that the authorization server trusts (RFC 7523).
    """

    silent = True

    def __init__(
        self,
        kind: str,
        login_client: LoginClient,
        credentials: Credentials,
        form: Sequence[tuple[str, str]],
        vouch: Vouch | None = None,
    ) -> None:
        self.kind = kind
        self.bound_id = credentials.client_id
        self._login_client = login_client
        self._credentials = credentials
        self._form = form
        self._vouch = vouch

    def check_present(self) -> None:
        """No person is needed."""

    async def obtain(self, site: ProtectedResource, scopes: Sequence[str]) -> Token:
        """The first token."""
        form = [*self._form, *write_scopes(scopes)]
        if self._vouch is not None:
            form.append(("assertion", await self._vouch(site.server.issuer, site.resource)))
        return await request_token(self._login_client, site, self._credentials, form, scopes)

    async def refresh(self, site: ProtectedResource, token: Token) -> Token | None:
        """None: the next token is obtained as the first was."""
        return None


Grant: TypeAlias = CodeGrant | ClientGrant
"""One way to get a token; a `silent` one needs no person. `bound_id` is a client id that belongs to one issuer."""


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a verifier (RFC 7636)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def read_callback(url: str, state: str, server: ServerMetadata) -> str:
    """The code of a redirect; LoginFailed unless it belongs to this login and this authorization server."""
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    answer = dict(pairs)
    if len(answer) != len(pairs):
        raise LoginFailed("The login redirect has a repeated parameter; it is rejected")
    if not hmac.compare_digest(answer.get("state", "").encode(), state.encode()):
        raise LoginFailed("The login redirect has the state of another login; it is rejected")
    issuer = answer.get("iss")
    if issuer is None and server.authorization_response_iss_parameter_supported:
        raise LoginFailed(f"The login redirect does not name its issuer {server.issuer}; it is rejected")
    # Compared exactly: "clients MUST NOT apply … normalization"
    if issuer is not None and issuer != server.issuer:
        raise LoginFailed(
            f"The login redirect is from another authorization server than {server.issuer}; it is rejected"
        )
    if "error" in answer:
        reason = ", ".join(shorten_output(answer[name]) for name in ("error", "error_description") if answer.get(name))
        raise LoginFailed(f"{server.issuer}: refused the login: {reason}", reason=shorten_output(answer["error"]))
    if not answer.get("code"):
        raise LoginFailed(f"{server.issuer}: the login redirect has no code")
    return answer["code"]


def _authorization_url(endpoint: str, parameters: Sequence[tuple[str, str]]) -> str:
    return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(parameters)}"


def _with_offline(scopes: Sequence[str], server: ServerMetadata) -> list[str]:
    """The scopes with the one for refresh tokens, if the server has it; never that one alone, which would drop the
    default."""
    wanted = [scope for scope in scopes if scope != OFFLINE]
    offered = OFFLINE in (server.scopes_supported or ())
    return [*wanted, OFFLINE] if wanted and offered else wanted


def write_scopes(scopes: Sequence[str]) -> list[tuple[str, str]]:
    """The field of a request that names scopes, if there are any."""
    return [("scope", " ".join(scopes))] if scopes else []


def _client_key(issuer: str) -> str:
    return f"client {issuer}"
