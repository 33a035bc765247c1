"""The interface between the meta-tools and their endpoint."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from pegboard.call import Call, Caller, Reply
from pegboard.gateway.modes.tool_directory import Directory, DirectoryEntry
from pegboard.rules.verdicts import View

Mode: TypeAlias = Literal["all", "dynamic", "proxy", "auto"]
"""Which tools are listed: all, those of opened toolboxes, only the meta-tools, or all if they are few."""


class ServerStatus(Struct, frozen=True):
    """One server of a toolbox: whether its tools are available, and if not, why.

    `state` is that of a Downstream; `problem` is for peers, so it names no command, path, address or secret.
    """

    name: str
    state: str = "ready"
    problem: str = ""
    instructions: str = ""


class Toolbox(Struct, frozen=True):
    """A toolbox as callers see it."""

    name: str
    description: str = ""
    servers: tuple[ServerStatus, ...] = ()
    mode: Mode | None = None


class Visibility(Struct, frozen=True):
    """What a caller sees of an endpoint; equal for all callers that see the same.

    `view` has the verdicts of the rules, None if there are none; `mode` is the one set for this principal, if any.
    """

    view: View | None = None
    mode: Mode | None = None

    def admits(self, entry: DirectoryEntry) -> bool:
        """Whether the caller sees this tool."""
        return self.view is None or self.view.of(entry.tool).listed

    def hides(self, entry: DirectoryEntry) -> bool:
        """Whether this tool does not exist for the caller."""
        return self.view is not None and self.view.of(entry.tool).effect == "hide"

    def admits_server(self, toolbox: str, server: str = "") -> bool:
        """Whether the caller may see something of a toolbox, or of one of its servers."""
        return self.view is None or self.view.may_see(toolbox, server)


class MetaToolHost(Protocol):
    """An endpoint, as seen by its meta-tools."""

    @property
    def directory(self) -> Directory:
        """The current tools without the meta-tools; a new object after each change."""

    @property
    def toolboxes(self) -> Sequence[Toolbox]:
        """All toolboxes of this endpoint and their current state, in the order of the configuration."""

    def visibility(self, caller: Caller) -> Visibility:
        """What this caller sees; the meta-tools leave out everything else."""

    async def wait_connected(self, toolbox: str | None) -> None:
        """Connect the servers of a toolbox, and wait until each has responded or failed, up to a limit.

        Without a toolbox: wait for those that are connecting already.
        """

    def call(self, call: Call) -> Coroutine[Any, Any, Reply]:
        """Call the tool `call.name` with all its middleware, as if the request had come from outside."""

    async def opened(self, caller: Caller) -> frozenset[str] | None:
        """The toolboxes that this caller has opened; None for callers without a session, such as modern ones."""

    async def change_opened(self, caller: Caller, opened: frozenset[str]) -> None:
        """Set the toolboxes that this caller has opened; only for callers with a session.

        The meta-tool notifies the caller on the stream of its call; other connections of the session are not notified.
        """
