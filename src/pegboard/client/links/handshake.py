"""The `initialize` handshake, from the client's side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from pegboard.call import Json
from pegboard.client.links.link import Identity
from pegboard.errors import MalformedMessage
from pegboard.protocol.params import PREFIX
from pegboard.protocol.revisions import REVISIONS, trim


class _Initialized(Struct):
    protocolVersion: str  # noqa: N815 — the member's name on the wire
    capabilities: dict[str, Json] = {}
    serverInfo: dict[str, Json] = {}  # noqa: N815 — the member's name on the wire
    instructions: str | None = None


def initialize_params(identity: Identity, version: str) -> dict[str, Any]:
    """What `initialize` is sent with."""
    return {
        "protocolVersion": version,
        "capabilities": identity.capabilities,
        "clientInfo": trim("implementation", identity.client, version),
    }


def read_initialized(result: Mapping[str, Json], name: str) -> dict[str, Json]:
    """The handshake's result as `server/discover` would have told it; its one version is the one agreed on."""
    try:
        told = msgspec.convert(result, _Initialized)
    except msgspec.ValidationError as problem:
        raise MalformedMessage(f"{name}: answered initialize with no MCP message, {problem}") from None
    revision = REVISIONS.get(told.protocolVersion)
    if revision is None or not revision.has_sessions:
        known = ", ".join(name for name, known in REVISIONS.items() if known.has_sessions)
        raise MalformedMessage(
            f"{name}: wants to speak {told.protocolVersion[:40]!r} after a handshake; known are {known}"
        )
    discovered: dict[str, Json] = {
        "supportedVersions": [told.protocolVersion],
        "capabilities": told.capabilities,
        "_meta": {PREFIX + "serverInfo": told.serverInfo},
    }
    if told.instructions is not None:
        discovered["instructions"] = told.instructions
    return discovered
