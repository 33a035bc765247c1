"""Appends records to one chain: linked to each other, rotated by size and age.

A process that begins to write takes a chain that no living process writes, and continues it. Where the end of the file does
not fit the head, the first line says so, and the numbers continue after the larger one: what is missing stays visible.
"""

from __future__ import annotations

import gzip
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from pegboard import __version__
from pegboard.call import Json
from pegboard.middleware.audit.chain_files import (
    MAX_LINE,
    ChainHead,
    Segment,
    chains_in,
    file_path,
    head_path,
    last_line,
    read_head,
    read_line,
    take_chain,
)
from pegboard.middleware.audit.hash_chain import OPEN, START, ChainKey
from pegboard.middleware.observability.call_record import timestamp
from pegboard.security.ownership import create_own_file

_log = logging.getLogger("pegboard.audit")
_encode = msgspec.json.Encoder().encode
_sync = getattr(os, "fdatasync", os.fsync)
_APPEND: Final = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
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


class ChainWriter:
    """Writes one chain of a folder, for any thread.

    max_bytes: the size at which the next file begins.
    max_age: the age in seconds at which the next file begins.
    keep_files: how many files are kept; None for all.
    compress: whether finished files are compressed.
    sync: whether a record is on the disk when `append` returns; otherwise the system writes it soon.
    on_written: called with the name of the chain and the lines that have been written.
    """

    def __init__(
        self,
        folder: Path,
        key: ChainKey,
        *,
        max_bytes: int,
        max_age: float,
        keep_files: int | None = None,
        compress: bool = True,
        sync: bool = False,
        on_written: Callable[[str, Sequence[bytes]], object] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._key, self._now = folder, key, now
        self._max_bytes, self._max_age, self._keep_files = max_bytes, max_age, keep_files
        self._sync, self._on_written = sync, on_written
        self._compressor = FileCompressor() if compress else None
        self._head: ChainHead | None = None
        self._file = -1
        self._size = self._number = self._segment = 0
        self._rotate_at = 0.0
        self._previous = START
        self._lock = threading.RLock()

    @property
    def chain(self) -> str:
        """The name of the chain that is written now."""
        return "" if self._head is None else self._head.chain

    def open(self) -> None:
        """Take a chain and continue it, unless one is open.

        OSError if that is not possible, SetupError if another user controls a file.
        """
        with self._lock:
            if self._head is not None:
                return
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._head = take_chain(self._folder)
            try:
                self._continue(self._head)
            except BaseException:
                self.close()
                raise

    def append(self, records: Sequence[bytes]) -> None:
        """Append records, each a JSON object; OSError if that is not possible, and then none of them is appended."""
        with self._lock:
            if self._head is None:
                self.open()
            elif self._size >= self._max_bytes or monotonic() >= self._rotate_at:
                self._begin_file(self._segment + 1)
            self._write(records)

    def close(self) -> None:
        """Release the chain; the next record takes one again."""
        with self._lock:
            if self._compressor is not None:
                self._compressor.stop()
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            if self._head is not None:
                self._head.close()
                self._head = None

    def _continue(self, head: ChainHead) -> None:
        segments = chains_in(self._folder).get(head.chain, [])
        slots, last = read_head(head_path(self._folder, head.chain)), last_line(segments)
        self._number, self._previous, problem = 0, START, ""
        if last is not None:
            self._number, self._previous = last.number, last.hash.encode()
        if not slots and last is not None:
            problem = "missing"
        elif slots and slots[0].number > self._number:
            # The lines that the head counts are gone: continue behind them, so that the gap can be seen.
            problem, self._previous = f"the last line was {self._number}", START
            self._number = slots[0].number
        if problem:
            _log.error("%s: the end of %s does not fit its head; run `pegboard audit verify`", self._folder, head.chain)
        self._segment = max([slot.file for slot in slots] + [segment.number for segment in segments], default=0)
        current = file_path(self._folder, head.chain, self._segment)
        if self._compressor is not None:
            self._compressor.add([segment.path for segment in segments if segment.path != current])
        if not problem and segments and segments[-1].path == current:
            # Also if the next file begins: the process that wrote it may have died within a line, which is dropped here.
            self._open_file(current)
        if not problem and self._fits(segments, current):
            self._write([self._opening(self._segment)])
        else:
            self._begin_file(self._segment + 1, problem)

    def _fits(self, segments: Sequence[Segment], path: Path) -> bool:
        """Whether new lines may be appended to the last file: it is not compressed, not large, and has the same key."""
        if not segments or segments[-1].path != path or path.stat().st_size >= self._max_bytes:
            return False
        with path.open("rb") as file:
            first = read_line(file.readline(MAX_LINE))
        return first is not None and first.action == OPEN and first.key == self._key.id

    def _begin_file(self, number: int, problem: str = "") -> None:
        """Begin the next file; if that fails, the current one stays in use."""
        chain = self.chain
        path = file_path(self._folder, chain, number)
        before, size = self._file, self._size
        removed, first = self._choose_removed(chain)
        try:
            self._open_file(path)
            self._write([self._opening(number, problem, first)], number)
        except BaseException:
            if self._file not in (before, -1):
                os.close(self._file)
            self._file, self._size = before, size
            if self._head is None:
                self.close()
            with suppress(OSError):
                path.unlink()
            raise
        if self._sync:
            _sync_folder(self._folder)
        self._segment = number
        if before >= 0:
            os.close(before)
            if self._compressor is not None:
                self._compressor.add([file_path(self._folder, chain, number - 1)])
        for segment in removed:
            with suppress(OSError):
                segment.path.unlink()

    def _open_file(self, path: Path) -> None:
        create_own_file(path)
        file = os.open(path, _APPEND)
        self._file, self._size = file, _drop_partial_line(file, path)
        self._rotate_at = monotonic() + self._max_age

    def _choose_removed(self, chain: str) -> tuple[Sequence[Segment], int]:
        """The files to remove once the next one has begun, and the first line that is then kept."""
        if self._keep_files is None:
            return (), 1
        segments = chains_in(self._folder).get(chain, [])
        kept = segments[-(self._keep_files - 1) :] if self._keep_files > 1 else []
        if not kept:
            return segments, self._number + 1
        with kept[0].open() as file:
            first = read_line(file.readline(MAX_LINE))
        return segments[: len(segments) - len(kept)], 1 if first is None else first.number

    def _opening(self, file: int, problem: str = "", first: int = 1) -> bytes:
        ends = {
            chain: last_line(segments) for chain, segments in chains_in(self._folder).items() if chain != self.chain
        }
        opening: dict[str, Json] = {
            "at": timestamp(self._now()),
            "action": OPEN,
            "file": file,
            "previous": self._previous.decode(),
            "key": self._key.id,
            "head": problem,
            "first": first,
            "others": {chain: (line.number, line.hash) for chain, line in ends.items() if line is not None},
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pegboard": __version__,
        }
        return _encode({name: value for name, value in opening.items() if value not in ("", {})})

    def _write(self, records: Sequence[bytes], segment: int | None = None) -> None:
        number, previous, proof, file, link = self._number, self._previous, b"", self._file, self._key.link
        lines = []
        for record in records:
            number += 1
            line, previous, proof = link(previous, b'{"number":%d,%b' % (number, record[1:-1]))
            lines.append(line)
        data = lines[0] if len(lines) == 1 else b"".join(lines)
        try:
            written = os.write(file, data)
            while written < len(data):
                written += os.write(file, data[written:])
            if self._sync:
                _sync(file)
        except BaseException:
            self._undo(file)
            raise
        self._size += len(data)
        self._number, self._previous = number, previous
        if self._head is not None:
            self._head.write(number, proof, self._segment if segment is None else segment)
            if self._on_written is not None:
                self._on_written(self._head.chain, lines)

    def _undo(self, file: int) -> None:
        """Remove what was written of records that could not be written completely."""
        try:
            os.ftruncate(file, self._size)
        except OSError:
            # The next record opens the chain again, which removes an incomplete line.
            self.close()


def _drop_partial_line(file: int, path: Path) -> int:
    """Remove the end of a line that a process wrote when it died; returns the size of the file."""
    size = end = os.lseek(file, 0, os.SEEK_END)
    kept = 0
    while end and not kept:
        begin = max(0, end - _CHUNK_BYTES)
        os.lseek(file, begin, os.SEEK_SET)
        kept = begin + os.read(file, end - begin).rfind(b"\n") + 1
        kept, end = (kept if kept > begin else 0), begin
    if kept < size:
        os.ftruncate(file, kept)
        _log.warning(
            "%s: dropped the last record, which was incomplete after a crash (%d bytes)", path.name, size - kept
        )
    return kept


def _sync_folder(folder: Path) -> None:
    """Write the names of new files to the disk."""
    if sys.platform != "win32":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
