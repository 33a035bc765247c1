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
"""How many files of a folder are read at a time: each takes memory of its own."""

# For each file that may be listed: so many names are looked at before a folder counts as too large to be listed whole.
_SCAN_SECONDS: Final = 10


class Folder:
    """The files below a folder and none outside it, under URIs that begin with `uri`; what begins with a dot is hidden."""

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
        """One of the files of this folder, by its path."""
        try:
            # Resolved before it is compared: neither `..` nor a link leads out.
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
        """Whether anybody has looked yet."""
        return self._listed is not None

    def look(self) -> bool:
        """See which files there are, in a thread; says whether what has been listed before is not true any more."""
        # One looks for all who ask at the same time; only where nobody knows anything yet do they wait.
        if not self._looking.acquire(blocking=not self.seen):
            return False
        try:
            before, self._listed = self._listed, tuple(sorted(islice(self._walk(), self._limit)))
            return before is not None and before != self._listed
        finally:
            self._looking.release()

    def definitions(self) -> Iterator[dict[str, Json]]:
        """The files that were seen, as a list shows them."""
        for path in self._listed or ():
            shown: dict[str, Json] = {"uri": self.uri + quote(path), "name": path}
            kind = guess_by_suffix(path)
            yield shown if kind is None else {**shown, "mimeType": kind}

    def _walk(self) -> Iterator[str]:
        """Paths of files, folder by folder in the order of their names. What a link leads to is listed where it is."""
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
    """Whether a name can be told: one that is no UTF-8 is only bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
