"""The token cost of each mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from pegboard.call import Json
from pegboard.gateway.modes.tool_directory import Directory
from pegboard.middleware.observability.token_count import Counter, estimate_tokens, tokens_of
from pegboard.tools.naming import counted


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
        compared = f"{self.saved:.1%} less than all" if self.proxy < self.all else "no less than all"
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
