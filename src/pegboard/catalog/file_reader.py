"""Reads regular files up to a size limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from pegboard.errors import ToolError

_PIECE: Final = 256 * 1024
# Opening a FIFO would block; a resolved path has no links left to follow.
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def read_file(path: Path, limit: int) -> bytes:
    """The bytes of a resolved path; OSError if it is not a regular file, ToolError if it is over the limit."""
    # An opener, since `os.fdopen` leaves the descriptor of a folder open when it fails.
    with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, _FLAGS)) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise FileNotFoundError(path)
        pieces: list[bytes] = []
        # One byte more, in case the file grows or does not report its size.
        left = limit + 1 if about.st_size <= limit else 0
        wanted = about.st_size + 1
        while left > 0 and (piece := file.read(min(left, wanted))):
            pieces.append(piece)
            left -= len(piece)
            wanted = _PIECE
    if left == 0:
        raise ToolError(f"{path.name} is larger than the limit of {limit} bytes")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
