"""Hints about commands that install a package before they run it: npx and uvx."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

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
