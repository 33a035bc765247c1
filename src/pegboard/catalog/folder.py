"""A folder whose files are resources."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pegboard.call import Json
from pegboard.catalog.file_reader import read_file
from pegboard.errors import DeclarationError
from pegboard.media import File
from pegboard.protocol.content import guess_by_suffix, name_of

READS: Final = 4
"""How many files of a folder are read at a time: each takes memory."""

# For each file that may be listed, this many names are read before a folder counts as too large to list.
_SCAN_SECONDS: Final = 10


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
