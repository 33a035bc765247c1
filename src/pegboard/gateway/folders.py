"""Where a gateway keeps what outlives it, on each kind of machine."""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from pathlib import Path


def state_folder(environ: dict[str, str] | None = None) -> Path:
    """The folder of this user for what programs keep: `PEGBOARD_STATE`, or where the system has such things."""
    told = os.environ if environ is None else environ
    if given := told.get("PEGBOARD_STATE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(told.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "pegboard"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "pegboard"
    return Path(told.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "pegboard"


def make_private(folder: Path) -> Path:
    """The folder, made if need be, for nobody else to look into."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def store_path(config: str) -> Path:
    """The SQLite file of the gateway with this configuration file; another file is another gateway."""
    path = Path(config).resolve()
    mark = sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return make_private(state_folder()) / f"{path.stem}-{mark}.sqlite"


def token_folder() -> Path:
    """Where the tokens of logins are kept."""
    return make_private(state_folder()) / "tokens"
