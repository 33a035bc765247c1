"""Cache hints of a result: how long it stays valid, and whether it may be shared."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from pegboard.call import Json
from pegboard.errors import DeclarationError

Scope: TypeAlias = Literal["public", "private"]


class Caching(Struct, frozen=True):
    """The caching hints of one list or resource; 0 means: request it each time."""

    ttl_ms: int = 0
    scope: Scope = "private"

    def __post_init__(self) -> None:
        if type(self.ttl_ms) is not int or self.ttl_ms < 0:
            raise DeclarationError(f"ttl_ms={self.ttl_ms!r}; use whole milliseconds, 0 or more")
        if self.scope not in ("public", "private"):
            raise DeclarationError(f"cache_scope={self.scope!r}; use 'public' or 'private'")

    def private(self) -> Caching:
        """The same for a result that differs between callers."""
        return Caching(self.ttl_ms)

    def hints(self) -> dict[str, Json]:
        """The hints as members of a result."""
        return {"ttlMs": self.ttl_ms, "cacheScope": self.scope}
