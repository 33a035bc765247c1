"""The paths of the pages, and of the deprecated endpoints that there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pegboard.errors import SetupError

APPROVALS: Final = "/approvals"
SIGN_IN: Final = "/sign-in"

DEPRECATED_ENDPOINTS: Final = ("rpc", "oneshot", "sse")
"""`POST /rpc`; `POST /sse`; `GET /sse` with `POST /messages`."""

_PATHS: Final = {"rpc": ("/rpc",), "oneshot": ("/sse",), "sse": ("/sse", "/messages")}


def endpoint_paths(which: Iterable[str]) -> frozenset[str]:
    """The paths of those endpoints, each with and without a trailing slash."""
    bare = {path for name in which for path in _PATHS[name]}
    return frozenset(bare | {path + "/" for path in bare})


def read_endpoint_names(given: str | Iterable[str], option: str) -> tuple[str, ...]:
    """The endpoints to serve: their names, `all` or `none`; an error names the option."""
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
    if names in (["all"], ["none"]):
        return DEPRECATED_ENDPOINTS if names == ["all"] else ()
    for name in names:
        if name not in DEPRECATED_ENDPOINTS:
            raise SetupError(f"{option} {name!r} is not one of {', '.join(DEPRECATED_ENDPOINTS)}, all or none")
    return tuple(name for name in DEPRECATED_ENDPOINTS if name in names)
