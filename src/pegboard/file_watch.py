"""Notices edits of files by looking at them again and again.

A change must look the same at two looks before it counts, so that an editor can finish writing; a file that was only
touched, or saved unchanged, does not count.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

FileState: TypeAlias = tuple[int, int, int, int]
UNSEEN: Final = (-1, -1, -1, -1)


def state_of(path: Path) -> FileState | None:
    """Identifies the state of a file; editors that replace it change the inode."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


def digest_of(path: Path) -> bytes:
    """The digest of a file's content, or of the names of the modules in a folder; empty if it cannot be read."""
    try:
        if path.is_dir():
            return "\n".join(sorted(module.name for module in path.glob("*.py"))).encode()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return b""


def forget_bytecode(path: Path) -> None:
    """Let an edited module be compiled again: Python compares only its size and the second in which it was written."""
    if path.suffix == ".py":
        with contextlib.suppress(OSError, NotImplementedError):
            Path(cache_from_source(path)).unlink()


class _Followed(Struct):
    settled: FileState | None
    seen: FileState | None
    digest: bytes


class FileWatch:
    """The files that are followed; `look` is called repeatedly."""

    def __init__(self) -> None:
        self._files: dict[Path, _Followed] = {}

    @property
    def paths(self) -> Iterable[Path]:
        return self._files.keys()

    def follow(self, paths: Iterable[Path], since: float) -> None:
        """Follow these files, and no others; one that was written after the time `since` counts as edited."""
        before, self._files = self._files, {}
        for path in paths:
            known = before.get(path)
            if known is None:
                state = state_of(path)
                late = state is not None and state[0] / 1e9 > since
                known = _Followed(UNSEEN, UNSEEN, b"") if late else _Followed(state, state, digest_of(path))
            self._files[path] = known

    def look(self) -> list[Path]:
        """The files that were edited since they were last returned."""
        edited = []
        for path, file in self._files.items():
            state = state_of(path)
            finished, file.seen = state == file.seen, state
            if not finished or state == file.settled:
                continue
            file.settled = state
            digest = b"" if state is None else digest_of(path)
            if digest != file.digest:
                file.digest = digest
                edited.append(path)
        return edited
