"""Authentication with fixed tokens, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pegboard.auth.auth import Auth
from pegboard.auth.principal import Principal


def fixed_tokens(tokens: Mapping[str, Principal], *, public_url: str | None = None, scopes: Iterable[str] = ()) -> Auth:
    """An Auth that knows these bearer tokens: `Board(auth=fixed_tokens({"a": Principal("ann")}))`."""
    return Auth(verify=tokens.get, public_url=public_url, scopes=scopes)
