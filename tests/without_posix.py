"""Imports every module and runs verbs as on Windows: `sys.platform` is win32, and what only POSIX has is missing.

The standard library is loaded first, since its modules for this system need it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pkgutil
import signal
import ssl
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty", "uvloop")
MISSING = {
    os: (
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "WNOHANG", "chown", "fchmod", "fchown", "fork"),
        *("getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "killpg", "memfd_create", "pidfd_open"),
        *("register_at_fork", "sched_getaffinity", "setsid", "statvfs", "uname", "waitid"),
    ),
    signal: (
        "SIGALRM",
        "SIGCHLD",
        "SIGHUP",
        "SIGKILL",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "pthread_sigmask",
        "setitimer",
    ),
}
NOT_LOADED = {"__main__", "antigravity", "idlelib", "this", "tkinter", "turtle", "turtledemo"}


class Blocked:
    """Finds no module that Windows lacks."""

    def find_spec(self, name: str, *_: object) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(name, name=name)


def become_windows() -> None:
    # First: if _asyncio is imported before it, asyncio does without it in part, and finds no current task.
    importlib.import_module("asyncio")
    for name in sorted(sys.stdlib_module_names - NOT_LOADED):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("redis.asyncio")
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Blocked())  # type: ignore[arg-type]  # all that an import asks it
    sys.modules["msvcrt"] = types.ModuleType("msvcrt")
    for module, names in MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    # Windows has its certificates in a store of its own.
    vars(ssl)["enum_certificates"] = lambda *_: []
    sys.platform = "win32"


def failures() -> Iterator[str]:
    import pegboard

    for found in pkgutil.walk_packages(pegboard.__path__, "pegboard."):
        if not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except Exception as problem:  # noqa: BLE001 — whatever it raises is the finding
                yield f"{found.name}: {problem!r}"


def run(*words: str) -> str:
    from pegboard.cli.main import main

    out = io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main(list(words))
        except SystemExit as end:
            code = end.code
    return f"{code} {' '.join(out.getvalue().split())}"


def show() -> None:
    board = str(Path(__file__).resolve().parents[1] / "examples" / "hello.py")
    for failure in failures():
        print("failed", failure)
    for words in (
        ("new", "shop"),
        ("check", board),
        ("call", board, "add", "a=2", "b=3"),
        ("connect", "cursor", "http://127.0.0.1:7332/mcp", "--write"),
        ("add", "docs", "https://example.com/mcp"),
        ("dev", board),
        ("run", board, "--reload", "--http"),
        ("run", board, "--workers", "2", "--http"),
    ):
        print(words[0] + "".join(word for word in words if word in ("--reload", "--workers")), run(*words))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    become_windows()
    show()
