"""What a client knows of a server's tools: mirrored headers, and whether a retry is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pegboard.call import Json
from pegboard.client.transports.mirrored_headers import mirrored_parameters
from pegboard.errors import LoginFailed, Refusal


class KnownTool(Struct, frozen=True):
    """One tool; `mirrors` maps header names to the paths of the arguments that they mirror."""

    mirrors: Mapping[str, Sequence[str]] = {}
    repeatable: bool = False


_UNKNOWN_TOOL: Final = KnownTool()


class KnownTools:
    """The tools by name, as last listed; `edition` counts the lists."""

    def __init__(self) -> None:
        self.generation = 0
        self._tools: Mapping[str, KnownTool] = {}
        self._learning = asyncio.Lock()
        self._failed: LoginFailed | None = None

    def find(self, name: str) -> KnownTool:
        """The entry of a tool; None if it was not listed."""
        return self._tools.get(name, _UNKNOWN_TOOL)

    def update(self, tools: Iterable[Mapping[str, Json]]) -> None:
        """Store a list."""
        self._tools = {
            str(tool.get("name")): KnownTool(mirrored_parameters(tool), _is_repeatable(tool)) for tool in tools
        }
        self.generation += 1

    async def learn(self, generation: int, list_tools: Callable[[], Awaitable[object]]) -> None:
        """List the tools if this edition is still current, once for all concurrent requests.

        A failed login counts for all of them, so that a person who declined is not asked once per call.
        """
        failed = self._failed
        async with self._learning:
            if self.generation != generation:
                return
            if self._failed is not None and self._failed is not failed:
                raise self._failed
            try:
                await list_tools()
            except Refusal:
                self.update(())
            except LoginFailed as failure:
                self._failed = failure
                raise


def _is_repeatable(tool: Mapping[str, Json]) -> bool:
    hints = tool.get("annotations")
    return isinstance(hints, dict) and (hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True)
