"""Files and folders that another user controls are refused, with the file and the fix, by everything that keeps state.

Run by root, the tests give files to another user. Run by another user, they take files and folders of root.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pegboard.client.login.storage import FileStorage
from pegboard.errors import LimitReached, SetupError
from pegboard.gateway.lock.lock_file import Lock, read_lock, write_lock
from pegboard.gateway.state_folder import store_path, token_folder
from pegboard.middleware import Audit
from pegboard.stores.sqlite.database_file import prepare
from pegboard.testing import run_alone

IS_ROOT = os.geteuid() == 0
STRANGER = 65534


def of_a_stranger(path: Path, root_has: str) -> Path:
    """The path, given to another user; or one that root has, where we are not root."""
    if not IS_ROOT:
        return Path(root_has)
    os.chown(path, STRANGER, STRANGER)
    return path


def refused(path: Path, why: str, use: Callable[[], object]) -> None:
    """The use is refused with the path and a reason, and changes nothing at the path."""
    before = path.lstat()
    with pytest.raises(SetupError, match=re.escape(str(path))) as error:
        use()
    assert why in str(error.value)
    after = path.lstat()
    assert (before.st_mode, before.st_uid, before.st_size) == (after.st_mode, after.st_uid, after.st_size)


# -- the store's file --------------------------------------------------------------------------------------------------


def test_a_store_file_of_another_user_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "kept.db"
    file.touch(0o600)
    file = of_a_stranger(file, "/etc/passwd")
    refused(file, "another user", lambda: prepare(file))


@pytest.mark.parametrize("there", [True, False], ids=["linked", "dangling"])
def test_a_symbolic_link_in_place_of_a_store_file_is_not_followed(tmp_path: Path, there: bool) -> None:
    target, link = tmp_path / "elsewhere" / "kept.db", tmp_path / "kept.db"
    target.parent.mkdir()
    if there:
        prepare(target)
    link.symlink_to(target)
    refused(link, "symbolic link", lambda: prepare(link))
    assert target.exists() == there


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_a_link_in_place_of_a_file_beside_the_store_is_refused(tmp_path: Path, ending: str) -> None:
    file = tmp_path / "kept.db"
    beside = tmp_path / f"kept.db{ending}"
    beside.symlink_to(tmp_path / "elsewhere")
    refused(beside, "symbolic link", lambda: prepare(file))
    assert not (tmp_path / "elsewhere").exists()


def test_a_store_where_every_user_can_replace_it_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    refused(folder, "chmod o-w", lambda: prepare(folder / "kept.db"))
    assert list(folder.iterdir()) == []
    # As /tmp: only the owner of a file can replace it.
    folder.chmod(0o1777)
    prepare(folder / "kept.db")


def test_a_store_in_the_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    if IS_ROOT:
        os.chown(folder, STRANGER, STRANGER)
        refused(folder, "another user", lambda: prepare(folder / "kept.db"))
    else:
        with pytest.raises(SetupError, match="choose a file that you may write"):
            prepare(Path("/usr/kept.db"))


def test_something_else_in_place_of_a_store_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.db")
    refused(tmp_path / "pipe.db", "not a regular file", lambda: prepare(tmp_path / "pipe.db"))
    (tmp_path / "folder.db").mkdir()
    refused(tmp_path / "folder.db", "not a regular file", lambda: prepare(tmp_path / "folder.db"))


# -- the audit log ------------------------------------------------------------------------------------------------------


def test_an_audit_log_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    folder = of_a_stranger(folder, "/etc")
    refused(folder, "another user", lambda: Audit(folder))


@pytest.mark.parametrize("there", [True, False], ids=["linked", "dangling"])
def test_a_symbolic_link_in_place_of_an_audit_log_is_not_followed(tmp_path: Path, there: bool) -> None:
    target, link = tmp_path / "elsewhere", tmp_path / "audit"
    if there:
        target.mkdir()
    link.symlink_to(target)
    refused(link, "symbolic link", lambda: Audit(link))
    assert not there or not list(target.iterdir())


def test_an_audit_log_where_every_user_can_replace_files_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    refused(folder, "chmod o-w", lambda: Audit(folder))
    refused(folder, "chmod o-w", lambda: Audit(folder / "audit"))


@pytest.mark.parametrize("planted", ["audit-1.head", "audit-1.000001.jsonl"])
async def test_a_link_that_takes_the_place_of_an_audit_file_is_not_followed(tmp_path: Path, planted: str) -> None:
    (tmp_path / planted).symlink_to(tmp_path / "elsewhere")
    audit = Audit(tmp_path)
    result = await run_alone(audit)
    audit.close()
    assert isinstance(result.exception, LimitReached)
    assert not (tmp_path / "elsewhere").exists()


# -- the folder of a gateway's state -----------------------------------------------------------------------------------


@pytest.mark.parametrize("use", [lambda: store_path("pegboard.json"), token_folder], ids=["store", "tokens"])
def test_a_state_folder_that_others_can_write_to_is_refused(
    use: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state"
    monkeypatch.setenv("PEGBOARD_STATE", str(folder))
    use()
    for mode in (0o777, 0o1777, 0o770, 0o702):
        folder.chmod(mode)
        refused(folder, "chmod go-w", use)
    folder.chmod(0o755)
    use()


@pytest.mark.parametrize("use", [lambda: store_path("pegboard.json"), token_folder], ids=["store", "tokens"])
def test_a_state_folder_of_another_user_is_refused(
    use: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = of_a_stranger(tmp_path, "/usr")
    monkeypatch.setenv("PEGBOARD_STATE", str(folder))
    refused(folder, "another user", use)


# -- tokens of logins --------------------------------------------------------------------------------------------------


def load(storage: FileStorage) -> bytes | None:
    return asyncio.run(storage.load("key"))


def save(storage: FileStorage) -> None:
    asyncio.run(storage.save("key", b'"value"'))


def test_a_token_file_of_another_user_is_refused(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "tokens")
    save(storage)
    (file,) = (tmp_path / "tokens").iterdir()
    if IS_ROOT:
        os.chown(file, STRANGER, STRANGER)
        refused(file, "another user", lambda: load(storage))
    else:
        file.chmod(0o604)
        refused(file, "chmod 600", lambda: load(storage))


def test_a_symbolic_link_in_place_of_a_token_file_is_neither_followed_nor_written_through(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "tokens")
    save(storage)
    (file,) = (tmp_path / "tokens").iterdir()
    target = tmp_path / "elsewhere"
    file.rename(target)
    file.symlink_to(target)
    before = target.read_bytes()
    refused(file, "symbolic link", lambda: load(storage))
    asyncio.run(storage.save("key", b'"another"'))
    assert not file.is_symlink()
    assert target.read_bytes() == before


def test_tokens_are_not_written_to_a_folder_that_others_can_write_to(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    folder.chmod(0o777)
    refused(folder, "chmod go-w", lambda: save(FileStorage(folder)))
    assert list(folder.iterdir()) == []


# -- the lock file -----------------------------------------------------------------------------------------------------


def test_a_lock_file_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pegboard.lock.json"
    write_lock(Lock(), path)
    path.chmod(0o666)
    refused(path, "chmod o-w", lambda: read_lock(path))
    path.chmod(0o664)
    assert read_lock(path) == Lock()


def test_a_lock_file_of_a_user_who_does_not_own_its_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pegboard.lock.json"
    write_lock(Lock(), path)
    if IS_ROOT:
        os.chown(path, STRANGER, STRANGER)
        refused(path, "another user", lambda: read_lock(path))
        os.chown(tmp_path, STRANGER, STRANGER)
    assert read_lock(path) == Lock()


def test_a_pipe_in_place_of_a_lock_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pegboard.lock.json"
    os.mkfifo(path)
    refused(path, "not a regular file", lambda: read_lock(path))


def test_a_lock_file_may_be_a_link_as_configuration_systems_make_them(tmp_path: Path) -> None:
    path = tmp_path / "pegboard.lock.json"
    write_lock(Lock(), tmp_path / "version-7.json")
    path.symlink_to(tmp_path / "version-7.json")
    assert read_lock(path) == Lock()
