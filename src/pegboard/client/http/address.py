"""The parts of a server's URL, its proxy, and how local its address is."""

from __future__ import annotations

import base64
import ipaddress
import os
import socket
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeAlias
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct

from pegboard.errors import SetupError

CONNECTIONS: Final = 100
"""How many connections a client has to one address at most by default."""

_PORTS = {"http": 80, "https": 443}

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

_IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class Address(Struct, frozen=True, cache_hash=True):
    """A URL that can be requested; `target` is its path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The value of the Host field."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    def join(self, reference: str) -> Address:
        """The address in a Location field or an endpoint event, relative to this one."""
        try:
            return read_address(urljoin(str(self), reference))
        except ValueError:
            raise SetupError(f"{reference[:200]!r} is not a valid URL") from None


class Proxy(Struct, frozen=True):
    """A proxy; `credentials` is its Proxy-Authorization, empty if it needs none."""

    host: str
    port: int
    credentials: str = ""


def read_address(url: str) -> Address:
    """Parse a URL; SetupError if it is invalid."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if parts.scheme not in _PORTS or not host or not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError
        # An internationalized name is converted for DNS; invalid characters would end up in the Host field.
        host.encode("idna")
    except ValueError:
        raise SetupError(f"{url!r} is not a valid URL, such as http://127.0.0.1:7332/mcp") from None
    if parts.username is not None or parts.password is not None:
        raise SetupError(f"{host}: a URL must not contain credentials, since it is logged; send them as a header")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, host, port or _PORTS[parts.scheme], target)


def find_proxy(address: Address, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy for an address from the environment; none for this machine.

    `HTTP_PROXY` in upper case is ignored: a web server sets it from a client's Proxy field.
    """
    names = ("https_proxy", "HTTPS_PROXY") if address.secure else ("http_proxy",)
    url = next((environment[name] for name in names if environment.get(name)), "")
    if (
        not url
        or address.is_loopback
        or _is_exempt(address, environment.get("no_proxy") or environment.get("NO_PROXY", ""))
    ):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
        if parts.scheme != "http" or not host:
            raise ValueError
    except ValueError:
        raise SetupError(f"{names[0].upper()} is not a valid proxy URL, such as http://proxy.example:3128") from None
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(host, port or 80, credentials)


def _is_exempt(address: Address, listed: str) -> bool:
    for entry in listed.replace(" ", ",").split(","):
        name, _, port = (
            entry.lower().rpartition(":") if entry.rpartition(":")[2].isdecimal() else (entry.lower(), "", "")
        )
        if not name or (port and int(port) != address.port):
            continue
        bare = name.lstrip("*").lstrip(".")
        if name == "*" or address.host == bare or address.host.endswith("." + bare) or _is_within(address.host, name):
            return True
    return False


def _is_within(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


class Zone(IntEnum):
    """How local an IP address is, nearest last; private addresses named by public servers are rejected.

    A public server could otherwise make us send requests to this machine or to private networks. Addresses are classified
    after they were resolved: one address has many spellings (`127.1`, `2130706433`, `0x7f000001`), and any name can
    resolve to it.
    """

    INTERNET = 0
    NETWORK = 1
    MACHINE = 2

    def __str__(self) -> str:
        return ("the internet", "a private network", "this machine")[self]


def zone_of(number: str) -> Zone:
    """The zone of a numeric address, in the format of the system."""
    address = ipaddress.ip_address(number)
    return max(map(_judge, [address, *_carried(address)]))


def written_zone(host: str) -> Zone:
    """The zone of a host as far as it is known without a lookup: a name counts as internet."""
    if host == "localhost" or host.endswith(".localhost"):
        return Zone.MACHINE
    try:
        return zone_of(host)
    except ValueError:
        pass
    try:
        # The short forms that connect() accepts.
        return zone_of(socket.inet_ntoa(socket.inet_aton(host)))
    except (OSError, ValueError):
        return Zone.INTERNET


def _judge(address: _IP) -> Zone:
    # Data for the unspecified address arrives at this machine.
    if address.is_loopback or address.is_unspecified:
        return Zone.MACHINE
    return Zone.INTERNET if address.is_global and not address.is_multicast else Zone.NETWORK


def _carried(address: _IP) -> list[_IP]:
    """The IPv4 addresses that an IPv6 address embeds."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    behind = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or (not any(address.packed[:12]) and int(address) > 1):
        behind.append(ipaddress.IPv4Address(address.packed[-4:]))
    return [inner for inner in behind if inner is not None]
