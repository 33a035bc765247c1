"""The folder for a gateway's state, on each platform."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from pegboard.auth.api_keys import RECORD
from pegboard.errors import SetupError
from pegboard.security.ownership import check_private_folder
from pegboard.stores.sqlite.database_file import remove_unused

UNUSED_DAYS: Final = 90
VAULT_CHECK: Final = "vault check"
"""The record that every vault has."""

_STORE_NAME: Final = re.compile(r".+-[0-9a-f]{12}\.sqlite")
_log = logging.getLogger("pegboard.gateway")


def state_folder(environ: dict[str, str] | None = None) -> Path:
    """The state folder of this user: `PEGBOARD_STATE`, or the default of the platform."""
    variables = os.environ if environ is None else environ
    if given := variables.get("PEGBOARD_STATE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(variables.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "pegboard"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "pegboard"
    return Path(variables.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "pegboard"


def make_private(folder: Path) -> Path:
    """The folder, created if needed; SetupError if other users could put files into it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise SetupError(
            f"{folder} cannot be created: {problem.strerror}; set PEGBOARD_STATE to another folder, or use --store memory"
        ) from None
    check_private_folder(folder)
    return folder


def store_file(config: str) -> Path:
    """Where the gateway with this configuration file has its SQLite file; another file is another gateway."""
    path = Path(config).resolve()
    mark = sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return state_folder() / f"{path.stem}-{mark}.sqlite"


def store_path(config: str) -> Path:
    """The same, with its folder created.

    The files of gateways that have not run for a long time are removed, since their sessions have ended; those with API
    keys or with credentials of users are kept.
    """
    file = store_file(config)
    _remove_unused(make_private(file.parent), file)
    return file


def _remove_unused(folder: Path, kept: Path) -> None:
    """Keep what cannot be read or removed."""
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    with suppress(OSError):
        for file in sorted(folder.iterdir()):
            if (
                file != kept
                and _STORE_NAME.fullmatch(file.name)
                and _used_at(file) < oldest
                and remove_unused(file, RECORD, VAULT_CHECK)
            ):
                _log.info("%s: removed, its gateway has not run for %d days", file, UNUSED_DAYS)


def _used_at(file: Path) -> float:
    """When a store was last written; 0 if it is not a file."""
    if file.is_symlink() or not file.is_file():
        return math.inf
    beside = (file.with_name(file.name + ending) for ending in ("", "-wal", "-shm"))
    return max(path.stat().st_mtime for path in beside if path.exists())


def token_folder() -> Path:
    """Where login tokens are kept; where the state folder cannot be created, there are none, and none can be saved."""
    folder = state_folder()
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.path.exists(folder):  # noqa: PTH110 — False also for a folder that cannot be reached
        check_private_folder(folder)
    return folder / "tokens"
