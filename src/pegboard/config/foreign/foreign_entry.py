"""One server entry outside of its file, as it is passed to a client."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pegboard.config.config_keys import SERVER
from pegboard.config.foreign.client_formats import translate_entry
from pegboard.config.gateway_config import ServerConfig
from pegboard.config.mistakes import ConfigReport
from pegboard.config.server_entry import ServerEntryReader, collect_secrets
from pegboard.config.variables import Variables
from pegboard.errors import SetupError
from pegboard.protocol.json_values import as_object

_ROOTS: Final = ("mcpServers", "servers", "mcp_servers", "toolboxes")

_log = logging.getLogger("pegboard.config")


def read_server_entry(
    entry: Mapping[str, Any], folder: Path, defaults: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> ServerConfig:
    """Read one server entry, as a gateway reads it in a file of `folder`.

    `defaults` are the attributes of a ServerConfig that the entry may omit. Raises SetupError with all mistakes.
    """
    root = next((root for root in _ROOTS if isinstance(entry.get(root), Mapping)), None)
    if root is not None:
        known = ", ".join(map(repr, entry[root]))
        raise SetupError(
            f"This is a whole configuration; pass one of its servers, as in [{root!r}][…]: {known}; or Gateway(…) of all"
        )
    notes = ConfigReport("The server entry", root="the entry")
    translated = translate_entry(msgspec.to_builtins(entry, enc_hook=dict), folder, notes)
    tree = Variables(environ, notes, translated.syntax).expand(translated.tree)
    values = SERVER.read(tree, (), notes)
    collect_secrets(values, notes)
    resolved = ServerEntryReader(folder, environ, notes).resolve(values, (), as_object(tree))
    notes.raise_if_any()
    for warning in notes.shown_warnings():
        _log.warning("server entry: %s", warning)
    return msgspec.convert({**defaults, **resolved}, ServerConfig)
