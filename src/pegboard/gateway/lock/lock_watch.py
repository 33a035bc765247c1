"""Reloads the lock file when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pegboard.config.gateway_config import GatewayConfig
from pegboard.errors import SetupError
from pegboard.gateway.lock.pins import Pins, read_pins

_log = logging.getLogger("pegboard.gateway")

POLL_SECONDS: Final = 1.0


async def watch_lock_file(config: Callable[[], GatewayConfig], take: Callable[[Pins], None]) -> None:
    """Check repeatedly, until cancelled; an invalid file changes nothing and is reported once."""
    # Starts unseen: the file may have been written between the reading and the first look.
    seen: tuple[int, int] | None = None
    while True:
        await asyncio.sleep(POLL_SECONDS)
        now = await asyncio.to_thread(_stamp, Path(config().lock_path))
        if now == seen:
            continue
        seen = now
        try:
            pins = await asyncio.to_thread(read_pins, config())
        except SetupError as problem:
            _log.error("The lock file is not used, the previous one stays in force. %s", problem)
            continue
        take(pins)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
