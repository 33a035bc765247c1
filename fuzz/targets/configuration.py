"""Configuration files of a gateway: read, or refused with every mistake and without the values of secrets."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pegboard.config.gateway_config import read_config
from pegboard.errors import SetupError

NAMES = ("pegboard.json", "pegboard.toml", "mcp.json", "settings.json")
SECRET = "s3cr3t-of-the-environment"


def check(data: bytes) -> None:
    """The first byte chooses the name, and with it the format and the dialect."""
    with tempfile.TemporaryDirectory(prefix="pegboard-fuzz-") as folder:
        file = Path(folder) / NAMES[data[0] % len(NAMES) if data else 0]
        file.write_bytes(data[1:])
        try:
            told = repr(read_config(file, {"TOKEN": SECRET, "HOME": "/nowhere"}))
        except SetupError as problem:
            told = str(problem)
    assert SECRET not in told
