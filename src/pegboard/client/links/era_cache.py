"""The protocol era of each server: read from its response to the probe, and cached."""

from __future__ import annotations

from collections.abc import Awaitable, Hashable, Mapping, Sequence
from typing import Final

from pegboard.bounded_dict import BoundedDict
from pegboard.call import NULL_CHANNEL, Json
from pegboard.client.links.link import OutgoingRequest
from pegboard.client.links.server_messages import MODERN_CODES
from pegboard.errors import MalformedMessage, Refusal, UnsupportedVersion
from pegboard.protocol.revisions import MODERN, SUPPORTED

_MAX_SERVERS: Final = 1000

_eras: BoundedDict[Hashable, str] = BoundedDict(_MAX_SERVERS)


def recall(server: Hashable) -> str | None:
    """The revision last used with a server, if any."""
    return _eras.get(server)


def remember(server: Hashable, version: str) -> None:
    """Cache the revision; the oldest entry is dropped if there are too many."""
    _eras[server] = version


def forget(server: Hashable) -> None:
    """Drop a revision that proved wrong."""
    _eras.pop(server, None)


def probe() -> OutgoingRequest:
    """The request that distinguishes the eras."""
    return OutgoingRequest(method="server/discover", params={}, channel=NULL_CHANNEL)


async def versions_in_answer(answer: Awaitable[Mapping[str, Json]]) -> Sequence[str] | None:
    """The revisions in the response to the probe; None if the server is not modern."""
    try:
        versions = (await answer).get("supportedVersions")
    except Refusal as refusal:
        return versions_in_refusal(refusal)
    return versions if isinstance(versions, list) else None


def versions_in_refusal(refusal: Refusal) -> Sequence[str] | None:
    """The same for an error; only some errors identify a modern server."""
    if isinstance(refusal, UnsupportedVersion):
        supported = refusal.data.get("supported") if isinstance(refusal.data, dict) else None
        return supported if isinstance(supported, list) else [MODERN]
    return [MODERN] if refusal.code in MODERN_CODES else None


def choose_version(versions: Sequence[str], name: str) -> str:
    """The newest revision that both sides support."""
    for version in SUPPORTED:
        if version in versions:
            return version
    listed = ", ".join(map(str, versions))[:200]
    raise MalformedMessage(f"{name}: supports {listed or 'no revision'}; this client supports {', '.join(SUPPORTED)}")
