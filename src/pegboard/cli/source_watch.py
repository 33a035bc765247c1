"""Restarts a server of a gateway when its own source file is edited."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pegboard.config.gateway_config import ServerConfig
from pegboard.errors import PegboardError
from pegboard.file_watch import FileWatch, forget_bytecode
from pegboard.gateway.gateway import Gateway
from pegboard.server.reloader import LOOK_SECONDS

_log = logging.getLogger("pegboard.gateway")

_SOURCES: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh"})


class SourceWatch:
    """Looks at the files that the entries of a configuration name: the board of an entry, or a script in its command."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._watch = FileWatch()

    async def run(self) -> None:
        """Look repeatedly, until cancelled."""
        since = time.time()
        # At once: an edit that follows now must not be part of what later looks compare with.
        self._look(list(self._owners()), since)
        while True:
            owners = self._owners()
            edited = await asyncio.to_thread(self._look, list(owners), since)
            for path in edited:
                if _is_readable(path):
                    for toolbox, server in owners[path]:
                        await self._restart(path, toolbox, server)
            since = time.time()
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self, paths: list[Path], since: float) -> list[Path]:
        self._watch.follow(paths, since)
        return self._watch.look()

    def _owners(self) -> dict[Path, list[tuple[str, str]]]:
        """The servers that each file belongs to; the configuration may have changed since the last look."""
        found: dict[Path, list[tuple[str, str]]] = {}
        folder = Path(self._gateway.config.path).parent
        for toolbox in self._gateway.config.toolboxes.values():
            for server in toolbox.servers.values():
                for path in _sources(server, folder) if server.enabled else ():
                    found.setdefault(path, []).append((toolbox.name, server.name))
        return found

    async def _restart(self, path: Path, toolbox: str, server: str) -> None:
        _log.info("%s was edited: %s/%s restarts", path, toolbox, server)
        _forget_modules(path)
        forget_bytecode(path)
        try:
            await self._gateway.restart_server(toolbox, server)
        except PegboardError as problem:
            _log.error("%s/%s cannot be restarted: %s", toolbox, server, problem)


def _sources(server: ServerConfig, folder: Path) -> Iterator[Path]:
    words = (server.board.rpartition(":")[0] or server.board,) if server.kind == "board" else server.command
    for word in words:
        path = Path(server.cwd or folder, word)
        if path.suffix in _SOURCES and path.is_file():
            yield path.resolve()


def _is_readable(path: Path) -> bool:
    """Whether a file can be compiled; a mistake is reported, and the running server stays."""
    if path.suffix != ".py":
        return True
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (OSError, SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{path}:{line}" if line else str(path)
        _log.error("%s: %s: %s  (the server runs on until it is fixed)", place, type(error).__name__, error.args[0])
        return False
    return True


def _forget_modules(path: Path) -> None:
    """Let the modules beside a board be imported again with it."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).resolve().parent == path.parent and name != "__main__":
            del sys.modules[name]
