"""How local an IP address is; rejects private addresses named by public servers.

A public server could otherwise make us send requests to this machine or to private networks. Addresses are classified
after they were resolved: one address has many spellings (`127.1`, `2130706433`, `0x7f000001`), and any name can resolve
to it.
"""

from __future__ import annotations

import ipaddress
import socket
from enum import IntEnum
from typing import Final, TypeAlias

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

_IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class Zone(IntEnum):
    """The zone of an address, nearest last."""

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
