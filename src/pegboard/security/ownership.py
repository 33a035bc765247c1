"""Checks that other users can neither read nor replace our files.

The checks are for POSIX systems; on others the system's access lists protect a user's files. A folder is checked before
the files in it: if no other user can replace a file, the file that was checked is the file that is opened.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO, Final

from pegboard.errors import SetupError

_POSIX: Final = os.name == "posix"
_ROOT: Final = 0
# A FIFO in place of the file must not block the open; the flag has no effect on regular files.
_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
# The files that SQLite keeps beside a database, and trusts as it trusts the database.
_BESIDE_DATABASE: Final = ("-wal", "-shm", "-journal")
_creating: Final = threading.Lock()


def check_private_folder(folder: Path) -> None:
    """SetupError unless the folder belongs to this user and no other user can write to it."""
    found = folder.stat()
    if not _POSIX:
        return
    if found.st_uid != os.geteuid():
        raise SetupError(
            f"{folder} belongs to {_user(found)}; choose a folder of your own, or run `chown {os.geteuid()} {folder}`"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SetupError(f"{folder}: other users can write to it; run `chmod go-w {folder}`")


def check_folder(folder: Path) -> None:
    """SetupError if a user other than this one, root and the folder's group can replace files in the folder."""
    found = folder.stat()
    if not _POSIX:
        return
    if found.st_uid not in (os.geteuid(), _ROOT):
        raise SetupError(
            f"{folder} belongs to {_user(found)}, who could replace the files in it; choose another folder"
        )
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise SetupError(
            f"{folder}: every user can replace the files in it; run `chmod o-w {folder}`, or choose a folder inside it"
        )


def check_own_file(path: Path) -> None:
    """SetupError unless the path is absent or a regular file of this user; links are rejected."""
    try:
        _check_own(path, path.lstat())
    except FileNotFoundError:
        return


def create_own_file(path: Path) -> None:
    """Create an empty file that only this user can read, unless it exists; SetupError unless it is then our own."""
    check_folder(path.parent)
    # When a process closes a file, the system drops all its locks on that file. A file that may be in use in this
    # process is therefore not opened here.
    with _creating, contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    check_own_file(path)


def create_own_database(path: Path) -> None:
    """The same for a SQLite database and the files that SQLite keeps beside it."""
    create_own_file(path)
    for ending in _BESIDE_DATABASE:
        check_own_file(path.with_name(path.name + ending))


def open_own_file(path: Path) -> BinaryIO:
    """Open a regular file for reading that belongs to this user and that no other user can read."""
    if _POSIX and path.is_symlink():
        raise SetupError(_linked(path))
    file = _open(path, _READ | _NOFOLLOW)
    try:
        found = os.fstat(file.fileno())
        _check_own(path, found)
        if _POSIX and found.st_mode & 0o077:
            raise SetupError(f"{path}: other users can read it; run `chmod 600 {path}`")
    except BaseException:
        file.close()
        raise
    return file


def open_trusted_file(path: Path) -> BinaryIO:
    """Open a regular file for reading that only this user, root, the owner of its folder or its group can change.

    The path may be a link, which configuration systems often use.
    """
    file = _open(path, _READ)
    try:
        found = os.fstat(file.fileno())
        _check_regular(path, found)
        if _POSIX and found.st_uid not in (os.geteuid(), _ROOT, path.parent.stat().st_uid):
            raise SetupError(f"{path} belongs to {_user(found)}; remove it, or run `chown {os.geteuid()} {path}`")
        if _POSIX and found.st_mode & stat.S_IWOTH:
            raise SetupError(f"{path}: every user can write to it; check its content, then run `chmod o-w {path}`")
    except BaseException:
        file.close()
        raise
    return file


def _open(path: Path, flags: int) -> BinaryIO:
    # An opener, since `os.fdopen` leaves the descriptor of a folder open when it fails.
    return open(path, "rb", opener=lambda name, _: os.open(name, flags))


def _check_own(path: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise SetupError(_linked(path))
    _check_regular(path, found)
    if _POSIX and found.st_uid != os.geteuid():
        raise SetupError(
            f"{path} belongs to {_user(found)}; remove it, choose another file, or run `chown {os.geteuid()} {path}`"
        )


def _check_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SetupError(f"{path} is not a regular file; remove it, or choose another one")


def _linked(path: Path) -> str:
    return f"{path} is a symbolic link, which is not followed; remove it, or use the file that it points to"


def _user(found: os.stat_result) -> str:
    return f"another user (uid {found.st_uid})"
