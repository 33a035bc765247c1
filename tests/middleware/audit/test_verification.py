"""A chain that was changed, cut or rearranged is reported with the place."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pegboard.errors import SetupError
from pegboard.middleware.audit.chain_writer import ChainWriter
from pegboard.middleware.audit.hash_chain import ChainKey, read_chain_keys
from pegboard.middleware.audit.verification import ChainFinding
from tests.middleware.audit.audit_records import SECRET, findings_of, lines_of

FILE = "audit-1.000001.jsonl"
OTHER = "another secret of the tests"
MIDNIGHT = partial(float, 1_767_225_600)


def write(
    folder: Path,
    *names: str,
    secret: str | None = SECRET,
    max_bytes: int = 1 << 20,
    keep_files: int | None = None,
    now: Callable[[], float] = MIDNIGHT,
) -> None:
    """What one process writes."""
    writer = writer_of(folder, secret=secret, max_bytes=max_bytes, keep_files=keep_files, now=now)
    for name in names:
        writer.append([json.dumps({"at": "2026-01-01T00:00:00.000Z", "action": "tools/call", "name": name}).encode()])
    writer.close()


def writer_of(
    folder: Path,
    *,
    secret: str | None = SECRET,
    max_bytes: int = 1 << 20,
    keep_files: int | None = None,
    now: Callable[[], float] = MIDNIGHT,
) -> ChainWriter:
    key = read_chain_keys(secret)[0] if secret else ChainKey(None)
    return ChainWriter(folder, key, max_bytes=max_bytes, max_age=3600, keep_files=keep_files, compress=False, now=now)


def found(folder: Path, secret: str | None = SECRET, **options: bool) -> list[tuple[str, str, int, int]]:
    return [(one.kind, one.file, one.line, one.number) for one in findings_of(folder, secret, **options)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "a", "b", "c", "d")
    return tmp_path


def edit(folder: Path, change: Callable[[list[bytes]], list[bytes]], file: str = FILE) -> None:
    path = folder / file
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def test_a_chain_is_intact_over_files_and_processes(tmp_path: Path) -> None:
    for _ in range(4):
        write(tmp_path, *"abcdefghij", max_bytes=600)
    assert len(list(tmp_path.glob("*.jsonl"))) > 5
    assert [line["number"] for line in lines_of(tmp_path)] == list(range(1, len(lines_of(tmp_path)) + 1))
    assert findings_of(tmp_path) == []
    assert findings_of(tmp_path, f"{OTHER},{SECRET}") == []


@pytest.mark.parametrize(
    ("change", "findings"),
    [
        pytest.param(
            lambda lines: [*lines[:2], lines[2].replace(b'"b"', b'"x"'), *lines[3:]],
            [("changed", FILE, 3, 3)],
            id="a line changed",
        ),
        pytest.param(
            lambda lines: [*lines[:2], lines[2][:-5] + b'0"}\n', *lines[3:]],
            [("changed", FILE, 3, 0), ("note", FILE, 4, 4)],
            id="a tag damaged",
        ),
        pytest.param(lambda lines: [*lines[:2], *lines[3:]], [("removed", FILE, 3, 4)], id="a line removed"),
        pytest.param(lambda lines: lines[:-2], [("cut", "audit-1.head", 0, 5)], id="the end cut"),
        pytest.param(
            lambda lines: [*lines[:2], lines[3], lines[2], lines[4]],
            [("removed", FILE, 3, 4), ("added", FILE, 4, 3), ("removed", FILE, 5, 5)],
            id="two lines exchanged",
        ),
        pytest.param(
            lambda lines: [*lines[:3], lines[2], *lines[3:]],
            [("added", FILE, 4, 3)],
            id="a line repeated",
        ),
        pytest.param(
            lambda lines: [*lines[:2], b"not a record\n", *lines[3:]],
            [("changed", FILE, 3, 0), ("note", FILE, 4, 4)],
            id="a line replaced",
        ),
        pytest.param(lambda lines: lines[1:], [("key", FILE, 1, 2)], id="the first line removed"),
        pytest.param(lambda lines: [*lines, b'{"number":6,'], [("note", FILE, 6, 0)], id="a line half written"),
    ],
)
def test_what_was_done_to_a_file_is_found(
    folder: Path,
    change: Callable[[list[bytes]], list[bytes]],
    findings: list[tuple[str, str, int, int]],
    request: pytest.FixtureRequest,
) -> None:
    edit(folder, change)
    if request.node.callspec.id == "the first line removed":
        (removed,) = findings_of(folder)
        assert (removed.kind, removed.text[:11]) == ("removed", "records 1–1")
        return
    assert found(folder) == findings


def test_a_file_that_was_removed_is_found(tmp_path: Path) -> None:
    write(tmp_path, *"abcdefghijklmnop", max_bytes=600)
    (tmp_path / "audit-1.000002.jsonl").unlink()
    kinds = [(finding.kind, finding.file) for finding in findings_of(tmp_path)]
    assert kinds[0] == ("removed", FILE)
    (tmp_path / FILE).unlink()
    (missing,) = findings_of(tmp_path)
    assert (missing.kind, "if their files were archived" in missing.text) == ("removed", True)
    assert findings_of(tmp_path, partial=True) == []


def test_files_that_the_log_removed_itself_are_not_missed(tmp_path: Path) -> None:
    write(tmp_path, *"abcdefghijklmnop", max_bytes=600, keep_files=2)
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    assert findings_of(tmp_path) == []
    min(tmp_path.glob("*.jsonl")).unlink()
    assert [finding.kind for finding in findings_of(tmp_path)] == ["removed"]


def test_a_log_that_was_cut_and_continued_shows_what_is_missing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    edit(folder, lambda lines: lines[:-2])
    write(folder, "e")
    assert "does not fit its head" in caplog.text
    assert found(folder) == [
        ("removed", "audit-1.000002.jsonl", 1, 6),
        ("cut", "audit-1.000002.jsonl", 1, 6),
    ]
    assert "records 4–5 are missing" in findings_of(folder)[0].text


def test_a_log_whose_head_was_removed_says_so_also_after_it_was_continued(folder: Path) -> None:
    (folder / "audit-1.head").unlink()
    assert [finding.kind for finding in findings_of(folder)] == ["cut"]
    write(folder, "e")
    assert found(folder) == [("cut", "audit-1.000002.jsonl", 1, 6)]


def test_the_head_cannot_be_moved_back_by_what_the_lines_reveal(folder: Path) -> None:
    edit(folder, lambda lines: lines[:-2])
    head = folder / "audit-1.head"
    tag = bytes.fromhex(lines_of(folder)[-1]["hash"])
    head.write_bytes((3).to_bytes(8, "little") + tag + (1).to_bytes(8, "little") + bytes(32))
    assert found(folder) == [("cut", "audit-1.head", 0, 3)]


def test_an_old_copy_of_the_head_hides_a_cut_unless_the_end_was_noted(folder: Path) -> None:
    """What a chain alone cannot show: the documentation says so."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    write(folder, "e", "f")
    line = lines_of(folder)[-1]
    for path, content in before.items():
        path.write_bytes(content)
    assert findings_of(folder) == []
    noted = ("audit-1", (line["number"], line["hash"]))
    assert [finding.kind for finding in findings_of(folder, expected=[noted])] == ["cut"]


