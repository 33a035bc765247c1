"""A child process in its own process group, and how it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from pegboard.client.links.server_messages import UNREAD, shorten
from pegboard.client.links.server_output import last_output
from pegboard.client.transports.confinement import limited_command
from pegboard.client.transports.stderr_log import StderrLog
from pegboard.config.confinement_keys import ChildResources, Confinement
from pegboard.config.inherited_variables import is_inherited
from pegboard.errors import ConnectionLost, ServerFault, SetupError, Unreachable
from pegboard.middleware.observability.masking import mask_command
from pegboard.protocol.jsonrpc import has_line_break

WRITE_BYTES: Final = 1024 * 1024
# Together at most three seconds.
EXIT_SECONDS: Final = 1.5
TERM_SECONDS: Final = 1.0
KILL_SECONDS: Final = 0.5
EOF_GRACE_SECONDS: Final = 0.5

_ID: Final = re.compile(rb'"id"\s*:\s*([0-9]{1,15})\s*[,}]')

_log = logging.getLogger("pegboard.client")

_NPX: Final = frozenset({"npx", "npm", "pnpx"})
_UVX: Final = frozenset({"uvx", "uv"})
_INSTALLERS: Final = _NPX | _UVX | {"pnpm", "yarn", "bunx", "bun", "pipx", "docker", "podman"}
# The folder of one package in npx's cache.
_NPX_FOLDER: Final = re.compile(r"/_npx/[0-9a-f]{8,64}")
# What a package that was installed by halves says.
_BROKEN: Final = re.compile(r"ENOTEMPTY|MODULE_NOT_FOUND|Cannot find (?:module|package)|TAR_ENTRY_ERROR|: not found")


def installs(command: Sequence[str]) -> bool:
    """Whether a command may have to install its program first, which takes minutes and must not be interrupted."""
    return _program(command) in _INSTALLERS


def installer_hint(command: Sequence[str], env: Mapping[str, str], output: str) -> str:
    """What to do about a command that does not start: how to repair a broken install, and where the installer logs."""
    program = _program(command)
    if program in _NPX:
        cache = env.get("NPM_CONFIG_CACHE") or f"{env.get('HOME', '~')}/.npm"
        if _BROKEN.search(output):
            folder = _NPX_FOLDER.search(output)
            return f"; the install looks broken, remove it with: rm -rf {cache}{folder[0] if folder else '/_npx'}"
        return f"; the log of npm is in {cache}/_logs"
    if program in _UVX:
        return f"; {program} logs to stderr, add --verbose to its arguments to see more"
    return ""


def _program(command: Sequence[str]) -> str:
    # The command of an incomplete configuration is empty.
    return Path(command[0]).name.removesuffix(".cmd").removesuffix(".exe") if command else ""


def child_environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a child: what every program needs, how to reach the network, and what it was given."""
    kept = {name: value for name, value in os.environ.items() if is_inherited(name)}
    return {**kept, **(more or {})}


def format_command(command: Sequence[str]) -> str:
    """A command as errors and logs name it: on one short line, without secrets."""
    text = " ".join(" ".join(mask_command(command)).split())
    return text if len(text) <= 80 else text[:79] + "…"


def _with_death_signal(program: str) -> list[str]:
    """The program, so that Linux ends it if this process dies: some servers ignore the end of their stdin.

    SIGTERM, since npx and uvx pass it on to the server that they have started. Where the program cannot be executed, the
    reason is reported best by executing it.
    """
    if _SETPRIV is None or not (Path(program).is_file() and os.access(program, os.X_OK)):
        return [program]
    return [_SETPRIV, "--pdeathsig", "TERM", "--", program]


def _find_setpriv() -> str | None:
    """The `setpriv` of util-linux; that of BusyBox has no such option."""
    found = shutil.which("setpriv") if sys.platform == "linux" else None
    return None if found is None or Path(found).resolve().name == "busybox" else found


_SETPRIV: Final = _find_setpriv()


