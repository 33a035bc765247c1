"""The commands that connect a client to a server, as it prints them at its start."""

from __future__ import annotations

from collections.abc import Iterator

from pegboard.server.hosting import Hosted


def store_flag(address: str) -> str:
    """The flag that names a store; an address with credentials is left out."""
    return f"--store {'ADDRESS' if '@' in address else address}"


def connect_lines(served: Hosted, url: str, sample: str, add_key: str) -> Iterator[str]:
    """A command to try, and how to add the server to a client; where API keys are accepted, with one.

    `add_key` is the command that adds a key.
    """
    header = ' --header "Authorization: Bearer $KEY"' if served.auth is not None and served.auth.keys else ""
    if header:
        yield f"  key      KEY=$({add_key})"
    yield f"  try      {sample}{header}".rstrip()
    yield f"  add to   claude mcp add --transport http {served.info['name']} {url}{header}"
