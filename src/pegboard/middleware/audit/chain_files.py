"""The files of an audit folder: `audit-1.000001.jsonl`, compressed ones with `.gz`, and the head `audit-1.head` of each chain.

The head says how many lines the chain has. It is mapped into memory: an update costs no system call and survives the death
of the process. Updates alternate between two slots, so that one of them is complete at any time.
"""

from __future__ import annotations

import gzip
import mmap
import os
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from msgspec import Struct

from pegboard.middleware.audit.hash_chain import ChainLine, split_line
from pegboard.security.ownership import create_own_file

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

MAX_CHAINS: Final = 1024
MAX_LINE: Final = 1 << 20
LATEST_BYTES: Final = 256 * 1024
"""How much of the end of each chain is read for the latest records."""

_FILE: Final = re.compile(r"(audit-[1-9][0-9]{0,3})\.([0-9]{6,12})\.jsonl(\.gz)?")
_HEAD: Final = re.compile(r"(audit-[1-9][0-9]{0,3})\.head")
_SLOT: Final = struct.Struct("<Q16sQ")
_HEAD_BYTES: Final = 2 * _SLOT.size
_TAIL_BYTES: Final = 64 * 1024
_decode: Final = msgspec.json.Decoder(ChainLine).decode
_decode_record = msgspec.json.Decoder(dict[str, Any]).decode


class HeadSlot(Struct, frozen=True, order=True):
    """What a head says: the number of the last line, the second half of its digest, and the number of its file."""

    number: int
    proof: bytes
    file: int


class Segment(Struct, frozen=True, order=True):
    """One file of a chain."""

    number: int
    path: Path

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open it for reading; it may have been compressed since it was found."""
        path = self.path
        if path.suffix != ".gz" and not path.exists():
            path = path.with_name(path.name + ".gz")
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]  # a GzipFile has all that is used of it

    def read_tail(self, size: int) -> list[bytes]:
        """The complete lines at its end, of about that many bytes; all lines if it is compressed."""
        skipped = 0
        with self.open() as file:
            if self.path.suffix != ".gz":
                skipped = file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            # `splitlines` would also split at other characters than the one that ends a line.
            lines = [text + b"\n" for text in file.read().split(b"\n")[:-1]]
        # The first one may be the end of a line.
        return lines[1:] if skipped else lines


def chains_in(folder: Path) -> dict[str, list[Segment]]:
    """The chains of a folder, each with its files in order; a chain may have lost all its files."""
    found: dict[str, dict[int, Path]] = {}
    for path in folder.iterdir():
        if head := _HEAD.fullmatch(path.name):
            found.setdefault(head[1], {})
        elif file := _FILE.fullmatch(path.name):
            files = found.setdefault(file[1], {})
            # Both exist if compression was interrupted after its last step but one.
            if path.suffix != ".gz" or int(file[2]) not in files:
                files[int(file[2])] = path
    in_order = sorted(found, key=lambda chain: (len(chain), chain))
    return {chain: [Segment(number, path) for number, path in sorted(found[chain].items())] for chain in in_order}


def file_path(folder: Path, chain: str, number: int) -> Path:
    return folder / f"{chain}.{number:06d}.jsonl"


def head_path(folder: Path, chain: str) -> Path:
    return folder / f"{chain}.head"


def read_line(line: bytes) -> ChainLine | None:
    """What the chain needs of a line; None if it is damaged."""
    if split_line(line) is None:
        return None
    try:
        return _decode(line)
    except msgspec.MsgspecError:
        return None


def read_head(path: Path) -> list[HeadSlot]:
    """The slots of a head that have been used, the newest first; empty if there is no head."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    if len(content) != _HEAD_BYTES:
        return []
    slots = (HeadSlot(*_SLOT.unpack_from(content, offset)) for offset in (0, _SLOT.size))
    return sorted((slot for slot in slots if slot.number), reverse=True)


def last_line(segments: Sequence[Segment]) -> ChainLine | None:
    """The last complete line of a chain; None if it has none. The end of a damaged file is left out."""
    for segment in reversed(segments):
        try:
            lines = segment.read_tail(_TAIL_BYTES + MAX_LINE)
        except (OSError, EOFError):
            continue
        found = next((line for text in reversed(lines) if (line := read_line(text)) is not None), None)
        if found is not None:
            return found
    return None


def latest_records(folder: Path, count: int) -> list[dict[str, Any]]:
    """The last records of all processes, the newest first; those in compressed files are left out."""
    found: list[dict[str, Any]] = []
    for segments in chains_in(folder).values():
        lines: list[bytes] = []
        if segments and segments[-1].path.suffix != ".gz":
            with suppress(OSError):
                lines = segments[-1].read_tail(LATEST_BYTES)
        for line in lines:
            with suppress(msgspec.MsgspecError):
                found.append(_decode_record(line))
    found = [record for record in found if "action" in record]
    found.sort(key=lambda record: str(record.get("at", "")), reverse=True)
    return found[:count]


class ChainHead:
    """The head of a chain that this process writes; no other process can hold it at the same time."""

    def __init__(self, chain: str, file: int) -> None:
        self.chain = chain
        self._file = file
        if os.fstat(file).st_size != _HEAD_BYTES:
            os.ftruncate(file, _HEAD_BYTES)
        self._map = mmap.mmap(file, _HEAD_BYTES)

    def write(self, number: int, proof: bytes, file: int) -> None:
        """Move the head to a line that is in its file."""
        _SLOT.pack_into(self._map, _SLOT.size * (number & 1), number, proof, file)

    def sync(self) -> None:
        """Write it to the disk."""
        self._map.flush()

    def close(self) -> None:
        self._map.close()
        os.close(self._file)


def take_chain(folder: Path) -> ChainHead:
    """The first chain of a folder that no living process writes; OSError if there are too many."""
    for number in range(1, MAX_CHAINS + 1):
        chain = f"audit-{number}"
        path = head_path(folder, chain)
        create_own_file(path)
        file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
        if _lock(file):
            return ChainHead(chain, file)
        os.close(file)
    raise OSError(f"{folder}: {MAX_CHAINS} processes write to it already")


def _lock(file: int) -> bool:
    """Lock a file until it is closed; False if another process has locked it."""
    try:
        if sys.platform == "win32":
            os.lseek(file, _HEAD_BYTES, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