class ChildProcess(asyncio.SubprocessProtocol):
    """A pipe to a process: each line of its stdout is a message, its stderr is kept and logged."""

    transport = "stdio"

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        confine: Confinement | None = None,
        resources: ChildResources | None = None,
        max_line: int,
        name: str = "",
        started: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`started` is called with the id of the process as soon as there is one."""
        self._max_line = max_line
        self._started = started
        self.name = name or format_command(command)
        self._command = list(command)
        self._env = env
        self._cwd = cwd
        self._confine = confine
        self._resources = resources
        self._process: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._exited = asyncio.Event()
        self._open_ends = {0, 1, 2}
        self._paused: asyncio.Future[None] | None = None
        # One buffer: a line may arrive a few bytes at a time, and a list of pieces would take ten times the memory.
        self._line = bytearray()
        self._skipping = False
        self._stderr = StderrLog(self.name)
        self._closing = False
        self._lost_timer: asyncio.TimerHandle | None = None
        self._lost_reported = asyncio.Event()
        self._receive: Callable[[bytes], None] = lambda _: None
        self._lost: Callable[[ServerFault], None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.get_pid()

    @property
    def stderr_tail(self) -> str:
        """The end of its output on stderr."""
        return "\n".join(self._stderr.tail)

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[ServerFault], None]) -> None:
        self._receive, self._lost = receive, lost
        env = child_environment(self._env)
        program = shutil.which(self._command[0], path=env.get("PATH"))
        if program is None and os.sep not in self._command[0]:
            raise Unreachable(f"{self.name}: there is no program {self._command[0]!r} on the PATH")
        command = [program or self._command[0], *self._command[1:]]
        if self._confine is not None or self._resources is not None:
            try:
                command = limited_command(command, self._cwd, self._confine, self._resources)
            except SetupError as problem:
                raise Unreachable(f"{self.name}: {problem}") from None
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *_with_death_signal(command[0]),
                *command[1:],
                env=env,
                cwd=self._cwd,
                start_new_session=True,
            )
        except OSError as error:
            place = f" in {self._cwd}" if self._cwd is not None else ""
            raise Unreachable(f"{self.name}: cannot be started{place}, {error.strerror or error}") from None

    def send(self, message: bytes) -> Coroutine[Any, Any, None] | None:
        written = self._write(message)
        return None if written and self._paused is None else self._wait_sent(written)

    async def _wait_sent(self, written: bool) -> None:
        if not written:
            # The loss follows within the grace period, and with it the reason.
            await self._lost_reported.wait()
            raise Unreachable(f"{self.name}: {self._end()}{self.last_words()}")
        if self._paused is not None:
            await asyncio.shield(self._paused)

    def send_now(self, message: bytes) -> None:
        self._write(message)

    def _write(self, message: bytes) -> bool:
        """Write a line; False if the child cannot have got it, since its stdin is closed."""
        if has_line_break(message):
            raise ValueError("A message to a child must be one line")
        pipe = self._stdin
        if pipe is None or pipe.is_closing():
            return False
        pipe.write(message + b"\n")
        return not pipe.is_closing()

    def terminate(self) -> None:
        """Ask it to end, without waiting: for a program that does not end with its stdin."""
        self._signal(signal.SIGTERM)

    async def close(self) -> None:
        """stdin closed, then TERM, then KILL, to the whole group; it is gone when this returns."""
        self._closing = True
        self._lost_reported.set()
        if self._lost_timer is not None:
            self._lost_timer.cancel()
        process = self._process
        if process is None:
            return
        stdin = process.get_pipe_transport(0)
        if stdin is not None:
            stdin.close()
        try:
            if not await self._ends_within(EXIT_SECONDS):
                self._signal(signal.SIGTERM)
                if not await self._ends_within(TERM_SECONDS):
                    self._signal(signal.SIGKILL)
                    await self._ends_within(KILL_SECONDS)
        finally:
            self._signal(signal.SIGKILL)
            # Also on cancellation: a process that is not reaped would outlive its transport.
            await self._ends_within(KILL_SECONDS)
            process.close()
            self._stderr.close()
            # The transports of its pipes close in the next turns of the loop.
            for _ in range(3):
                await asyncio.sleep(0)

    async def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        return self._exited.is_set()

    def _signal(self, number: int) -> None:
        """Signal the group while the child lives: afterwards the number may belong to another group."""
        pid = self.pid
        if pid is not None and not self._exited.is_set():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)

    # The callbacks of the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = process = cast("asyncio.SubprocessTransport", transport)
        stdin = self._stdin = cast("asyncio.WriteTransport | None", process.get_pipe_transport(0))
        # uvloop also calls this for a process that was cancelled while it started.
        if stdin is not None and not stdin.is_closing():
            stdin.set_write_buffer_limits(WRITE_BYTES)
        if (pid := self.pid) is not None:
            self._started(pid)

    def pause_writing(self) -> None:
        self._paused = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.set_result(None)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            # Most often, these are the bytes of one message.
            is_whole = data.startswith(b"{") and data.find(b"\n") == len(data) - 1 <= self._max_line
            if is_whole and not self._line and not self._skipping:
                self._receive(data[:-1])
            else:
                self._receive_data(data)
        else:
            self._stderr.receive(data)

    def pipe_connection_lost(self, fd: int, exception: Exception | None) -> None:
        self._open_ends.discard(fd)
        if fd == 0:
            self.resume_writing()
        elif fd == 2:
            self._stderr.close()
        self._await_exit()

    def process_exited(self) -> None:
        # Kill the processes that it started and left behind.
        self._signal(signal.SIGKILL)
        self._exited.set()
        self._await_exit()

    def _await_exit(self) -> None:
        """Report the loss: soon, since its exit and stderr may follow and give the reason; at once when both are there.

        A child without stdin or stdout cannot serve, even if it lives on; a grandchild can hold a pipe open for ever.
        """
        if self._exited.is_set() and not self._open_ends & {1, 2}:
            self._report_lost()
        elif (
            self._lost_timer is None and not self._closing and (self._exited.is_set() or not self._open_ends >= {0, 1})
        ):
            self._lost_timer = asyncio.get_running_loop().call_later(EOF_GRACE_SECONDS, self._report_lost)

    def _report_lost(self) -> None:
        self.resume_writing()
        self._lost_reported.set()
        lost, self._lost = self._lost, None
        if lost is not None and not self._closing:
            lost(ConnectionLost(f"{self.name}: {self._end()}{self.last_words()}"))

    def _end(self) -> str:
        code = None if self._process is None else self._process.get_returncode()
        if code is None:
            return f"closed its {'stdout' if 1 not in self._open_ends else 'stdin'}"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def last_words(self) -> str:
        """The end of its stderr as the end of a message, with a hint for commands that install what they run."""
        lines = self._stderr.tail
        words = last_output(lines)
        hint = installer_hint(self._command, child_environment(self._env), "\n".join(lines))
        return f"{f', saying: {words}' if words else ''}{hint}"

    def _receive_data(self, data: bytes) -> None:
        # `find` looks through a long line in a tenth of the time that `split` takes.
        begin = 0
        while (end := data.find(b"\n", begin)) >= 0:
            line, begin = data[begin:end], end + 1
            if self._skipping:
                self._skipping = False
                continue
            if self._line:
                self._line += line
                line = bytes(self._line)
                self._line.clear()
            self._receive_line(line)
        if begin == len(data) or self._skipping:
            return
        self._line += data[begin:]
        if len(self._line) > self._max_line:
            self._skip_long_line()

    def _receive_line(self, line: bytes) -> None:
        if len(line) > self._max_line:
            self._reject_line(line[:512])
        elif line.strip():
            self._receive(line)

    def _skip_long_line(self) -> None:
        """Drop a line that is too long; the request that waits for it gets an error."""
        head = bytes(self._line[:512])
        self._line.clear()
        self._skipping = True
        self._reject_line(head)

    def _reject_line(self, head: bytes) -> None:
        _log.warning("%s: wrote a line of more than %d bytes: %s", self.name, self._max_line, shorten(head))
        found = _ID.search(head)
        error = f'"error":{{"code":{UNREAD},"message":"an answer of more than {self._max_line} bytes"}}}}'
        self._receive(b'{"jsonrpc":"2.0",%b%b' % (b'"id":%b,' % found[1] if found else b"", error.encode()))
