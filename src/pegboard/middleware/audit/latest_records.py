"""The latest records of an audit log, for people to look at."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from pegboard.middleware.audit.chain_files import chains_in

TAIL_BYTES: Final = 256 * 1024
"""How much of the end of each chain is read."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def latest_records(folder: Path, count: int) -> list[dict[str, Any]]:
    """The last records of all processes, the newest first; those in compressed files are left out."""
    found: list[dict[str, Any]] = []
    for segments in chains_in(folder).values():
        if segments and segments[-1].path.suffix != ".gz":
            found += _read_tail(segments[-1].path)
    found.sort(key=lambda record: str(record.get("at", "")), reverse=True)
    return found[:count]


def _read_tail(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    records = []
    # The first line may be the end of one.
    for line in lines[1:] if size > TAIL_BYTES else lines:
        with contextlib.suppress(msgspec.MsgspecError):
            record = _decode(line)
            if "action" in record:
                records.append(record)
    return records
