"""Files of clients: an entry is added and removed, and all the rest means what it did, or the file is refused."""

from __future__ import annotations

from pathlib import Path

from pegboard.config.editing.edits import Edit, apply_edits, parse_text
from pegboard.config.source_file import decode_source
from pegboard.errors import SetupError

NAMES = ("mcp.json", "config.toml")
PLACE = ("mcpServers", "a server")


def check(data: bytes) -> None:
    """The first byte chooses the name, and with it the format."""
    file = Path(NAMES[data[0] % len(NAMES) if data else 0])
    try:
        text = decode_source(data[1:], file)[0]
        before = parse_text(text, file)
        added = apply_edits(text, [Edit(PLACE, {"command": "x", "args": ["y"]})], file)
        removed = apply_edits(added, [Edit(PLACE)], file)
    except SetupError:
        return
    left = parse_text(removed, file)
    for tree in (before, left):
        if isinstance(tree, dict) and isinstance(servers := tree.get(PLACE[0]), dict):
            servers.pop(PLACE[1], None)
            if not servers:
                del tree[PLACE[0]]
    assert file.suffix == ".toml" or left == before
