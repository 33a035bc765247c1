"""Reads what an audit log recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pegboard.middleware.audit.chain_files import chains_in
from pegboard.middleware.audit.hash_chain import read_chain_keys
from pegboard.middleware.audit.verification import ChainFinding, verify_folder

SECRET = "a secret of the tests"


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """All lines of all chains."""
    lines = []
    for segments in chains_in(folder).values():
        for segment in segments:
            with segment.open() as file:
                lines += [json.loads(line) for line in file if line.endswith(b"\n")]
    return lines


def records_of(folder: Path) -> list[dict[str, Any]]:
    """The calls and decisions, without the members that belong to the chain."""
    records = [line for line in lines_of(folder) if line["action"] != "audit.open"]
    return [{name: value for name, value in record.items() if name not in ("number", "hash")} for record in records]


def findings_of(folder: Path, secret: str | None = SECRET, **options: Any) -> list[ChainFinding]:
    """What is wrong with the chains of a folder."""
    reports = verify_folder(folder, read_chain_keys(secret), **options)
    return [finding for report in reports for finding in report.findings]
