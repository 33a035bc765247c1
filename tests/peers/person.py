"""A person in a browser, for the clients that send one to log in: follows redirects until the client's own address."""

from __future__ import annotations

import http.cookiejar
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def log_in(url: str, redirect: str) -> dict[str, str]:
    """Visit an authorization URL; returns the parameters of the redirect to the client."""
    jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    browser = urllib.request.build_opener(_Stay, jar, urllib.request.ProxyHandler({}))
    for _ in range(10):
        try:
            with browser.open(url, timeout=20) as page:
                raise SystemExit(f"stopped at {url}: {page.status} {page.read(500)!r}")
        except urllib.error.HTTPError as moved:
            if moved.code not in (302, 303):
                raise SystemExit(f"stopped at {url}: {moved.code} {moved.read(500)!r}") from None
            url = urljoin(url, moved.headers["Location"])
        if url.startswith(redirect):
            found = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
            if "error" in found:
                raise SystemExit(f"the authorization server refused: {found}")
            return found
    raise SystemExit(f"too many redirects: {url}")
