"""Authenticates every request before its endpoint sees it.

Theory of operation. All requests of a server pass through here: those for paths that need no authentication (health
probes, metadata) go on at once, all others need a principal. What was verified is remembered twice. It is stored on the
head, which connections reuse for identical requests, so that a repeated request costs one comparison; and by the
digest of the token, for other heads with the same token. Both expire together, and then the credentials are verified
again. A response that takes longer is watched until it ends: when its credentials are no longer valid, it is cut.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from pegboard.auth.auth import Auth
from pegboard.auth.request_credentials import (
    WELL_KNOWN,
    AuthRefusal,
    RequestCredentials,
    VerifiedIdentity,
    invalid_request,
    join_scopes,
    read_credentials,
    write_challenge,
)
from pegboard.auth.trusted_proxy import SCHEME as PROXY
from pegboard.bounded_dict import BoundedDict
from pegboard.call import Json
from pegboard.errors import SetupError
from pegboard.protocol import jsonrpc
from pegboard.server.access import NO_ACCESS, Access
from pegboard.server.eager_task import start
from pegboard.server.http.guard import Guard
from pegboard.server.http.responses import method_not_allowed
from pegboard.server.http_types import (
    Answer,
    EndpointResult,
    Head,
    Headers,
    MessageSocket,
    Sink,
    SocketHandler,
    Upgrade,
)

_REMEMBERED: Final = 16_384
_SWEEP_SECONDS: Final = 1.0
_WELL_KNOWN: Final = WELL_KNOWN.encode()
# IANA registers 3000 for "Unauthorized".
_UNAUTHORIZED: Final = 3000
_monotonic = time.monotonic


@runtime_checkable
class ProtectedEndpoint(Protocol):
    """The endpoint behind the authentication."""

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade: ...

    def resource(self, path: bytes) -> str | None:
        """The path of the resource that a path belongs to; None if it needs no authentication."""

    def require_authentication(self) -> None:
        """Show nothing at the paths that need no credentials."""

    def end_sessions(self, principal: str) -> None:
        """End the sessions of a principal whose credentials were revoked."""

    async def drain(self, seconds: float, hurried: asyncio.Event, *, replaced: bool = False) -> None: ...


def check_keys(auth: Auth, shared: object, option: str) -> None:
    """Reject API keys without a store to keep them in."""
    if auth.keys and shared is None:
        raise SetupError(f"API keys are kept in a store: serve with {option} or redis://HOST, as `pegboard keys` does")


class OpenResponse(Struct, eq=False):
    """A response that is still open, and the credentials that it was opened with."""

    access: Access
    credentials: RequestCredentials
    is_open: Callable[[], bool]
    cut: Callable[[], object]
    checking: bool = False


class WrappedEndpoint:
    """Stands in front of an endpoint, to which it passes what it does not do itself."""

    def __init__(self, inner: ProtectedEndpoint) -> None:
        self._inner = inner

    def resource(self, path: bytes) -> str | None:
        """The path of the resource that a path belongs to; None if it needs no authentication."""
        return self._inner.resource(path)

    def require_authentication(self) -> None:
        """Show nothing at the paths that need no credentials."""
        self._inner.require_authentication()

    def end_sessions(self, principal: str) -> None:
        """End the sessions of a principal whose credentials were revoked."""
        self._inner.end_sessions(principal)

    async def drain(self, seconds: float, hurried: asyncio.Event, *, replaced: bool = False) -> None:
        """Reject new calls; let running ones finish."""
        await self._inner.drain(seconds, hurried, replaced=replaced)


class AuthenticatedEndpoint(WrappedEndpoint):
    """Lets requests of authenticated principals through to an endpoint, and rejects all others with a challenge."""

    def __init__(self, inner: ProtectedEndpoint, auth: Auth, guard: Guard, name: str) -> None:
        super().__init__(inner)
        self._accept = inner.accept
        inner.require_authentication()
        self._auth = auth
        self._guard = guard
        self._name = name
        self._known: BoundedDict[bytes, Access] = BoundedDict(_REMEMBERED)
        self._pending: dict[bytes, asyncio.Future[Access]] = {}
        self._open: set[OpenResponse] = set()
        self._checks: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.AbstractEventLoop | None = None
        self._hidden: tuple[bytes, ...] = ()
        self._forget_all()
        auth.on_changed(self._forget_all)
        auth.on_revoked(inner.end_sessions)

    def _forget_all(self) -> None:
        """Other credentials are accepted from now on: verify all again."""
        proxy = self._auth.proxy
        self._hidden = (b"authorization", b"dpop", *(() if proxy is None else (proxy.field,)))
        for access in self._known.values():
            access.until = 0.0
        self._known.clear()

    async def drain(self, seconds: float, hurried: asyncio.Event, *, replaced: bool = False) -> None:
        """Reject new calls; let running ones finish."""
        await super().drain(seconds, hurried, replaced=replaced)
        for check in self._checks:
            check.cancel()

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade:
        if head.access.until <= _monotonic() and not self._is_screened(head):
            refused = self.admit(head)
            if refused is not None:
                return refused if isinstance(refused, Answer) else self._accept_later(refused, head, body, sink)
        head.screened = False
        served = self._accept(head, body, sink)
        return served if isinstance(served, Answer) else self._watch(head, served, sink)

    def _is_screened(self, head: Head) -> bool:
        """Whether the request was admitted before its body was read, with a proof that is valid once."""
        return head.screened and head.access is not NO_ACCESS

    async def _accept_later(
        self, admitting: Coroutine[Any, Any, Answer | None], head: Head, body: bytes, sink: Sink
    ) -> Any:
        refused = await admitting
        if refused is not None:
            return refused
        head.screened = False
        served = self._accept(head, body, sink)
        if not isinstance(served, Answer):
            served = self._watch(head, served, sink)
        return await served if isinstance(served, Coroutine | asyncio.Future) else served

    # -- who sends a request -----------------------------------------------------------------------------------------

    def admit(self, head: Head) -> Answer | Coroutine[Any, Any, Answer | None] | None:
        """Authenticate the sender of a request, whose body need not be there yet; the rejection, or None."""
        if b"authorization" in head.repeated:
            return self._challenge(invalid_request("The Authorization header occurs more than once"), "", ())
        allowed = self._guard.check(head)
        if isinstance(allowed, Answer):
            return allowed
        path = self._inner.resource(head.path)
        if path is None:
            return self._describe(head) if head.path.startswith(_WELL_KNOWN) else None
        if head.method == b"OPTIONS":
            # Answered here, so that it does not show which toolboxes exist.
            return self._guard.preflight(head, allowed)
        head.access, head.verdict, head.screened = NO_ACCESS, None, False
        metadata = self._metadata_url(head, path)
        try:
            credentials = self._read(head, path)
            if credentials is None:
                raise AuthRefusal("Authentication is required")
            found = self._find(credentials, metadata)
        except AuthRefusal as refusal:
            return self._challenge(refusal, metadata, allowed)
        if isinstance(found, Access):
            self._grant(head, found, credentials)
            return None
        return self._wait(found, head, credentials, metadata, allowed)

    async def _wait(
        self,
        pending: asyncio.Future[Access],
        head: Head,
        credentials: RequestCredentials,
        metadata: str,
        allowed: Headers,
    ) -> Answer | None:
        try:
            # Other requests with the same token wait for it too.
            access = await asyncio.shield(pending)
        except AuthRefusal as refusal:
            return self._challenge(refusal, metadata, allowed)
        self._grant(head, access, credentials)
        return None

    def _grant(self, head: Head, access: Access, credentials: RequestCredentials) -> None:
        head.access = access
        head.credentials = credentials
        head.screened = True
        # "MCP servers MUST NOT accept or transit any other tokens": no tool and no server behind us sees it.
        for name in self._hidden:
            head.headers.pop(name, None)

    def _read(self, head: Head, path: str) -> RequestCredentials | None:
        if head.credentials is not None:
            return head.credentials
        proxy = self._auth.proxy
        named = None if proxy is None else proxy.sent(head.headers, head.via or head.peer)
        if proxy is not None and named is not None:
            if proxy.field in head.repeated:
                raise invalid_request(f"The header {proxy.header} occurs more than once")
            return RequestCredentials(PROXY, named, resource=self._base(head) + head.locate(path))
        read = read_credentials(head.headers, head.query)
        if read is None:
            return None
        scheme, token = read
        proof = head.headers.get(b"dpop")
        return RequestCredentials(
            scheme,
            token,
            resource=self._base(head) + head.locate(path),
            proof=None if proof is None else proof.decode("latin-1"),
            method=head.method.decode("latin-1"),
            url=self._base(head) + head.locate(head.path.decode("latin-1")),
        )

    def _find(self, credentials: RequestCredentials, metadata: str) -> Access | asyncio.Future[Access]:
        """The access that credentials give: remembered, verified now, or being verified."""
        if credentials.scheme == "DPoP" and not credentials.proven:
            # A proof is for one request, so there is nothing to remember.
            key = b""
        else:
            kind = f"proven {credentials.scheme}" if credentials.proven else credentials.scheme
            key = hashlib.sha256(f"{kind} {credentials.resource} {credentials.token}".encode()).digest()
            known = self._known.get(key)
            if known is not None and known.until > _monotonic():
                return known
            waiting = self._pending.get(key)
            if waiting is not None:
                return waiting
        verified = self._auth.verify(credentials)
        if isinstance(verified, VerifiedIdentity):
            return self._remember(key, verified, metadata, credentials)
        pending = asyncio.ensure_future(self._verify(key, verified, metadata, credentials))
        if key:
            self._pending[key] = pending
            pending.add_done_callback(lambda _: self._pending.pop(key, None))
        # All requests that waited for it may be gone.
        pending.add_done_callback(lambda done: done.cancelled() or done.exception())
        return pending

    async def _verify(self, key: bytes, verified: Any, metadata: str, credentials: RequestCredentials) -> Access:
        return self._remember(key, await verified, metadata, credentials)

    def _remember(
        self, key: bytes, identity: VerifiedIdentity, metadata: str, credentials: RequestCredentials
    ) -> Access:
        seconds = identity.seconds
        if identity.expires is not None:
            # In terms of the monotonic clock: setting the wall clock back does not prolong it.
            seconds = min(seconds, identity.expires - time.time())
        kept = credentials if self._auth.keeps_tokens and identity.principal.kind == "token" else None
        access = Access(identity.principal, _monotonic() + (seconds if key else 0.0), metadata, credentials=kept)
        if key:
            self._known[key] = access
        return access

    # -- open responses ----------------------------------------------------------------------------------------------

    def _watch(self, head: Head, served: EndpointResult | Upgrade, sink: Sink) -> EndpointResult | Upgrade:
        """Cut a response that is not complete as soon as its credentials are no longer valid."""
        access, credentials = head.access, head.credentials
        if credentials is None:
            return served
        if isinstance(served, Upgrade):
            upgrade = served

            def open_socket(socket: MessageSocket) -> SocketHandler:
                handler = upgrade.open(socket)
                close = lambda: socket.close(_UNAUTHORIZED, "The credentials are no longer valid")  # noqa: E731
                self._follow(OpenResponse(access, credentials, lambda: not handler.gone, close))
                return handler

            return Upgrade(open_socket, upgrade.take_over)
        if isinstance(served, Coroutine):
            served = start(served, loop=asyncio.get_running_loop())
        if isinstance(served, asyncio.Task):
            task = served

            def cut() -> None:
                task.cancel()
                sink.cut()

            self._follow(OpenResponse(access, credentials, lambda: not task.done() or sink.is_open, cut))
        else:
            self._follow(OpenResponse(access, credentials, lambda: sink.is_open, sink.cut))
        return served

    def _follow(self, response: OpenResponse) -> None:
        self._open.add(response)
        loop = asyncio.get_running_loop()
        if self._sweeping is not loop:
            self._sweeping = loop
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = _monotonic()
        for response in tuple(self._open):
            if not response.is_open():
                self._open.discard(response)
            elif response.access.until <= now and not response.checking:
                response.checking = True
                check = loop.create_task(self._check(response))
                self._checks.add(check)
                check.add_done_callback(self._checks.discard)
        if self._open and self._sweeping is loop:
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)
        else:
            self._sweeping = None

    async def _check(self, response: OpenResponse) -> None:
        """Verify the credentials of an open response again."""
        # A proof was for the request that opened the response; only the token is checked again.
        credentials = msgspec.structs.replace(response.credentials, proven=True)
        try:
            found = self._find(credentials, response.access.resource_metadata)
            access = found if isinstance(found, Access) else await found
            if access.principal.id != response.access.principal.id:
                raise AuthRefusal("The principal has changed")
            response.access = access
        except AuthRefusal as refusal:
            # A source of keys that is down is asked again; until then, the response was authenticated once.
            if refusal.http_status != 503:
                self._open.discard(response)
                response.cut()
        finally:
            response.checking = False

    # -- what clients read -------------------------------------------------------------------------------------------

    def _base(self, head: Head) -> str:
        return self._auth.public_url or head.origin

    def _metadata_url(self, head: Head, path: str) -> str:
        if not self._auth.authorization_servers:
            return ""
        # Below the mount point: paths outside of it may belong to another application.
        return f"{self._base(head)}{head.mount}{WELL_KNOWN}{head.locate(path)[len(head.mount) :]}"

    def _challenge(self, refusal: AuthRefusal, metadata: str, allowed: Headers) -> Answer:
        headers = allowed + refusal.http_headers
        if refusal.http_status in (400, 401):
            parameters = {
                "error": refusal.error,
                "error_description": refusal.message if refusal.error else "",
                # "servers SHOULD include a scope parameter" (Scope Selection Strategy)
                "scope": join_scopes(self._auth.scopes) if refusal.http_status == 401 else "",
                "resource_metadata": metadata,
            }
            headers += ((b"www-authenticate", write_challenge(refusal.scheme, parameters)),)
        return Answer(refusal.http_status, jsonrpc.refusal(None, refusal), headers=headers)

    def _describe(self, head: Head) -> Answer | None:
        """The metadata of a resource (RFC 9728, 3)."""
        if not self._auth.authorization_servers:
            return None
        if head.method not in (b"GET", b"HEAD", b"OPTIONS"):
            return method_not_allowed(b"GET, OPTIONS")
        path = self._inner.resource(self._auth.strip_public_path(head.path[len(_WELL_KNOWN) :]) or b"/mcp")
        if path is None:
            return None
        document: dict[str, Json] = {
            "resource": self._base(head) + head.locate(path),
            "authorization_servers": list(self._auth.authorization_servers),
            "bearer_methods_supported": ["header"],
            "resource_name": self._name,
        }
        if self._auth.scopes:
            document["scopes_supported"] = sorted(self._auth.scopes)
        # Pages of any origin may read it: it is public, and the same for every client.
        headers = ((b"access-control-allow-origin", b"*"), (b"cache-control", b"max-age=300"))
        return Answer(200, msgspec.json.encode(document), headers=headers)
