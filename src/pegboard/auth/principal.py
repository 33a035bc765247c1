"""The Principal: who sent a request, as the server has authenticated it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class Principal(Struct, frozen=True, eq=False):
    """An authenticated caller.

    id: identifies the caller in rules, limits, sessions, tasks and logs; empty for an anonymous caller. It is compared
      exactly: ids that differ in case are different callers.
    scopes: what the presented credential may be used for.
    roles: the groups that the caller belongs to.
    claims: what the issuer states about the caller, such as the claims of a JWT.
    issuer: the issuer that states it: another one that uses the same id means another caller. Empty without an issuer.
    kind: how the caller was authenticated: `key`, `token`, `proxy`, `app` (an application around a mounted board),
      `local` (stdio), or `anonymous`.

    Two principals are equal if they have the same id. A falsy principal is anonymous.
    """

    id: str
    scopes: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, object] = {}
    kind: str = "token"
    issuer: str = ""

    def __bool__(self) -> bool:
        return bool(self.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Principal) and self.id == other.id

    def __ne__(self, other: object) -> bool:
        # A Struct does not derive it from `__eq__`.
        return not self == other

    def __hash__(self) -> int:
        return hash(self.id)


def find_claim(claims: Mapping[str, object], path: str) -> object:
    """A claim by its name, or by a path such as `realm_access.roles`."""
    if path in claims:
        return claims[path]
    found: object = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


OWN_PROCESS: Final = Principal("", kind="local")
"""The program that a board is part of: a client in the same process, or a gateway that lists the tools of the board."""
ANONYMOUS: Final = Principal("", kind="anonymous")
"""The caller of a request that needed no authentication."""
