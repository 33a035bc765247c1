"""The principal of the user who started the server."""

from __future__ import annotations

import getpass
import os

from pegboard.auth.principal import Principal


def local_user() -> Principal:
    """The user who started the server: a client on stdio is a program of that user."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container may run under a number that has no name.
        name = str(os.getuid()) if hasattr(os, "getuid") else "user"
    return Principal(f"local:{name}", kind="local")
