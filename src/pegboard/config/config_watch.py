"""Reloads a configuration file when it changes.

The file is checked about once a second. A change must look the same at two checks before it is read, so that an editor
can finish writing; a file that was only touched or saved unchanged does not count. A change with an error leaves the
old configuration in use and is reported once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig, read_config
from pegboard.errors import DeclarationError, SetupError
from pegboard.file_watch import UNSEEN, FileState, digest_of, state_of

POLL_SECONDS: Final = 1.0

# Keys that can be applied to a connected server: how it is shown, and the bounds of its next requests.
_LIVE_FIELDS: Final = (
    "tool_filters",
    "tools",
    "arguments",
    "repair_notes",
    "tags",
    "category",
    "middleware",
    "required",
    "timeout",
    "max_timeout",
    "connect_timeout",
    "lazy",
    "concurrency",
)
_GATEWAY_FIELDS: Final = tuple(
    name for name in GatewayConfig.__struct_fields__ if name not in ("path", "toolboxes", "warnings", "secrets")
)

_log = logging.getLogger("pegboard.gateway")

Server: TypeAlias = tuple[str, str]
"""A server by its toolbox and its name."""


class ConfigChanges(Struct, frozen=True, kw_only=True):
    """The differences between two configurations; servers by toolbox and name.

    `changed` servers have to reconnect, `updated` ones stay connected. `toolboxes` are those whose
    own settings changed, `gateway` names the gateway's own settings that did.
    """

    added: tuple[Server, ...] = ()
    removed: tuple[Server, ...] = ()
    changed: tuple[Server, ...] = ()
    updated: tuple[Server, ...] = ()
    toolboxes_added: tuple[str, ...] = ()
    toolboxes_removed: tuple[str, ...] = ()
    toolboxes: tuple[str, ...] = ()
    gateway: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != ConfigChanges()

    def __str__(self) -> str:
        """A summary for the log."""
        servers = (
            ("added", self.added),
            ("removed", self.removed),
            ("changed", self.changed),
            ("updated", self.updated),
        )
        parts = [f"{word}: {', '.join('/'.join(name) for name in names)}" for word, names in servers if names]
        parts += [f"{word}: {', '.join(names)}" for word, names in (
            ("toolboxes added", self.toolboxes_added), ("toolboxes removed", self.toolboxes_removed),
            ("toolboxes changed", self.toolboxes), ("settings changed", self.gateway),
        ) if names]  # fmt: skip
        return "; ".join(parts) or "nothing"


def compare(old: GatewayConfig, new: GatewayConfig) -> ConfigChanges:
    """The changes of an edit; servers and toolboxes are in the order of the configuration."""
    before, after = _servers(old), _servers(new)
    differing = [name for name in after if name in before and after[name] != before[name]]
    updated = tuple(name for name in differing if _connected_alike(before[name], after[name]))
    return ConfigChanges(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(name for name in differing if name not in updated),
        updated=updated,
        toolboxes_added=tuple(name for name in new.toolboxes if name not in old.toolboxes),
        toolboxes_removed=tuple(name for name in old.toolboxes if name not in new.toolboxes),
        toolboxes=tuple(
            name
            for name, toolbox in new.toolboxes.items()
            if name in old.toolboxes and _words(toolbox) != _words(old.toolboxes[name])
        ),
        gateway=tuple(name for name in _GATEWAY_FIELDS if getattr(old, name) != getattr(new, name)),
    )


class ConfigWatch:
    """Watches the file of a configuration and passes each valid edit, with the version before, to `on_change`."""

    def __init__(
        self,
        config: GatewayConfig,
        on_change: Callable[[GatewayConfig, GatewayConfig], Awaitable[None]],
        *,
        environ: Mapping[str, str] | None = None,
        boards: Collection[str] = (),
        seconds: float = POLL_SECONDS,
    ) -> None:
        self._boards = boards
        self.config = config
        self._on_change = on_change
        self._environ = environ
        self._seconds = seconds
        self._path = Path(config.path)
        # Starts unseen: the file may have been edited between the reading and the first look.
        self._settled: FileState | None = UNSEEN
        self._seen: FileState | None = UNSEEN
        self._digest = b""
        self._applying = asyncio.Lock()

    async def run(self) -> None:
        """Check repeatedly, until cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            await self.check_once()

    async def check_once(self) -> None:
        """Check once; an edit is read when the file has looked the same twice."""
        seen = await asyncio.to_thread(state_of, self._path)
        finished, self._seen = seen == self._seen, seen
        if not finished or seen == self._settled:
            return
        self._settled = seen
        if seen is None:
            _log.warning("%s has disappeared; the previous configuration stays in use", self._path)
            return
        digest = await asyncio.to_thread(digest_of, self._path)
        if digest != self._digest:
            self._digest = digest
            await self.reload()

    async def reload(self) -> None:
        """Read the file now, and pass a valid edit on."""
        async with self._applying:
            await self._apply_edit()

    async def _apply_edit(self) -> None:
        old = self.config
        try:
            new = await asyncio.to_thread(read_config, self._path, self._environ, self._boards)
        except SetupError as mistakes:
            _refuse(str(mistakes))
            return
        for warning in new.warnings:
            if warning not in old.warnings:
                _log.warning("%s: %s", self._path, warning)
        if new == old:
            return
        _log.info("%s was edited: %s", self._path, compare(old, new))
        try:
            await self._on_change(old, new)
            self.config = new
        except (SetupError, DeclarationError) as mistake:
            # Found only when it is applied, such as a board that cannot be loaded.
            _refuse(f"{self._path}: {mistake}")
        except Exception:  # noqa: BLE001 — whatever fails, the next edit may fix it
            self.config = new
            _log.exception("The edited configuration could not be applied completely")


def _refuse(text: str) -> None:
    """Log why an edit is not used: one line for each mistake, since a log line has no line breaks."""
    head, *mistakes = text.split("\n- ")
    _log.error("The edited configuration is not used, the previous one stays in use. %s", head)
    for mistake in mistakes:
        _log.error("  %s", " ".join(mistake.split()))


def _servers(config: GatewayConfig) -> dict[Server, ServerConfig]:
    return {
        (toolbox.name, server.name): server
        for toolbox in config.toolboxes.values()
        for server in toolbox.servers.values()
    }


def _connected_alike(one: ServerConfig, other: ServerConfig) -> bool:
    """Whether the connection of a server can stay; over HTTP, its number of connections follows from `concurrency`."""
    fields = [name for name in _LIVE_FIELDS if name != "concurrency" or one.kind != "http"]
    return replace(one, **{name: getattr(other, name) for name in fields}) == other


def _words(toolbox: ToolboxConfig) -> ToolboxConfig:
    return replace(toolbox, servers={})
