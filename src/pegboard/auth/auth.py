"""`Auth`, the value of `Board(auth=…)`: which credentials a server accepts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import urlsplit

from pegboard.auth.principal import Principal
from pegboard.auth.request_credentials import Credentials, Identity, Verified, Verify, invalid_token
from pegboard.auth.www_authenticate import is_scope
from pegboard.errors import SetupError


class Auth:
    """Which credentials a server accepts."""

    def __init__(
        self,
        *,
        verify: Verify | None = None,
        public_url: str | None = None,
        scopes: Iterable[str] = (),
    ) -> None:
        """Create it.

        verify: a function of your own, async or not, that returns the Principal of a token, or None to reject it.
        public_url: the URL of this server as clients see it, such as https://tools.example.com.
        scopes: the scopes that clients should request at their first login.
        """
        self._verify = verify
        self.public_url = _read_url(public_url) if public_url else ""
        self._public_path = urlsplit(self.public_url).path.encode()
        self.scopes = frozenset(scopes)
        for scope in self.scopes:
            if not is_scope(scope):
                raise SetupError(f"auth: {scope!r} is not a scope: it must not contain spaces, quotes or backslashes")
        self.authorization_servers: tuple[str, ...] = ()
        self._revoked: list[Callable[[str], None]] = []

    def on_revoked(self, callback: Callable[[str], None]) -> None:
        """Call back with the id of each principal whose credentials were revoked."""
        self._revoked.append(callback)

    def strip_public_path(self, path: bytes) -> bytes:
        """A path as this server sees it, if it begins with the path of the public URL."""
        return path.removeprefix(self._public_path)

    def verify(self, credentials: Credentials) -> Verified:
        """Verify credentials; raises AuthRefusal if they are rejected."""
        if self._verify is not None:
            found = self._verify(credentials.token)
            return _finish(found) if inspect.isawaitable(found) else _identity(found)
        raise invalid_token("The token is not accepted here")


async def _finish(found: Awaitable[Principal | None]) -> Identity:
    return _identity(await found)


def _identity(found: object) -> Identity:
    if not isinstance(found, Principal) or not found:
        raise invalid_token("The token is not accepted here")
    return Identity(found)


def _read_url(text: str) -> str:
    parts = urlsplit(text)
    if (
        parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise SetupError(f"auth: publicUrl {text!r} is not a URL like https://tools.example.com")
    return text.rstrip("/")
