"""Reads secrets that a configuration names in place of holding them: from a file, or from a command.

Both are bounded in size, the command also in time. The message of a failure names the file or the program, and never
contains what was read: a secret, or text of the program about it.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

MAX_BYTES: Final = 64 * 1024
COMMAND_SECONDS: Final = 10.0


class SecretUnavailable(Exception):
    """A secret could not be read; the text says why, and what to do."""


def read_secret_file(text: str, folder: Path) -> str:
    """The text of a file, without the line break at its end."""
    if not text:
        raise SecretUnavailable("${file:} names no file; write ${file:PATH}")
    path = folder / Path(text).expanduser()
    try:
        if not path.is_file():
            # A pipe or a device could block for ever.
            raise SecretUnavailable(f"the secret file {path} does not exist, or is not a file; create it")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise SecretUnavailable(
            f"the secret file {path} cannot be read ({problem.strerror}); let the user of the gateway read it"
        ) from None
    return _text(data, f"the secret file {path}")


def run_secret_command(text: str, folder: Path) -> str:
    """What a command writes to stdout, without the line break at its end; it runs without a shell."""
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise SecretUnavailable(f"${{cmd:…}} has an invalid command: {problem}; check its quotes") from None
    if not words:
        raise SecretUnavailable("${cmd:} names no command; write ${cmd:COMMAND}")
    name = f"the secret command {Path(words[0]).name!r}"
    try:
        # A group of its own, so that what it starts ends with it.
        child = subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as problem:
        raise SecretUnavailable(
            f"{name} cannot be started ({problem.strerror}); install it, or write its path"
        ) from None
    timed_out = threading.Event()

    def end_late() -> None:
        # Before the kill, which lets the reader below continue at once.
        timed_out.set()
        _end(child)

    timer = threading.Timer(COMMAND_SECONDS, end_late)
    timer.start()
    with child:
        assert child.stdout is not None  # noqa: S101 — it is a pipe
        try:
            # Not more: the output could be endless.
            data = child.stdout.read(MAX_BYTES + 1)
            if len(data) <= MAX_BYTES:
                child.wait()
        finally:
            timer.cancel()
            timer.join()
            _end(child)
    if timed_out.is_set():
        raise SecretUnavailable(
            f"{name} did not end within {COMMAND_SECONDS:g} s; it may wait for input: run it in a terminal"
        )
    if child.returncode != 0 and len(data) <= MAX_BYTES:
        raise SecretUnavailable(
            f"{name} failed with exit code {child.returncode}; run it in a terminal to see what it says"
        )
    return _text(data, f"the output of {name}")


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the command and what it has started, unless all of that has ended."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)


def _text(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise SecretUnavailable(f"{name} has more than {MAX_BYTES} bytes, so it is not a secret; name another one")
    try:
        value = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretUnavailable(f"{name} is not UTF-8 text; encode it, for example with base64") from None
    if not value:
        raise SecretUnavailable(f"{name} is empty; write the secret to it")
    if "\0" in value:
        raise SecretUnavailable(f"{name} contains a NUL character; remove it")
    return value


SecretSources: TypeAlias = Mapping[str, Callable[[str, Path], str]]
"""How each kind of reference is read: a function of the text after the colon, and the folder of the configuration."""

SOURCES: Final[SecretSources] = {"file:": read_secret_file, "cmd:": run_secret_command}
