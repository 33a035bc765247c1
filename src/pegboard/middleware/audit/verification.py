"""Checks the chains of an audit folder: what was changed, removed, added or cut, and where."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from pegboard.errors import SetupError
from pegboard.middleware.audit.chain_files import (
    MAX_LINE,
    HeadSlot,
    Segment,
    chains_in,
    head_path,
    read_head,
    read_line,
)
from pegboard.middleware.audit.hash_chain import OPEN, START, ChainKey, ChainLine, find_key, split_line

FindingKind: TypeAlias = Literal["changed", "removed", "added", "cut", "unsealed", "key", "note"]
End: TypeAlias = tuple[int, str]
"""The number and the tag of a line that was the last one at some time."""

MAX_FINDINGS: Final = 100
_CLOCK_SECONDS: Final = 1.0


class ChainFinding(Struct, frozen=True, omit_defaults=True):
    """Something in a chain that is not as it was written; a `note` is worth knowing, and no proof of a change.

    file, line: where it is.
    number: the number of the record.
    """

    kind: FindingKind
    text: str
    file: str = ""
    line: int = 0
    number: int = 0


class ChainReport(Struct):
    """What was found in one chain; `number` and `hash` are those of its last record."""

    chain: str
    files: int = 0
    records: int = 0
    number: int = 0
    hash: str = ""
    findings: list[ChainFinding] = field(default_factory=list)
    left_out: int = 0

    @property
    def is_intact(self) -> bool:
        return all(finding.kind == "note" for finding in self.findings) and not self.left_out

    def add(self, finding: ChainFinding) -> None:
        """Add a finding; those beyond a limit are counted."""
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)
        else:
            self.left_out += 1


def verify_folder(
    folder: Path,
    keys: Sequence[ChainKey],
    *,
    expected: Sequence[tuple[str, End]] = (),
    partial: bool = False,
    unsealed: bool = False,
) -> list[ChainReport]:
    """Check all chains of a folder.

    expected: ends of chains that were noted before, and must still be in them.
    partial: the oldest files may be elsewhere.
    unsealed: files may be written without a key, although keys are given.
    """
    if not folder.is_dir():
        raise SetupError(f"{folder} is not a folder; name the folder of the audit log")
    # First the heads: records that are added meanwhile are behind them.
    heads = {chain: read_head(head_path(folder, chain)) for chain in chains_in(folder)}
    chains = chains_in(folder)
    if not chains:
        raise SetupError(f"{folder} contains no audit log")
    sealed = any(key.id for key in keys)
    if not sealed or unsealed:
        keys = [*keys, ChainKey(None)]
    reports: list[ChainReport] = []
    ends: dict[str, End] = {}
    for chain, segments in chains.items():
        check = _ChainCheck(chain, keys, heads.get(chain, []), partial)
        reports.append(check.run(segments))
        for other, end in check.others.items():
            ends[other] = max(ends.get(other, end), end)
    # Each on its own: a later end that the files themselves name must not stand in for one that was noted elsewhere.
    for chain, end in [*expected, *ends.items()]:
        report = next((report for report in reports if report.chain == chain), None)
        if report is None:
            report = ChainReport(chain)
            reports.append(report)
        _check_end(report, chains.get(chain, []), end)
    return reports


class _ChainCheck:
    """Reads one chain from its first line to its last."""

    def __init__(self, chain: str, keys: Sequence[ChainKey], head: Sequence[HeadSlot], partial: bool) -> None:
        self.report = ChainReport(chain)
        self.others: dict[str, End] = {}
        self._keys, self._head, self._partial = keys, head, partial
        self._proofs: dict[int, bytes | None] = {slot.number: None for slot in head}
        self._key: ChainKey | None = None
        self._previous: bytes | None = START
        self._at = ""
        self._begins_at = 0
        self._first = 1
        self._place = ("", 0)
        self._unknown: set[str] = set()

    def run(self, segments: Sequence[Segment]) -> ChainReport:
        report = self.report
        for segment, before in zip(segments, (None, *segments), strict=False):
            if before is not None and segment.number > before.number + 1:
                self._found("removed", f"{_files(before.number + 1, segment.number - 1)} missing", line=0)
            report.files += 1
            self._read(segment, is_last=segment is segments[-1])
        if self._begins_at > self._first and not self._partial:
            lines = f"records {self._first}–{self._begins_at - 1}"
            report.add(ChainFinding("removed", f"{lines} are not here; if their files were archived, use --partial"))
        self._check_head()
        return report

    def _read(self, segment: Segment, is_last: bool) -> None:
        self._place = segment.path.name, 0
        try:
            with segment.open() as file:
                while line := file.readline(MAX_LINE):
                    self._place = segment.path.name, self._place[1] + 1
                    if not line.endswith(b"\n") and is_last:
                        self._found("note", "the last line is incomplete: its process died, or still writes it")
                        return
                    self._check(line)
        except (OSError, EOFError, zlib.error) as problem:
            self._found("changed", f"cannot be read to its end: {problem}")

    def _check(self, line: bytes) -> None:
        read, parts = read_line(line), split_line(line)
        report = self.report
        if read is None or parts is None:
            self._found("changed", "is not a line of this log")
            self._previous, report.number = None, report.number + 1
            return
        if not report.records:
            self._begins_at, self._previous = read.number, START if read.number == 1 else None
        report.records += 1
        in_order = self._check_number(read)
        if read.action == OPEN:
            self._open(read)
        self._check_tag(read, *parts, in_order)
        self._check_clock(read)
        report.number, report.hash = read.number, read.hash
        self._previous = read.hash.encode()

    def _check_number(self, read: ChainLine) -> bool:
        wanted = self.report.number + 1
        if read.number == wanted or self.report.records == 1:
            return True
        if read.number > wanted:
            self._found("removed", f"{_records(wanted, read.number - 1)} missing before this line", read.number)
        else:
            self._found("added", f"record {read.number} is out of order: {wanted} comes here", read.number)
        return False

    def _open(self, read: ChainLine) -> None:
        """The first line of a file or process."""
        self._first = max(self._first, read.first)
        self._key = find_key(self._keys, read.key)
        if self._key is None and not read.key:
            self._found(
                "unsealed", "is not sealed with a key: anyone could have written it; --unsealed accepts it", read.number
            )
        elif self._key is None and read.key not in self._unknown:
            self._unknown.add(read.key)
            given = " or ".join(key.id for key in self._keys if key.id) or "none"
            self._found("key", f"is sealed with the key {read.key}, but the given key is {given}", read.number)
        if read.head:
            self._found("cut", f"the log did not end as its head says when it was opened: {read.head}", read.number)
        for chain, end in read.others.items():
            self.others[chain] = max(self.others.get(chain, end), end)
        if self._previous is None:
            self._previous = read.previous.encode()

    def _check_tag(self, read: ChainLine, text: bytes, tag: bytes, in_order: bool) -> None:
        if self._key is None or not in_order:
            return
        if self._previous is None:
            self._found("note", "cannot be checked: the line before it is damaged", read.number)
            return
        _, wanted, proof = self._key.link(self._previous, text)
        if wanted != tag:
            self._found("changed", "was changed, or was not written by this log", read.number)
        elif read.number in self._proofs:
            self._proofs[read.number] = proof

    def _check_clock(self, read: ChainLine) -> None:
        if read.at < self._at:
            back = (_moment(self._at) - _moment(read.at)) if _moment(read.at) and _moment(self._at) else 0.0
            if back > _CLOCK_SECONDS:
                self._found("note", f"the clock went back by {back:.0f} s", read.number)
        self._at = read.at

    def _check_head(self) -> None:
        report = self.report
        self._place = f"{report.chain}.head", 0
        if not self._head:
            self._found("cut", "is missing, so that the end of the log cannot be checked", line=0)
            return
        newest = self._head[0].number
        if newest > report.number:
            self._found("cut", f"{_records(report.number + 1, newest)} missing at the end", newest)
            return
        if not report.is_intact:
            return
        proofs = [(slot.proof, self._proofs[slot.number]) for slot in self._head]
        if self._key is not None and not any(found == wanted for found, wanted in proofs):
            self._found("cut", "does not belong to the end of this log", newest)

    def _found(self, kind: FindingKind, text: str, number: int = 0, line: int | None = None) -> None:
        file, current = self._place
        self.report.add(ChainFinding(kind, text, file, current if line is None else line, number))


def _check_end(report: ChainReport, segments: Sequence[Segment], end: End) -> None:
    """A line that was the last one at some time must still be there, with the same tag."""
    number, tag = end
    if report.number < number:
        if not any(finding.kind == "cut" for finding in report.findings):
            report.add(ChainFinding("cut", f"{_records(report.number + 1, number)} missing at the end", number=number))
        return
    found = next((line for line in _lines_near(segments, number) if line.number == number), None)
    if found is not None and found.hash != tag:
        report.add(ChainFinding("changed", f"record {number} is not the one that was noted elsewhere", number=number))


def _lines_near(segments: Sequence[Segment], number: int) -> Iterator[ChainLine]:
    """The lines of the file that contains this number."""
    for segment in reversed(segments):
        try:
            with segment.open() as file:
                first = read_line(file.readline(MAX_LINE))
                if first is None or first.number > number:
                    continue
                yield first
                while line := file.readline(MAX_LINE):
                    if (read := read_line(line)) is not None:
                        yield read
        except (OSError, EOFError, zlib.error):
            continue
        return


def _moment(at: str) -> float:
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0


def _records(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first}–{last} are"


def _files(first: int, last: int) -> str:
    return f"file {first} is" if first == last else f"files {first}–{last} are"
