"""What every storage keeps to, and what a file on a shared machine must."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pegboard.client.login.storage import FileStorage, MemoryStorage, Storage
from pegboard.errors import SetupError

SECRET = "a secret of sixteen characters"
KINDS: list[Callable[[Path], Storage]] = [
    lambda folder: MemoryStorage(),
    lambda folder: FileStorage(folder / "logins"),
    lambda folder: FileStorage(folder / "logins", SECRET),
]


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("make", KINDS, ids=["memory", "file", "encrypted file"])
async def test_what_is_saved_is_there_until_it_is_deleted(make: Callable[[Path], Storage], tmp_path: Path) -> None:
    storage = make(tmp_path)
    assert await storage.load("token https://a") is None
    await storage.save("token https://a", b'"one"')
    await storage.save("token https://b", b'"two"')
    await storage.save("token https://a", '"drei \N{SNOWMAN}"'.encode())
    assert await storage.load("token https://a") == '"drei \N{SNOWMAN}"'.encode()
    await storage.delete("token https://a")
    await storage.delete("token https://a")
    assert await storage.load("token https://a") is None
    assert await storage.load("token https://b") == b'"two"'


@pytest.mark.parametrize("secret", [None, SECRET])
async def test_files_are_their_owners_alone(tmp_path: Path, secret: str | None) -> None:
    folder = tmp_path / "new" / "logins"
    await FileStorage(folder, secret).save("key", b'"value"')
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert await FileStorage(folder, secret).load("key") == b'"value"'


async def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    await storage.save("key", b'"value"')
    (file,) = files(tmp_path)
    file.chmod(0o640)
    with pytest.raises(SetupError, match="chmod 600"):
        await storage.load("key")


async def test_an_encrypted_file_tells_nothing_but_its_key(tmp_path: Path) -> None:
    await FileStorage(tmp_path, SECRET).save("key", b'"the-token"')
    (file,) = files(tmp_path)
    assert b"the-token" not in file.read_bytes()
    assert await FileStorage(tmp_path, f"another secret entirely,{SECRET}").load("key") == b'"the-token"'


@pytest.mark.parametrize("secret", [None, "another secret entirely"])
async def test_without_its_secret_an_encrypted_file_is_passed_over(
    tmp_path: Path, secret: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    await FileStorage(tmp_path, SECRET).save("key", b'"the-token"')
    with caplog.at_level(logging.WARNING):
        assert await FileStorage(tmp_path, secret).load("key") is None
    assert "encrypted" in caplog.text


async def test_what_was_sealed_under_one_key_is_of_no_use_under_another(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path, SECRET)
    await storage.save("token a", b'"for a"')
    (file,) = files(tmp_path)
    sealed = file.read_text()
    await storage.save("token b", b'"for b"')
    (other,) = set(files(tmp_path)) - {file}
    other.write_text(sealed.replace("token a", "token b"))
    assert await storage.load("token b") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"key": 1}', b'{"key": "another", "value": "1"}'])
async def test_a_file_that_is_none_of_ours_is_passed_over(tmp_path: Path, content: bytes) -> None:
    storage = FileStorage(tmp_path)
    await storage.save("key", b'"value"')
    (file,) = files(tmp_path)
    file.write_bytes(content)
    assert await storage.load("key") is None


async def test_many_writers_leave_one_whole_value_and_nothing_else(tmp_path: Path) -> None:
    values = [f'"{number}{"x" * 1000}"'.encode() for number in range(20)]
    await asyncio.gather(*(FileStorage(tmp_path).save("key", value) for value in values))
    assert await FileStorage(tmp_path).load("key") in values
    assert len(files(tmp_path)) == 1


async def test_a_path_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot be written"):
        await FileStorage(tmp_path / "file").save("key", b'""')


def test_a_secret_has_a_length() -> None:
    with pytest.raises(SetupError, match="16 characters"):
        FileStorage("anywhere", "short")
