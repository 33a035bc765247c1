"""Who may use the console: a browser that opened the link of this launch.

The link has a token, which becomes a cookie that no script can read and that other sites cannot send. Changes also need a
header that a form on another site cannot set.
"""

from __future__ import annotations

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from pegboard.server.http_types import Answer, Head, Headers

COOKIE: Final = "pegboard_console"
CHANGE_HEADER: Final = b"x-pegboard-console"

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src data:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Final[Headers] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

_LOCKED: Final = (
    b"<!doctype html><meta charset=utf-8><title>Pegboard console</title><h1>This console is locked</h1>"
    b"<p>Open the console link that Pegboard printed when it started: it contains the token of this launch.</p>"
)


class ConsoleAccess:
    """Checks the token of one launch."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(24)

    def enter(self, head: Head, path: str) -> Answer | None:
        """Exchange the token in a link for a cookie, and remove it from the address."""
        given = parse_qs(head.query.decode("latin-1")).get("token")
        if given is None:
            return None
        if not self._is_token(given[0]):
            return self.refuse()
        secure = "; Secure" if head.secure else ""
        cookie = f"{COOKIE}={self.token}; Path={path}; HttpOnly; SameSite=Strict{secure}"
        headers = ((b"location", path.encode()), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store"))
        return Answer(303, content_type=b"text/plain", headers=(*headers, *SECURITY_HEADERS))

    def allows(self, head: Head) -> bool:
        """Whether the request comes from a browser that opened the link."""
        try:
            cookie = SimpleCookie(head.headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
        except CookieError:
            return False
        if cookie is None or not self._is_token(cookie.value):
            return False
        return head.headers.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none")

    def may_change(self, head: Head) -> bool:
        """Whether the request was sent by a script of the console, not by a form or a link elsewhere."""
        return head.headers.get(CHANGE_HEADER) == b"1"

    def refuse(self) -> Answer:
        return Answer(401, _LOCKED, b"text/html; charset=utf-8", (*SECURITY_HEADERS, (b"cache-control", b"no-store")))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())
