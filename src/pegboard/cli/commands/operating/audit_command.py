"""`pegboard audit verify|show`: check an audit log, and search it."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from heapq import merge
from pathlib import Path
from typing import Any

import msgspec

from pegboard.cli.arguments.record_filters import RecordFilter, add_filters, read_filters
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.audited import audit_folder
from pegboard.cli.terminal.output import note, show, show_json, show_json_line
from pegboard.cli.terminal.tables import show_wrapped
from pegboard.errors import SetupError
from pegboard.middleware.audit.chain_files import MAX_LINE, Segment, chains_in
from pegboard.middleware.audit.hash_chain import read_chain_keys
from pegboard.middleware.audit.verification import ChainFinding, ChainReport, End, verify_folder
from pegboard.security.ownership import open_own_file
from pegboard.tools.naming import counted

OK, CHANGED = 0, 1

_END = re.compile(r"(audit-[0-9]{1,4}):([0-9]{1,18}):([0-9a-f]{32})")


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard audit",
        description="Check that an audit log is complete and unchanged, or search it.",
        examples=("pegboard audit verify audit.jsonl", "pegboard audit show audit.jsonl --since 12h --json"),
        codes="0 intact, 1 something was changed, removed or cut, 2 wrong usage or set-up",
    )
    verbs = parser.add_subparsers(dest="action", required=True, metavar="verify|show")
    verify = verbs.add_parser("verify", help="check every record, and the end of every file")
    verify.add_argument("--secret-file", metavar="FILE", help="the key of the log; default: PEGBOARD_SECRET")
    verify.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="LOG:NUMBER:HASH",
        help="an end of the log that was noted before; repeat for more",
    )
    verify.add_argument("--partial", action="store_true", help="the oldest files are elsewhere")
    verify.add_argument("--unsealed", action="store_true", help="accept files that were written without a key")
    verify.add_argument("--json", action="store_true", help="print the findings as JSON")
    reading = verbs.add_parser("show", help="print records, the oldest first")
    add_filters(reading)
    reading.add_argument("-n", type=int, default=0, metavar="COUNT", help="only the last so many")
    for verb in (verify, reading):
        verb.add_argument("path", metavar="PATH", help="the folder of the log, or a configuration with Audit")
    chosen = parser.parse_args(argv)
    folder = audit_folder(chosen.path)
    if chosen.action == "show":
        return _show(folder, read_filters(chosen), chosen.n, chosen.json)
    secret = _read_secret(chosen.secret_file)
    reports = verify_folder(
        folder,
        read_chain_keys(secret),
        expected=list(map(_read_end, chosen.expect)),
        partial=chosen.partial,
        unsealed=chosen.unsealed,
    )
    return _report(reports, is_sealed=bool(secret), as_json=chosen.json)


def _read_secret(path: str | None) -> str | None:
    if path is None:
        return os.environ.get("PEGBOARD_SECRET")
    try:
        with open_own_file(Path(path)) as file:
            return file.read(65536).decode().strip()
    except OSError as problem:
        raise SetupError(f"--secret-file {path}: {problem.strerror}") from None


def _read_end(text: str) -> tuple[str, End]:
    found = _END.fullmatch(text)
    if found is None:
        raise SetupError(f"--expect {text!r}: write it as `pegboard audit verify` prints it, such as audit-1:42:…")
    return found[1], (int(found[2]), found[3])


def _report(reports: list[ChainReport], *, is_sealed: bool, as_json: bool) -> int:
    intact = all(report.is_intact for report in reports)
    if as_json:
        show_json({"intact": intact, "logs": reports})
        return OK if intact else CHANGED
    for report in reports:
        size = f"{counted(report.records, 'record')} in {counted(report.files, 'file')}"
        show(f"{report.chain}:{report.number}:{report.hash}   {size}")
        for finding in report.findings:
            show(f"  {'note' if finding.kind == 'note' else 'FAILED'}  {_place(finding)}{finding.text}")
        if report.left_out:
            show(f"  … and {report.left_out} more")
    if intact:
        note(
            "intact"
            if is_sealed
            else "intact; without a key, this does not show changes by someone who can write the files"
        )
    else:
        note("the audit log is not as it was written")
    return OK if intact else CHANGED


def _place(finding: ChainFinding) -> str:
    line = f":{finding.line}" if finding.line else ""
    number = f" record {finding.number}" if finding.number else ""
    return f"{finding.file}{line}{number}: " if finding.file else ""


# -- show ---------------------------------------------------------------------------------------------------------------


def _show(folder: Path, wanted: RecordFilter, last: int, as_json: bool) -> int:
    found: Iterable[tuple[str, bytes, dict[str, Any]]] = _records(folder, wanted)
    for _, line, record in deque(found, maxlen=last) if last > 0 else found:
        if as_json:
            show_json_line(line)
        else:
            show_wrapped(_describe(record))
    return OK


def _records(folder: Path, wanted: RecordFilter) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    chains = chains_in(folder)
    if not chains:
        raise SetupError(f"{folder} contains no audit log")
    for at, line, record in merge(*map(_lines, chains.values()), key=lambda found: found[0]):
        if wanted.matches(
            name=str(record.get("name", "")),
            server=f"{record.get('toolbox', '')}/{record.get('server', '')}",
            principal=str(record.get("principal", "")),
            outcome=str(record.get("outcome", "")),
            at=_seconds(at),
            text=line.decode("utf-8", "replace"),
        ):
            yield at, line, record


def _lines(segments: list[Segment]) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    for segment in segments:
        with segment.open() as file:
            while line := file.readline(MAX_LINE):
                try:
                    record = msgspec.json.decode(line, type=dict[str, Any])
                except msgspec.MsgspecError:
                    continue
                yield str(record.get("at", "")), line, record


def _seconds(at: str) -> float:
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0


def _describe(record: Mapping[str, Any]) -> str:
    who = record.get("principal") or record.get("client") or "-"
    parts = [str(record.get("at", "")), str(who), str(record.get("action", "")), str(record.get("name", ""))]
    if "outcome" in record:
        parts.append(str(record["outcome"]) + (f" ({record['error']})" if "error" in record else ""))
    for name in ("elapsed_ms", "rule", "approval", "credential", "arguments", "details"):
        if name in record:
            value = record[name]
            shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            parts.append(f"{name}={shown}")
    return "  ".join(part for part in parts if part)
