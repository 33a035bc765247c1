"""A server that tries what a confined program must not do."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

from pegboard import Board

board = Board("confined")


@board.tool(inline=True)
def attempt(what: str, where: str = "") -> str:
    """Try something; returns what came of it."""
    try:
        match what:
            case "read":
                return Path(where).read_text()[:40]
            case "list":
                return " ".join(sorted(os.listdir(where)))  # noqa: PTH208 - a path or nothing
            case "write":
                Path(where).write_text("written")
                return "written"
            case "signal":
                os.kill(int(where), 0)
                return "reached"
            case "connect":
                with socket.create_connection(("127.0.0.1", int(where)), 5):
                    return "connected"
            case "unix":
                with socket.socket(socket.AF_UNIX) as stream:
                    stream.connect(where)
                    return "connected"
            case "limits":
                names = ("DATA", "NPROC", "CPU", "NOFILE")
                return " ".join(str(resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]) for name in names)
            case "memory":
                return str(len(bytearray(int(where))))
            case _:
                return f"{os.getcwd()} {os.environ.get('HOME')}"  # noqa: PTH109 - a text
    except (OSError, MemoryError) as error:
        return f"{type(error).__name__}"


if __name__ == "__main__":
    board.run("stdio")
