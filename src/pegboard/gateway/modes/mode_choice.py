"""Which tools a caller sees: all, those of opened toolboxes, or the meta-tools; and what each costs in tokens.

The mode is chosen for each toolbox: by the caller's principal, else by the endpoint, else by the toolbox, else by the
gateway; never by what a client declares. `auto` means `all` if the definitions of all toolboxes in that mode together
cost few enough tokens, else `proxy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from pegboard.call import Json
from pegboard.gateway.modes.meta_tool_host import Mode, Toolbox, Visibility
from pegboard.gateway.modes.tool_directory import Directory
from pegboard.middleware.observability.token_count import Counter, estimate_tokens, tokens_of
from pegboard.tools.naming import counted

ShownMode: TypeAlias = Literal["all", "dynamic", "proxy"]

AUTO_TOKENS: Final = 10_000
"""A twentieth of the context window of current models."""


class ModeChoice(Struct, frozen=True):
    """The modes of a configuration, from the most general to the most specific."""

    gateway: Mode = "all"
    endpoint: Mode | None = None
    auto_tokens: int = AUTO_TOKENS

    def of(self, toolbox: Toolbox, access: Visibility) -> Mode:
        """The mode for one toolbox and one principal."""
        return access.mode or self.endpoint or toolbox.mode or self.gateway

    def without_toolboxes(self, access: Visibility) -> Mode:
        """The mode without a toolbox."""
        return access.mode or self.endpoint or self.gateway


class TokenCounts:
    """The tokens of each tool of a directory, counted on demand."""

    def __init__(self) -> None:
        self._directory: Directory | None = None
        self._counts: dict[str, int] = {}

    def of(self, directory: Directory, toolboxes: Iterable[str], access: Visibility) -> int:
        """The total tokens of the tools of some toolboxes that a caller may see."""
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
    toolboxes: Sequence[Toolbox], directory: Directory, choice: ModeChoice, access: Visibility, tokens: TokenCounts
) -> dict[str, ShownMode]:
    """The mode of each toolbox that a caller may see."""
    modes = {toolbox.name: choice.of(toolbox, access) for toolbox in toolboxes if access.admits_server(toolbox.name)}
    undecided = [name for name, mode in modes.items() if mode == "auto"]
    few = bool(undecided) and tokens.of(directory, undecided, access) <= choice.auto_tokens
    decided: ShownMode = "all" if few else "proxy"
    return {name: decided if mode == "auto" else mode for name, mode in modes.items()}


class ModeCosts(Struct, frozen=True, kw_only=True):
    """The tokens of the tool lists in each mode.

    `dynamic` is the start of a session; `opened` has the tokens with one toolbox open, by toolbox, and `dynamic_whole`
    those with all of them.
    """

    tools: int
    all: int
    proxy: int
    dynamic: int
    opened: Mapping[str, int]
    exact: bool

    @property
    def dynamic_whole(self) -> int:
        return self.dynamic + self.all

    @property
    def saved(self) -> float:
        """The share of tokens that `proxy` saves over `all`."""
        return 1 - self.proxy / self.all if self.all > self.proxy else 0.0

    def lines(self) -> Iterator[str]:
        """One line for each mode, for people."""
        about = "" if self.exact else "about "
        yield f"all: {counted(self.tools, 'tool')}, {about}{self.all:,} tokens"
        largest = max(self.opened, key=lambda name: self.opened[name], default=None)
        more = "" if largest is None else f", {self.opened[largest]:,} with {largest} open"
        yield f"dynamic: {about}{self.dynamic:,} tokens{more}"
        compared = f"{self.saved:.1%} less than all" if self.proxy < self.all else "not less than all"
        yield f"proxy: {about}{self.proxy:,} tokens, {compared}"


def count_costs(
    directory: Directory,
    proxy: Iterable[Mapping[str, Json]],
    dynamic: Iterable[Mapping[str, Json]],
    count: Counter = estimate_tokens,
) -> ModeCosts:
    """The costs of a set of tools; `proxy` and `dynamic` are the meta-tools that are listed in these modes."""
    toolboxes: dict[str, int] = {}
    for entry in directory:
        toolboxes[entry.place.toolbox] = toolboxes.get(entry.place.toolbox, 0) + tokens_of(entry.definition, count)
    begins = sum(tokens_of(definition, count) for definition in dynamic)
    return ModeCosts(
        tools=len(directory),
        all=sum(toolboxes.values()),
        proxy=sum(tokens_of(definition, count) for definition in proxy),
        dynamic=begins,
        opened={name: begins + tokens for name, tokens in toolboxes.items()},
        exact=count is not estimate_tokens,
    )
