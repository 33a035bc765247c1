"""A chain is continued after a crash, rotated by size and age, and undone where the disk is full."""

from __future__ import annotations

import resource
import signal
import time
from pathlib import Path

import pytest

from pegboard.middleware.audit import chain_writer
from pegboard.middleware.audit.chain_writer import ChainWriter
from pegboard.middleware.audit.hash_chain import read_chain_keys
from tests.middleware.audit.audit_records import SECRET, findings_of, lines_of, records_of
from tests.waiting import wait_until

RECORD = b'{"at":"2026-01-01T00:00:00.000Z","action":"tools/call","name":"work"}'


def writer_of(folder: Path, **options: float) -> ChainWriter:
    settings = {"max_bytes": 1 << 20, "max_age": 3600.0, "compress": False, "now": lambda: 1_767_225_600.0, **options}
    return ChainWriter(folder, read_chain_keys(SECRET)[0], **settings)  # type: ignore[arg-type]  # as each test chooses


@pytest.mark.parametrize("torn", [b"x", b'{"number":3,"at":', RECORD * 5000, b""], ids=["byte", "half", "long", "none"])
def test_an_incomplete_last_line_is_dropped_with_a_note_at_the_next_start(
    tmp_path: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2):
        writer = writer_of(tmp_path)
        writer.append([RECORD])
        writer.close()
        if number == 0:
            with (tmp_path / "audit-1.000001.jsonl").open("ab") as file:
                file.write(torn)
    assert len(records_of(tmp_path)) == 2
    assert findings_of(tmp_path) == []
    dropped = f"audit-1.000001.jsonl: dropped the last record, which was incomplete after a crash ({len(torn)} bytes)"
    assert [record.getMessage() for record in caplog.records] == ([dropped] if torn else [])


def test_an_incomplete_last_line_is_dropped_where_the_next_start_begins_a_new_file_too(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.append([RECORD])
    writer.close()
    with (tmp_path / "audit-1.000001.jsonl").open("ab") as file:
        file.write(b'{"number":3,"at":')
    writer = writer_of(tmp_path, max_bytes=10)
    writer.append([RECORD])
    writer.close()
    assert (tmp_path / "audit-1.000002.jsonl").exists()
    assert len(records_of(tmp_path)) == 2
    assert findings_of(tmp_path) == []


def test_a_process_that_died_between_a_line_and_the_head_loses_nothing(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.append([RECORD])
    head = (tmp_path / "audit-1.head").read_bytes()
    writer.append([RECORD])
    writer.close()
    (tmp_path / "audit-1.head").write_bytes(head)
    assert findings_of(tmp_path) == []
    writer = writer_of(tmp_path)
    writer.append([RECORD])
    writer.close()
    assert len(records_of(tmp_path)) == 3
    assert findings_of(tmp_path) == []


def test_the_next_file_begins_at_a_size_and_at_an_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_of(tmp_path, max_bytes=1000)
    for _ in range(20):
        writer.append([RECORD])
    files = len(list(tmp_path.glob("*.jsonl")))
    assert files > 2
    assert all(path.stat().st_size < 1500 for path in tmp_path.glob("*.jsonl"))
    writer.close()
    writer = writer_of(tmp_path, max_age=60.0)
    writer.append([RECORD])
    monkeypatch.setattr(chain_writer, "monotonic", lambda: real() + 61)
    writer.append([RECORD])
    writer.close()
    assert findings_of(tmp_path) == []


real = time.monotonic


def test_finished_files_are_compressed_and_still_checked(tmp_path: Path) -> None:
    writer = writer_of(tmp_path, max_bytes=1000, compress=True)
    for _ in range(20):
        writer.append([RECORD])
    finished = len(lines_of(tmp_path))
    wait_until(lambda: len(list(tmp_path.glob("*.jsonl"))) == 1)
    writer.close()
    assert len(list(tmp_path.glob("*.jsonl.gz"))) > 1
    assert not list(tmp_path.glob("*.part"))
    assert len(lines_of(tmp_path)) == finished
    assert findings_of(tmp_path) == []
    packed = sorted(tmp_path.glob("*.gz"))[1]
    packed.write_bytes(packed.read_bytes()[:-20])
    assert {finding.kind for finding in findings_of(tmp_path)} == {"changed", "removed"}


def test_what_could_not_be_compressed_before_a_crash_is_compressed_after_the_next_start(tmp_path: Path) -> None:
    writer = writer_of(tmp_path, max_bytes=1000)
    for _ in range(20):
        writer.append([RECORD])
    writer.close()
    (tmp_path / "audit-1.000001.jsonl.part").write_bytes(b"half")
    writer = writer_of(tmp_path, max_bytes=1000, compress=True)
    writer.open()
    wait_until(lambda: len(list(tmp_path.glob("*.jsonl"))) == 1)
    writer.close()
    assert findings_of(tmp_path) == []


def test_a_record_that_does_not_fit_on_the_disk_is_undone_and_the_next_one_is_written(tmp_path: Path) -> None:
    """The limit on the size of files of this process stands for a full disk."""
    writer = writer_of(tmp_path)
    writer.append([RECORD])
    size = (tmp_path / "audit-1.000001.jsonl").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, before[1]))
        with pytest.raises(OSError, match="File too large"):
            writer.append([RECORD])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "audit-1.000001.jsonl").stat().st_size == size
    writer.append([RECORD, RECORD])
    writer.close()
    assert len(records_of(tmp_path)) == 3
    assert findings_of(tmp_path) == []


def test_a_next_file_that_cannot_be_made_leaves_the_current_one_in_use(tmp_path: Path) -> None:
    writer = writer_of(tmp_path, max_bytes=300)
    writer.append([RECORD])
    blocked = tmp_path / "audit-1.000002.jsonl"
    blocked.mkdir()
    for _ in range(2):
        with pytest.raises(Exception, match="not a regular file"):
            writer.append([RECORD])
    blocked.rmdir()
    writer.append([RECORD])
    writer.close()
    assert len(records_of(tmp_path)) == 2
    assert findings_of(tmp_path) == []
