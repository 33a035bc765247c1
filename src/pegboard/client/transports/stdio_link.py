"""A server behind a command: started on demand, restarted when it exits."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from pegboard.call import Channel
from pegboard.client.links.duplex_link import DuplexLink
from pegboard.client.links.era_cache import recall
from pegboard.client.links.link import DEFAULT_OPTIONS, Identity, LinkOptions
from pegboard.client.transports.child_process import ChildProcess, format_command
from pegboard.errors import ConnectionLost, ResponseTimeout, Unreachable
from pegboard.protocol.revisions import NEWEST_LEGACY

RESTART_SECONDS: Final = 60.0

_log = logging.getLogger("pegboard.client")


class StdioLink(DuplexLink):
    """A link to a command; a process that exited is started again for the next request, a few times a minute.

    `spawns` counts the processes that were started.
    """

    def __init__(
        self,
        command: Sequence[str],
        identity: Identity,
        unattributed: Channel,
        options: LinkOptions = DEFAULT_OPTIONS,
    ) -> None:
        super().__init__(format_command(command), "stdio", identity, unattributed, options, known_as=tuple(command))
        self._command = command
        self._child: ChildProcess | None = None
        self._starts: deque[float] = deque(maxlen=options.restarts)
        self.spawns = 0

    @property
    def pid(self) -> int | None:
        """The id of the server process."""
        return None if self._child is None else self._child.pid

    @property
    def stderr_tail(self) -> str:
        """The end of the server's output on stderr."""
        return "" if self._child is None else self._child.stderr_tail

    async def _connect(self, again: bool, version: str | None) -> None:
        if again:
            _log.warning("%s: the process has exited and is started again", self.name)
        self._count(time.monotonic())
        try:
            return await self._start(version)
        except ConnectionLost:
            # Some legacy servers exit if the first request is not the handshake.
            if version is not None or recall(self._cache_key) is not None:
                raise
        try:
            await self._start(NEWEST_LEGACY)
        except ConnectionLost as fault:
            hint = "" if self.stderr_tail else "; does it serve on stdin and stdout?"
            raise Unreachable(f"{fault}{hint}") from None

    def _count(self, now: float) -> None:
        most = self._options.restarts
        if most is None:
            return
        if len(self._starts) == most and now - self._starts[0] < RESTART_SECONDS:
            wait = RESTART_SECONDS - (now - self._starts[0])
            times = f"{most} times within {RESTART_SECONDS:g} s"
            raise Unreachable(f"{self.name}: died {times}; the next attempt is in {wait:.0f} s", retry_after=wait)
        self._starts.append(now)

    async def _start(self, version: str | None) -> None:
        options = self._options
        child = self._child = ChildProcess(
            self._command,
            env=options.env,
            cwd=options.cwd,
            confine=options.confine,
            resources=options.resources,
            name=self.name,
            max_line=self._identity.limits.server_message_bytes,
            started=self._note_start,
        )
        try:
            await self._speak(child, version)
        except ResponseTimeout as late:
            raise ResponseTimeout(f"{late}{child.last_words()}") from None

    def _note_start(self, pid: int) -> None:
        self.spawns += 1
        given = ", ".join(sorted(self._options.env or ())) or "none of its own"
        # A server that fails to start is tried again and again.
        level = logging.INFO if self.spawns == 1 else logging.DEBUG
        _log.log(level, "%s: process %d was started; variables: %s", self.name, pid, given)
