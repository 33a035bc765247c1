"""Replacing a file: its encoding, mode and links are kept, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pegboard.config.editing.text_file import open_text_file
from pegboard.errors import SetupError

TEXT = '{\r\n  "é": 1 // why\r\n}'


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Without the rights of root, which may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == 0 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        b"\xff\xfe" + TEXT.encode("utf-16-le"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
    ],
)
def test_the_encoding_and_the_mode_are_kept_and_a_backup_is_made(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    path.chmod(0o640)
    file = open_text_file(path, tmp_path)
    assert file.text == TEXT
    backup = file.write(TEXT.replace("1", "2"))
    assert path.read_bytes() == data.replace(b"1", b"2")
    assert backup is not None
    assert backup.read_bytes() == data
    assert {item.stat().st_mode & 0o777 for item in tmp_path.iterdir()} == {0o640}
    assert len(list(tmp_path.iterdir())) == 2


def test_a_new_file_and_its_folder_are_created_without_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    assert open_text_file(path, tmp_path).write("{}") is None
    assert path.read_text() == "{}"
    assert len(list(path.parent.iterdir())) == 1


def test_a_file_in_another_encoding_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes('{\n"é": 1}'.encode("latin-1"))
    with pytest.raises(SetupError, match=r"a\.json:2: not UTF-8; save it in that encoding"):
        open_text_file(path, tmp_path)


def test_a_file_that_changes_after_it_was_read_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    file = open_text_file(path, tmp_path)
    path.write_text('{"theirs": 1}')
    with pytest.raises(SetupError, match="was changed by another program meanwhile; run the command again"):
        file.write('{"ours": 1}')
    missing = open_text_file(tmp_path / "b.json", tmp_path)
    (tmp_path / "b.json").write_text("theirs")
    with pytest.raises(SetupError, match="was changed by another program"):
        missing.write("ours")
    assert {item.name: item.read_text() for item in tmp_path.iterdir()} == {
        "a.json": '{"theirs": 1}',
        "b.json": "theirs",
    }


def test_a_link_within_the_folder_stays_a_link_and_others_are_not_followed(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside.json"
    home.mkdir()
    outside.write_text("theirs")
    (home / "real.json").write_text("{}")
    (home / "good.json").symlink_to("real.json")
    (home / "bad.json").symlink_to(outside)
    (home / "loop.json").symlink_to("loop.json")
    open_text_file(home / "good.json", home).write('{"a": 1}')
    assert (home / "good.json").is_symlink()
    assert (home / "real.json").read_text() == '{"a": 1}'
    with pytest.raises(SetupError, match=r"bad\.json is a link to .*outside\.json, outside of .*home; name that file"):
        open_text_file(home / "bad.json", home)
    with pytest.raises(SetupError, match=r"loop\.json"):
        open_text_file(home / "loop.json", home).write("x")
    assert outside.read_text() == "theirs"


def test_a_folder_in_place_of_a_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is not a file"):
        open_text_file(tmp_path, tmp_path)


def test_a_read_only_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    path.chmod(0o444)
    with pytest.raises(SetupError, match=r"a\.json is read-only; run `chmod u\+w .*a\.json`"):
        open_text_file(path, tmp_path).write("x")
    assert path.read_text() == "{}"


def test_a_read_only_folder_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    path.chmod(0o666)
    with as_nobody(tmp_path):
        file = open_text_file(path, tmp_path)
        if os.getuid() != 0:
            tmp_path.chmod(0o555)
        with pytest.raises(SetupError, match=r"a\.json cannot be written: Permission denied"):
            file.write("x")
    tmp_path.chmod(0o755)
    assert [item.read_text() for item in tmp_path.iterdir()] == ["{}"]


def test_half_of_a_surrogate_pair_is_refused_and_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    with pytest.raises(SetupError, match="surrogate"):
        open_text_file(path, tmp_path).write('{"a": "\ud800"}')
    assert [file.read_text() for file in tmp_path.iterdir()] == ["{}"]


def test_a_link_in_place_of_the_new_file_does_not_change_the_mode_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim = tmp_path / "a.json", tmp_path / "victim"
    path.write_text("{}")
    path.chmod(0o666)
    victim.write_text("")
    victim.chmod(0o600)
    fstat = os.fstat

    def replaced(descriptor: int) -> os.stat_result:
        for made in tmp_path.glob("a.json.*"):
            made.unlink()
            made.symlink_to(victim)
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", replaced)
    with suppress(SetupError):
        open_text_file(path, tmp_path).write("[]")
    assert victim.stat().st_mode & 0o777 == 0o600
