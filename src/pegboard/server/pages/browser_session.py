"""The sign-in of a browser as a sealed cookie, and the tokens that protect its forms from other sites.

Theory of operation. A cookie holds who signed in and how, sealed with the key that all replicas share, so that any of them
can read it and no browser can change it. Nothing is stored for a sign-in; only a sign-out is, until the cookie would have
expired. A form token is sealed with the id of the sign-in: it is of no use in another browser, or after the next sign-in.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pegboard.auth.principal import Principal
from pegboard.bounded_dict import BoundedDict
from pegboard.errors import InvalidParams
from pegboard.read_only import read_only
from pegboard.security.seal import Seal, read_keys
from pegboard.server.http_types import Head, Headers
from pegboard.stores.cluster import SharedStore
from pegboard.stores.shared_key import shared_key
from pegboard.stores.store import Records

SESSION_SECONDS: Final = 8 * 3600.0
"""How long a sign-in lasts."""
COOKIE_CHARACTERS: Final = 3800
"""The longest value of a cookie that every browser keeps."""
_SIGNED_OUT_KEPT: Final = 10_000
_HEADER_CHARACTERS: Final = 16_384


class BrowserSession(Struct, frozen=True, array_like=True):
    """What the cookie holds.

    id: of this sign-in; random.
    source: how the person signed in: `key`, `link`, or the URL of an issuer.
    proof: for a key or a link, the digest of it.
    expires: when the sign-in ends, in seconds since the epoch.
    """

    id: str
    source: str
    proof: bytes
    principal: Principal
    expires: float

    def identity(self) -> Principal:
        """Who signed in."""
        return replace(self.principal, claims=read_only(dict(self.principal.claims)))


def open_session(
    principal: Principal, source: str, proof: bytes = b"", *, now: float, expires: float | None = None
) -> BrowserSession:
    """A new sign-in; it lasts no longer than the credentials."""
    until = now + SESSION_SECONDS if expires is None else min(now + SESSION_SECONDS, expires)
    # The claims are read-only, at every depth; a cookie has plain values.
    kept = replace(principal, claims=dict(principal.claims))
    return BrowserSession(secrets.token_urlsafe(16), source, proof, kept, until)


class SessionCookies:
    """Reads and writes the cookies of one server."""

    def __init__(self, name: str, routes: Collection[str], clock: Callable[[], float] = time.time) -> None:
        self._name = name
        self._routes = routes
        self._clock = clock
        secret = os.environ.get("PEGBOARD_SECRET")
        keys = read_keys(secret)
        self._sessions = Seal("sign-in", keys, audience=name, secret=True)
        self._attempts = Seal("sign-in attempt", keys, audience=name, secret=True)
        self._tokens = Seal("form token", keys, audience=name)
        self._random_key = not secret
        self._records: Records | None = None
        self._signed_out: BoundedDict[str, float] = BoundedDict(_SIGNED_OUT_KEPT)

    async def share(self, shared: SharedStore | None) -> None:
        """Use the key and the sign-outs of all processes of a store."""
        self._records = None if shared is None else shared.store.records
        if self._records is not None and self._random_key:
            key = await shared_key(self._records, f"{self._name}:pages")
            for seal in (self._sessions, self._attempts, self._tokens):
                seal.prefer(key)

    # -- the sign-in ---------------------------------------------------------------------------------------------------

    async def read(self, head: Head) -> BrowserSession | None:
        """The sign-in of the browser; None if there is none, or if it ended. StoreDown if that cannot be known."""
        opened = self._open(self._sessions, head, "session")
        if opened is None:
            return None
        try:
            session = msgspec.convert(opened, BrowserSession)
        except msgspec.ValidationError:
            return None
        return None if await self._has_ended(session) else session

    def write(self, head: Head, session: BrowserSession) -> Headers | None:
        """The headers that sign the browser in; None if the claims are too long for a cookie."""
        value = self._sessions.close(session, expires=session.expires)
        if len(value) > COOKIE_CHARACTERS:
            return None
        return self._set(head, "session", value, session.expires - self._clock())

    async def end(self, head: Head, session: BrowserSession) -> Headers:
        """Sign out: the cookie is not accepted any more by any process, and neither is a copy of it."""
        left = session.expires - self._clock()
        self._signed_out[session.id] = session.expires
        if self._records is not None and left > 0:
            await self._records.put(_record(session.id), b"", ttl=left)
        return self._set(head, "session", "", 0)

    async def _has_ended(self, session: BrowserSession) -> bool:
        if session.id in self._signed_out:
            return True
        return self._records is not None and await self._records.get(_record(session.id)) is not None

    # -- before the sign-in --------------------------------------------------------------------------------------------

    def read_attempt(self, head: Head) -> object | None:
        """What was remembered for the sign-in that this browser has begun."""
        return self._open(self._attempts, head, "attempt")

    def write_attempt(self, head: Head, attempt: object, seconds: float) -> Headers:
        """Remember something until the sign-in is complete."""
        value = self._attempts.close(attempt, expires=self._clock() + seconds)
        return self._set(head, "attempt", value, seconds)

    def forget_attempt(self, head: Head) -> Headers:
        return self._set(head, "attempt", "", 0)

    # -- forms ---------------------------------------------------------------------------------------------------------

    def make_token(self, bearer: str) -> str:
        """A token for the forms of one sign-in."""
        return self._tokens.close(None, bearer=bearer, expires=self._clock() + SESSION_SECONDS)

    def is_token(self, text: str, bearer: str) -> bool:
        """Whether a form token was made for this sign-in."""
        try:
            self._tokens.open(text, now=self._clock(), bearer=bearer)
        except InvalidParams:
            return False
        return True

    # -- cookies -------------------------------------------------------------------------------------------------------

    def _open(self, seal: Seal, head: Head, kind: str) -> object | None:
        value = _find_cookie(head, self._cookie(head, kind))
        if not value:
            return None
        try:
            return seal.open(value, now=self._clock())
        except InvalidParams:
            return None

    def _set(self, head: Head, kind: str, value: str, seconds: float) -> Headers:
        # Lax, so that links from a chat or from the issuer find the person signed in; changes need a form token.
        end = f"; Max-Age={int(seconds)}; HttpOnly; SameSite=Lax{'; Secure' if head.secure else ''}"
        name = self._cookie(head, kind)
        return tuple((b"set-cookie", f"{name}={value}; Path={path}{end}".encode("ascii")) for path in self._paths(head))

    def _paths(self, head: Head) -> Sequence[str]:
        """Where the cookie is sent: to our pages only, as far as that can be said.

        A browser sends the cookies of a host to all its ports, and without TLS to whatever program listens there.
        """
        if head.secure:
            return ("/",)
        path = head.path.decode("latin-1")
        before = next((path.partition(route)[0] for route in self._routes if route in path), "")
        root = head.locate(quote(before)).rstrip("/")
        return [root + route for route in self._routes]

    def _cookie(self, head: Head, kind: str) -> str:
        """The name of a cookie: cookies of one host are shared by all ports and paths, and so by several servers."""
        server = hashlib.sha256(f"{head.origin}{head.prefix} {self._name}".encode()).hexdigest()[:8]
        # Browsers accept the prefix only in a response over TLS, for the whole host, and from the host itself.
        return f"{'__Host-' if head.secure else ''}pegboard-{kind}-{server}"


def _find_cookie(head: Head, name: str) -> str:
    text = head.headers.get(b"cookie", b"")[:_HEADER_CHARACTERS].decode("latin-1")
    for pair in text.split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value
    return ""


def _record(session: str) -> str:
    return "signed out " + hashlib.sha256(session.encode()).hexdigest()
