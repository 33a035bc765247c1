"""Protocol extensions: their names, and which clients declared them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pegboard.call import Json
from pegboard.errors import MissingCapability
from pegboard.protocol.revisions import trim

TASKS: Final = "io.modelcontextprotocol/tasks"


def has_extension(name: str, capabilities: Mapping[str, Json], version: str) -> bool:
    """Whether a client of this revision has declared the extension; older revisions have no extensions."""
    declared = trim("capabilities", capabilities, version).get("extensions")
    return isinstance(declared, Mapping) and isinstance(declared.get(name), Mapping)


def missing_extension(what: str, name: str) -> MissingCapability:
    """The error for a feature whose extension the client has not declared."""
    return MissingCapability(f"{what}: needs a client with the extension {name}", {"extensions": {name: {}}})