def test_an_end_that_was_noted_counts_whatever_later_ends_the_files_name(tmp_path: Path) -> None:
    """Without a key, someone who writes the files can write a whole other log, and name its end in it."""
    write(tmp_path, "a", "b", secret=None)
    line = lines_of(tmp_path)[-1]
    for path in tmp_path.iterdir():
        path.unlink()
    write(tmp_path, "x", "y", secret=None)
    false_end = ("audit-1", (4, forge_end(tmp_path)))
    noted = ("audit-1", (line["number"], line["hash"]))
    assert findings_of(tmp_path, None, expected=[false_end]) == []
    for expected in ([noted], [noted, false_end]):
        assert [finding.kind for finding in findings_of(tmp_path, None, expected=expected)] == ["changed"]


def forge_end(folder: Path) -> str:
    """Add a record to a log without a key, and another log that says it is the end; returns its tag."""
    write_more = writer_of(folder, secret=None)
    write_more.open()
    other = writer_of(folder, secret=None)
    other.append([b'{"at":"2026-01-01T00:00:00.000Z","action":"tools/call"}'])
    write_more.close()
    other.close()
    return str(next(line["hash"] for line in lines_of(folder) if line["number"] == 4))


def test_a_wrong_key_and_a_log_without_a_key_are_told_apart(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (wrong,) = findings_of(folder, OTHER)
    assert (wrong.kind, wrong.file, wrong.line) == ("key", FILE, 1)
    assert read_chain_keys(SECRET)[0].id in wrong.text
    assert [finding.kind for finding in findings_of(folder, None)] == ["key"]
    plain = tmp_path_factory.mktemp("plain")
    write(plain, "a", "b", secret=None)
    assert findings_of(plain, None) == []
    # Whoever can write the files could have written these.
    assert [finding.kind for finding in findings_of(plain)] == ["unsealed"]
    assert findings_of(plain, unsealed=True) == []
    edit(plain, lambda lines: [*lines[:1], lines[1].replace(b'"a"', b'"x"'), *lines[2:]])
    assert found(plain, None) == [("changed", FILE, 2, 2)]


def test_a_new_key_begins_a_new_file(folder: Path) -> None:
    write(folder, "e", secret=OTHER)
    assert findings_of(folder, f"{OTHER},{SECRET}") == []
    assert found(folder, OTHER) == [("key", FILE, 1, 1)]


def test_processes_at_the_same_time_have_a_chain_each_and_vouch_for_each_other(tmp_path: Path) -> None:
    first, second = writer_of(tmp_path), writer_of(tmp_path)
    record = b'{"at":"2026-01-01T00:00:00.000Z","action":"tools/call"}'
    first.append([record])
    second.append([record])
    assert (first.chain, second.chain) == ("audit-1", "audit-2")
    second.close()
    first.close()
    # The next process continues the first chain, and notes the end of the second.
    write(tmp_path, "e")
    assert findings_of(tmp_path) == []
    for path in tmp_path.glob("audit-2.*"):
        path.unlink()
    (gone,) = findings_of(tmp_path)
    assert (gone.kind, gone.text) == ("cut", "records 1–2 are missing at the end")


def test_a_clock_that_jumps_is_noted_and_breaks_nothing(tmp_path: Path) -> None:
    for now in (1_800_000_000, 1_700_000_000):
        writer = writer_of(tmp_path, now=partial(float, now))
        writer.open()
        writer.close()
    (noted,) = findings_of(tmp_path)
    assert isinstance(noted, ChainFinding)
    assert (noted.kind, noted.text, noted.number) == ("note", "the clock went back by 100000000 s", 2)


def test_a_folder_without_a_log_is_not_intact(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="contains no audit log"):
        findings_of(tmp_path)
    with pytest.raises(SetupError, match="is not a folder"):
        findings_of(tmp_path / "nowhere")
