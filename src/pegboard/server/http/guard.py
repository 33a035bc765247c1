"""Host and Origin checks, CORS, and trusted proxies.

A page that a browser loaded from elsewhere may reach a server on this machine or in this network by DNS rebinding: its
name resolves to our address, and its requests arrive under its own Host and Origin. So a host name is accepted only if the
operator allowed it. Without that a request that arrives on a loopback address must name a loopback host, and any other
must name an IP address, which cannot be rebound. An Origin must be the one the request was sent to, or an allowed one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from pegboard.bounded_dict import BoundedDict
from pegboard.errors import InvalidRequest, SetupError
from pegboard.protocol import jsonrpc
from pegboard.protocol.headers import is_single
from pegboard.server.http_types import Answer, Head, Headers

_REMEMBERED = 256
_REMEMBERED_BYTES = 512
_EXPOSED = b"Mcp-Session-Id, WWW-Authenticate"
# The address of a server behind a trusted proxy: it is unknown, and not a loopback address.
_FORWARDED: Final = "forwarded"


class Guard:
    """The rules of one endpoint; recent verdicts are cached.

    `mounted` accepts any host name on an address other than loopback: the server and the framework around a mounted
    board decide which names they serve.
    """

    def __init__(
        self,
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        proxies: Iterable[str] = (),
        mounted: bool = False,
    ) -> None:
        # How the operator allows a host and an origin, for messages.
        self._allow_host = 'asgi(allow_host="{}")' if mounted else "--allow-host {}"
        self._cors = 'asgi(cors="{}")' if mounted else "--cors {}"
        self._hosts = frozenset(host.lower() for host in hosts)
        self._mounted = mounted
        self._origins = frozenset(_origin(origin, self._cors) for origin in origins)
        self._proxies = frozenset(proxies)
        self._verdicts: BoundedDict[tuple[bytes | None, bytes | None, str], Answer | Headers] = BoundedDict(_REMEMBERED)

    def allow_origins(self, origins: Iterable[str]) -> None:
        """Allow these origins as well; what is not an origin, such as `*`, is left out."""
        for origin in origins:
            with suppress(SetupError):
                self._origins |= {_origin(origin, self._cors)}
        self._verdicts.clear()

    def check(self, head: Head) -> Answer | Headers:
        """The rejection, or the headers that every response to this request must have."""
        if head.repeated:
            for name in head.repeated:
                if is_single(name):
                    return _refuse(400, f"The header {name.decode('latin-1')} occurs more than once")
        headers = head.headers
        if self._proxies and head.peer in self._proxies:
            _trust(head)
        key = (headers.get(b"origin"), headers.get(b"host"), head.server)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._judge(*key)
            if len(key[0] or b"") + len(key[1] or b"") <= _REMEMBERED_BYTES:
                self._verdicts[key] = verdict
        return verdict

    def preflight(self, head: Head, allowed: Headers) -> Answer:
        """The response to a CORS preflight request."""
        if not allowed:
            return Answer(204, headers=((b"allow", b"GET, POST, DELETE, OPTIONS"),))
        asked = head.headers.get(b"access-control-request-headers", b"")
        return Answer(
            204,
            headers=(
                *allowed,
                (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
                (b"access-control-allow-headers", asked),
                (b"access-control-max-age", b"600"),
            ),
        )

    def _judge(self, origin: bytes | None, host: bytes | None, server: str) -> Answer | Headers:
        sent_to = (host or b"").decode("latin-1").lower()
        cors: Headers = ()
        if origin is not None:
            text = origin.decode("latin-1")
            if text.lower() in self._origins:
                cors = (
                    (b"access-control-allow-origin", origin),
                    (b"access-control-expose-headers", _EXPOSED),
                    (b"vary", b"Origin"),
                )
            elif not _same_origin(text.lower(), sent_to):
                # "If the Origin header is present and invalid, servers MUST respond with HTTP 403" (Streamable HTTP)
                remedy = self._cors.format(text[:80])
                return _refuse(403, f"The origin {text[:80]!r} is not allowed here; allow it with {remedy}")
        if not self._answers_to(sent_to, server):
            name = _name(sent_to)[:80]
            if not name:
                return _refuse(421, "The Host header is empty or invalid; send the name or address of this server")
            remedy = self._allow_host.format(name)
            return _refuse(421, f"The host name {name!r} is not allowed here; allow it with {remedy}")
        return cors

    def _answers_to(self, host: str, server: str) -> bool:
        name = _name(host)
        if _is_loopback(name) or host in self._hosts or name in self._hosts:
            return True
        if self._hosts or _is_loopback(server):
            return False
        # A browser cannot reach a socket file.
        return not server or self._mounted or _is_address(name)


def is_loopback(host: str) -> bool:
    """Whether a name or address to bind to stays on this machine."""
    return _is_loopback(host)


def _refuse(status: int, message: str) -> Answer:
    return Answer(status, jsonrpc.refusal(None, InvalidRequest(message)))


# Only a name or an address, and a port: reject what a URL could hide behind "@", "#" or "\\".
_AUTHORITY: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._~-]+))(?::([0-9]{1,5}))?", re.ASCII)
_ORIGIN: Final = re.compile(r"(https?)://(.+)", re.ASCII)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def _origin(text: str, option: str) -> str:
    given = text.lower().removesuffix("/")
    found = _ORIGIN.fullmatch(given)
    if found is None or _authority(found[2]) is None:
        raise SetupError(
            f"{option.format(text)} is not an origin; write it like https://app.example.com or http://localhost:6274"
        )
    # A browser omits the default port of the scheme.
    return given.removesuffix(f":{_DEFAULT_PORTS[found[1]]}")


def _same_origin(origin: str, host: str) -> bool:
    found = _ORIGIN.fullmatch(origin)
    theirs = None if found is None else _authority(found[2])
    ours = _authority(host)
    if found is None or theirs is None or ours is None:
        return False
    default = _DEFAULT_PORTS[found[1]]
    if (theirs[1] or default) != (ours[1] or default):
        return False
    return theirs[0] == ours[0] or (_is_loopback(theirs[0]) and _is_loopback(ours[0]))


def _authority(text: str) -> tuple[str, int | None] | None:
    found = _AUTHORITY.fullmatch(text)
    return None if found is None else (found[1] or found[2], None if found[3] is None else int(found[3]))


def _name(host: str) -> str:
    found = _authority(host)
    return "" if found is None else found[0]


def _is_loopback(name: str) -> bool:
    return name == "localhost" or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _trust(head: Head) -> None:
    """Use the client's address, scheme and host that a trusted proxy states."""
    headers = head.headers
    head.via = head.peer
    forwarded = headers.get(b"x-forwarded-for")
    if forwarded:
        head.peer = forwarded.rpartition(b",")[2].strip().decode("latin-1")
    head.secure = headers.get(b"x-forwarded-proto", b"").lower() == b"https" or head.secure
    host = headers.get(b"x-forwarded-host")
    if host:
        headers[b"host"] = host.strip()
        head.server = _FORWARDED
