"""Finds the process that listens on a port of this machine, where the system tells (Linux)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

_LISTENING: Final = "0A"


def find_port_owner(port: int) -> str:
    """The name and the id of the process; empty if it is another user's, or if the system does not tell."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    if not sockets:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(str(handle.readlink()) in sockets for handle in (process / "fd").iterdir()):
                name = (process / "comm").read_text(errors="replace").strip()
                return f"{name} (process {process.name})"
    return ""


def _inodes(port: int) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError, ValueError, IndexError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found
