"""The interface between the meta-tools and their endpoint."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from pegboard.call import Call, Caller, Reply
from pegboard.gateway.modes.tool_directory import Directory, DirectoryEntry

Mode: TypeAlias = Literal["all", "dynamic", "proxy", "auto"]
"""How tools are shown: all of them, those of opened toolboxes, none but the meta-tools, or all where they are few."""


class ServerStatus(Struct, frozen=True):
    """One server of a toolbox: whether its tools can be had, and what a caller may be told if not.

    `state` is that of a Downstream; `problem` is for peers, so it names no command, path, address or secret.
    """

    name: str
    state: str = "ready"
    problem: str = ""
    instructions: str = ""


class Toolbox(Struct, frozen=True):
    """A toolbox as callers are told of it."""

    name: str
    description: str = ""
    servers: tuple[ServerStatus, ...] = ()
    mode: Mode | None = None


class Access(Struct, frozen=True):
    """What a caller may see; equal, and hashed alike, for all callers that are shown the same. None: everything.

    `tools` are served names; `mode` is the one that this principal is given, if any.
    """

    toolboxes: frozenset[str] | None = None
    tools: frozenset[str] | None = None
    mode: Mode | None = None

    def admits(self, entry: DirectoryEntry) -> bool:
        """Whether this tool exists for the caller."""
        if self.toolboxes is not None and entry.place.toolbox not in self.toolboxes:
            return False
        return self.tools is None or entry.name in self.tools

    def admits_toolbox(self, name: str) -> bool:
        return self.toolboxes is None or name in self.toolboxes


class MetaToolHost(Protocol):
    """An endpoint, as far as its meta-tools are concerned."""

    @property
    def directory(self) -> Directory:
        """The tools that are there now, the meta-tools not among them; another object after each change."""

    @property
    def toolboxes(self) -> Sequence[Toolbox]:
        """All toolboxes of this endpoint, in the order of the configuration, as they are now."""

    def access(self, caller: Caller) -> Access:
        """What this caller may see; the meta-tools leave out whatever it does not admit."""

    async def wait_connected(self, toolbox: str) -> None:
        """Connect the servers of a toolbox that are not yet, and wait until each has answered or failed; bounded."""

    def call(self, call: Call) -> Coroutine[Any, Any, Reply]:
        """Run the tool that `call.name` says through all that surrounds it, as if it had come from outside."""

    async def opened(self, caller: Caller) -> frozenset[str] | None:
        """The toolboxes that are open for this caller; None where nothing is remembered of callers, as for modern ones."""

    async def change_opened(self, caller: Caller, opened: frozenset[str]) -> None:
        """Remember what is open for this caller; only called for callers of whom something is remembered.

        Who asked is told by the meta-tool itself, on the stream of its call; other connections of the session are not.
        """
