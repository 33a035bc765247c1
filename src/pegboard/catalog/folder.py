"""A folder whose files are resources."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pegboard.call import Json
from pegboard.errors import DeclarationError, ToolError
from pegboard.media import File
from pegboard.protocol.content import guess_by_suffix, name_of

READS: Final = 4
"""How many files of a folder are read at a time: each takes memory."""

# For each file that may be listed, this many names are read before a folder counts as too large to list.
_SCAN_SECONDS: Final = 10

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


class Folder:
    """The files in a folder and none outside it, under URIs that start with `uri`; names that start with a dot are
    hidden."""

    def __init__(self, uri: str, folder: Path, limit: int, file_bytes: int) -> None:
        self.root = folder.resolve()
        if not self.root.is_dir():
            raise DeclarationError(f"{folder} is not a folder")
        self.uri = uri if uri.endswith("://") else uri.rstrip("/") + "/"
        self._limit = limit
        self._file_bytes = file_bytes
        self._reading = threading.BoundedSemaphore(READS)
        self._listed: tuple[str, ...] | None = None
        self._looking = threading.Lock()

    @property
    def template(self) -> str:
        return self.uri + "{+path}"

    def read(self, path: str) -> File | None:
        """The file of this folder with a path."""
        try:
            # Resolved before the comparison: neither `..` nor a link leads out.
            found = (self.root / path).resolve()
            if "\0" in path or not found.is_relative_to(self.root):
                return None
            if any(part.startswith(".") for part in found.relative_to(self.root).parts):
                return None
            with self._reading:
                return File(read_file(found, self._file_bytes), name=name_of(path))
        except (OSError, ValueError):
            return None

    @property
    def seen(self) -> bool:
        """Whether the folder has been scanned."""
        return self._listed is not None

    def look(self) -> bool:
        """Scan the folder in a thread; returns whether the list has changed."""
        # One scan for concurrent requests; they wait only for the first one.
        if not self._looking.acquire(blocking=not self.seen):
            return False
        try:
            before, self._listed = self._listed, tuple(sorted(islice(self._walk(), self._limit)))
            return before is not None and before != self._listed
        finally:
            self._looking.release()

    def definitions(self) -> Iterator[dict[str, Json]]:
        """The files found by the last scan, as list items."""
        for path in self._listed or ():
            shown: dict[str, Json] = {"uri": self.uri + quote(path), "name": path}
            kind = guess_by_suffix(path)
            yield shown if kind is None else {**shown, "mimeType": kind}

    def _walk(self) -> Iterator[str]:
        """Paths of files, folder by folder in the order of their names. A link is listed where its target is."""
        left = self._limit * _SCAN_SECONDS
        folders = [""]
        while folders and left > 0:
            folder = folders.pop()
            try:
                with os.scandir(self.root / folder) as entries:
                    found = sorted(islice(entries, left), key=lambda entry: entry.name)
            except OSError:
                continue
            left -= len(found)
            deeper: list[str] = []
            for entry in found:
                if entry.name.startswith(".") or not _is_text(entry.name):
                    continue
                if entry.is_file(follow_symlinks=False):
                    yield folder + entry.name
                elif entry.is_dir(follow_symlinks=False):
                    deeper.append(f"{folder}{entry.name}/")
            folders.extend(reversed(deeper))


def _is_text(name: str) -> bool:
    """Whether a name can be sent: one that is not UTF-8 cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
