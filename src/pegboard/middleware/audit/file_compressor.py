"""Compresses finished files in a thread."""

from __future__ import annotations

import gzip
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pegboard.security.ownership import create_own_file

_log = logging.getLogger("pegboard.audit")
_CHUNK_BYTES: Final = 1 << 18


class FileCompressor:
    """Compresses finished files in a thread; what it does not finish is compressed after the next start."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    def add(self, paths: Sequence[Path]) -> None:
        """Compress these files, unless they are."""
        with self._lock:
            self._paths += [path for path in paths if path.suffix != ".gz"]
            if self._paths and self._thread is None:
                self._stopping.clear()
                self._thread = threading.Thread(target=self._run, name="pegboard-audit-gzip", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread; the file that it works on stays as it is."""
        self._stopping.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._paths or self._stopping.is_set():
                    self._paths.clear()
                    self._thread = None
                    return
                path = self._paths.pop(0)
            try:
                self._compress(path)
            except OSError as problem:
                _log.warning("%s could not be compressed: %s", path.name, problem)

    def _compress(self, path: Path) -> None:
        if not path.exists():
            return
        packed, part = path.with_name(path.name + ".gz"), path.with_name(path.name + ".part")
        part.unlink(missing_ok=True)
        create_own_file(part)
        try:
            with path.open("rb") as plain, part.open("r+b") as raw, gzip.GzipFile("", "wb", 6, raw) as file:
                while chunk := plain.read(_CHUNK_BYTES):
                    if self._stopping.is_set():
                        return
                    file.write(chunk)
                file.close()
                os.fsync(raw.fileno())
            part.replace(packed)
            path.unlink()
        finally:
            part.unlink(missing_ok=True)
