"""The configuration that a verb changes: its servers, and a check before it is written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from pegboard.call import Json
from pegboard.config.editing.edits import Edit, apply_edits, parse_text
from pegboard.config.editing.text_file import TextFile, open_text_file
from pegboard.config.gateway_config import FILES, read_config
from pegboard.config.mistakes import did_you_mean
from pegboard.config.source_file import KeyPath
from pegboard.errors import SetupError
from pegboard.protocol.json_values import as_object

_ROOTS = ("mcpServers", "servers", "mcp_servers")


class EditedConfig(Struct, frozen=True):
    """A configuration file of ours, or of a client, while a verb changes it."""

    file: TextFile
    tree: dict[str, Json]

    def toolbox(self, name: str | None) -> KeyPath:
        """Where the servers are: those of a toolbox, by default the first, or of the client's file."""
        root = next((root for root in _ROOTS if root in self.tree), None)
        if root is not None and "toolboxes" not in self.tree:
            if name is not None:
                raise SetupError(f"{self.file.path} has no toolboxes; leave out --toolbox")
            return (root,)
        return ("toolboxes", name or next(iter(as_object(self.tree.get("toolboxes"))), "main"), "mcpServers")

    def servers(self, place: KeyPath) -> dict[str, Json]:
        found: Json = self.tree
        for key in place:
            found = as_object(found).get(str(key))
        return dict(as_object(found))

    def find(self, name: str, toolbox: str | None) -> KeyPath:
        """The path of a server by its name; SetupError if it is missing, or in several toolboxes."""
        boxes: list[str | None] = [toolbox] if toolbox else [*as_object(self.tree.get("toolboxes"))] or [None]
        places = [self.toolbox(box) for box in boxes]
        found = [place for place in places if name in self.servers(place)]
        if len(found) == 1:
            return (*found[0], name)
        if found:
            raise SetupError(
                f"{name!r} is in several toolboxes: {', '.join(str(place[1]) for place in found)}; add --toolbox"
            )
        known = [server for place in places for server in self.servers(place)]
        raise SetupError(f"{self.file.path} has no server {name!r}; {did_you_mean(name, known)}")

    def add(self, place: KeyPath, entries: dict[str, Json], about: str) -> str:
        """The text of the file with further servers; a new toolbox is described by `about`."""
        edits = [Edit((*place, name), entry) for name, entry in entries.items()]
        if place[0] == "toolboxes" and "description" not in as_object(
            as_object(self.tree.get("toolboxes")).get(str(place[1]))
        ):
            edits.insert(0, Edit((*place[:2], "description"), about))
        return self.change(edits)

    def change(self, edits: Sequence[Edit]) -> str:
        """The text of the file with these changes, if it is a valid configuration."""
        text = apply_edits(self.file.text, edits, self.file.path)
        try:
            read_config(self.file.path, text=text)
        except SetupError as problem:
            raise SetupError(f"Nothing was written: with this change, {problem}") from None
        return text


def open_config(named: str | None) -> EditedConfig:
    """The named configuration, or the default one; it need not exist."""
    path = (
        named or os.environ.get("PEGBOARD_CONFIG") or next((name for name in FILES if Path(name).is_file()), FILES[0])
    )
    file = open_text_file(Path(path), Path(path).absolute().parent)
    return EditedConfig(file, dict(as_object(parse_text(file.text, file.path))))
