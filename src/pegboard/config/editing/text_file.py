"""A text file that is read, changed and replaced: its encoding, mode and owner are kept, and a backup is made.

The new text is written to a temporary file in the same folder, which then replaces the old one. A file that another
program changed after it was read is not replaced. A symbolic link stays a link, and may lead only to a file within
`base`: a project must not make us write somewhere else.
"""

from __future__ import annotations

import difflib
import os
import secrets
import stat
import time
from pathlib import Path
from typing import Final

from msgspec import Struct

from pegboard.config.source_file import Encoding, decode_source, read_bytes
from pegboard.errors import SetupError

_OPEN: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class TextFile(Struct, frozen=True, kw_only=True):
    """A file as it was read: `data` is None if it does not exist; `target` is the file that a link leads to."""

    path: Path
    target: Path
    data: bytes | None
    text: str
    encoding: Encoding

    def diff(self, text: str) -> list[str]:
        """The lines of a unified diff between the file and a new text."""
        old, new = self.text.splitlines(), text.splitlines()
        before = str(self.path) if self.data is not None else os.devnull
        return list(difflib.unified_diff(old, new, before, str(self.path), lineterm=""))

    def write(self, text: str) -> Path | None:
        """Replace the file with this text, and return its backup; a new file has none."""
        try:
            return self._write(self.encoding.mark + text.encode(self.encoding.codec))
        except UnicodeEncodeError:
            raise SetupError(f"{self.path} cannot hold half of a surrogate pair; the file is unchanged") from None
        except OSError as error:
            where = Path(error.filename or self.target).parent
            raise SetupError(
                f"{self.path} cannot be written: {error.strerror or error} in {where}; the file is unchanged"
            ) from None

    def _write(self, data: bytes) -> Path | None:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        status = None if self.data is None else self.target.stat()
        if status is not None and not (status.st_mode & 0o222 and os.access(self.target, os.W_OK)):
            raise SetupError(f"{self.path} is read-only; run `chmod u+w {self.target}`, or change it by hand")
        backup = None
        if self.data is not None:
            backup = self._create("backup-" + time.strftime("%Y%m%d-%H%M%S"), self.data, status)
        temporary = self._create("new", data, status)
        try:
            if (read_bytes(self.target) if os.path.lexists(self.target) else None) != self.data:
                raise SetupError(f"{self.path} was changed by another program meanwhile; run the command again")
            temporary.replace(self.target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            if backup is not None:
                backup.unlink(missing_ok=True)
            raise
        return backup

    def _create(self, ending: str, data: bytes, like: os.stat_result | None) -> Path:
        """A new file beside the target, with the mode and owner of another one; without one, for its user alone."""
        path = self.target.with_name(f"{self.target.name}.{ending}")
        if path.exists() or ending == "new":
            path = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
        # An entry may hold a secret.
        descriptor = os.open(path, _OPEN, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                if like is not None:
                    _copy_owner(path, file.fileno(), like)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path


def _copy_owner(path: Path, descriptor: int, like: os.stat_result) -> None:
    """By the descriptor: in a folder of another user, the path may have become a link to any file."""
    made = os.fstat(descriptor)
    if hasattr(os, "fchown") and (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
        os.fchown(descriptor, like.st_uid, like.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
    else:
        path.chmod(stat.S_IMODE(like.st_mode))


def open_text_file(path: Path, base: Path) -> TextFile:
    """Read a file that may be missing; its links may lead to files within `base`."""
    path = path.absolute()
    try:
        target = path.resolve()
        if not target.is_relative_to(base.resolve()):
            raise SetupError(f"{path} is a link to {target}, outside of {base}; name that file itself with --file")
        if not target.exists():
            return TextFile(path=path, target=target, data=None, text="", encoding=Encoding())
        if not target.is_file():
            raise SetupError(f"{path} is not a file")
    except (OSError, RuntimeError) as error:
        raise SetupError(f"{path} cannot be read: {error}") from None
    data = read_bytes(target)
    text, encoding = decode_source(data, path)
    return TextFile(path=path, target=target, data=data, text=text, encoding=encoding)
