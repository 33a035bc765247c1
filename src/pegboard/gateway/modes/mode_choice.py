"""Which tools a caller sees: all, those of opened toolboxes, or the meta-tools.

The mode is chosen for each toolbox: by the caller's principal, else by the endpoint, else by the toolbox, else by the
gateway; never by what a client declares. `auto` means `all` if the definitions of all toolboxes in that mode together
cost few enough tokens, else `proxy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.call import Json
from pegboard.gateway.modes.meta_tool_host import Access, Mode, Toolbox
from pegboard.gateway.modes.tool_directory import Directory
from pegboard.middleware.token_count import Counter, estimate_tokens

ShownMode: TypeAlias = Literal["all", "dynamic", "proxy"]

AUTO_TOKENS: Final = 10_000
"""A twentieth of what the models of today can hold in mind."""

_encode = msgspec.json.Encoder().encode


class ModeChoice(Struct, frozen=True):
    """The modes that a configuration says, from the widest to the narrowest."""

    gateway: Mode = "all"
    endpoint: Mode | None = None
    auto_tokens: int = AUTO_TOKENS

    def of(self, toolbox: Toolbox, access: Access) -> Mode:
        """What is said for one toolbox and one kind of caller."""
        return access.mode or self.endpoint or toolbox.mode or self.gateway

    def without_toolboxes(self, access: Access) -> Mode:
        """What is said where there is no toolbox to say it."""
        return access.mode or self.endpoint or self.gateway


def tokens_of(definition: Mapping[str, Json], count: Counter = estimate_tokens) -> int:
    """What a definition costs a model that is shown it: about, since to know it a process holds 40 MB of vocabulary."""
    return count(_encode(definition).decode("utf-8"))


class TokenCounts:
    """The tokens of each tool of a directory, counted when first asked for."""

    def __init__(self) -> None:
        self._directory: Directory | None = None
        self._counts: dict[str, int] = {}

    def of(self, directory: Directory, toolboxes: Iterable[str], access: Access) -> int:
        """What the tools of some toolboxes cost together, those alone that a caller may see."""
        if directory is not self._directory:
            self._directory, self._counts = directory, {}
        return sum(
            self._count(entry.name, entry.definition)
            for toolbox in toolboxes
            for entry in directory.of_toolbox(toolbox)
            if access.admits(entry)
        )

    def _count(self, name: str, definition: Mapping[str, Json]) -> int:
        count = self._counts.get(name)
        if count is None:
            count = self._counts[name] = tokens_of(definition)
        return count


def choose_modes(
    toolboxes: Sequence[Toolbox], directory: Directory, choice: ModeChoice, access: Access, tokens: TokenCounts
) -> dict[str, ShownMode]:
    """How each toolbox that a caller may know of is shown to it."""
    said = {one.name: choice.of(one, access) for one in toolboxes if access.admits_toolbox(one.name)}
    undecided = [name for name, mode in said.items() if mode == "auto"]
    few = bool(undecided) and tokens.of(directory, undecided, access) <= choice.auto_tokens
    decided: ShownMode = "all" if few else "proxy"
    return {name: decided if mode == "auto" else mode for name, mode in said.items()}
