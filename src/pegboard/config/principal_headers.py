"""Header values that refer to the caller: `${principal.id}` and `${principal.claims.NAME}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pegboard.auth.principal import Principal, find_claim
from pegboard.errors import AccessDenied

_ANY: Final = re.compile(r"\$\{(principal[^}]{0,256})\}")
_CLAIM: Final = "principal.claims."
MAX_CHARACTERS: Final = 4096


def refers_to_principal(value: str) -> bool:
    """Whether a header value depends on the caller."""
    return _ANY.search(value) is not None


def wrong_reference(value: str) -> str:
    """The first reference that does not exist; empty if all do."""
    for found in _ANY.finditer(value):
        name = found[1]
        if name != "principal.id" and not (name.startswith(_CLAIM) and len(name) > len(_CLAIM)):
            return found[0]
    return ""


def expand_headers(headers: Mapping[str, str], principal: Principal, server: str) -> tuple[tuple[str, str], ...]:
    """The headers for this caller; AccessDenied if it has no identity, or not the claims that they need."""
    if not principal:
        raise AccessDenied(f"The server {server!r} gets the identity of its caller, and this one is not authenticated")

    def put(found: re.Match[str]) -> str:
        name = found[1]
        value = principal.id if name == "principal.id" else find_claim(principal.claims, name.removeprefix(_CLAIM))
        if isinstance(value, bool):
            value = str(value).lower()
        if isinstance(value, int | float):
            value = str(value)
        # It comes from a token: what a header could not carry, or what could end it, is rejected.
        if not isinstance(value, str) or not (value.isascii() and value.isprintable() and value):
            raise AccessDenied(
                f"The server {server!r} needs {name} of its caller, and this caller's credentials do not state it"
            )
        return value

    made = tuple((name, _ANY.sub(put, value)) for name, value in headers.items())
    if any(len(value) > MAX_CHARACTERS for _, value in made):
        raise AccessDenied(f"The headers about the caller are too long for the server {server!r}")
    return made
