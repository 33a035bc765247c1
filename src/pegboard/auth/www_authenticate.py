"""Writes WWW-Authenticate: why a request was rejected, and where its client finds an authorization server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
# "scope-token = 1*( %x21 / %x23-5B / %x5D-7E )" (RFC 6749, 3.3)
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
# What a quoted text can contain without escapes, in the characters that RFC 6750 (3) permits for a description.
_UNQUOTABLE: Final = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")


def is_scope(text: str) -> bool:
    """Whether a text is a valid scope."""
    return _SCOPE.fullmatch(text) is not None


def write_challenge(scheme: str, parameters: Mapping[str, str]) -> bytes:
    """One challenge; parameters without a value are left out."""
    written = ", ".join(f'{name}="{_UNQUOTABLE.sub("?", value)}"' for name, value in parameters.items() if value)
    return f"{scheme} {written}".rstrip().encode("ascii")


def join_scopes(scopes: Iterable[str]) -> str:
    """Scopes as a parameter has them, in an order that does not change."""
    return " ".join(sorted(scopes))
