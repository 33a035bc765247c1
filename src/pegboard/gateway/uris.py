"""Resource URIs through a gateway: the server's name is part of them.

    file:///a      →  file://<server>.<toolbox>.pegboard/~/a        what followed `//` follows `/~`
    notes://h/p    →  notes://<server>.<toolbox>.pegboard/~h/p
    memo:n         →  memo://<server>.<toolbox>.pegboard/:n         what followed a bare `:` follows `/:`
    readme, {+uri} →  pegboard://<server>.<toolbox>.pegboard/!…     no scheme to keep
    https://h/p    →  https://h/p                                   the client may fetch it itself

The scheme stays, because hosts depend on it (`ui://`). The original text is moved and never rewritten, so that
templates are mapped like URIs: a URI expanded from a mapped template maps back to the expansion of the original. URL
parsers lower-case hosts, and so do we: the names that come back are lower case (toolboxes and servers differ in more
than case).
"""

from __future__ import annotations

import re
from typing import Final

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+(?=:)")
_WRAPPED: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*)://([a-z0-9_-]+)\.([a-z0-9_-]+)\.pegboard/(~|:|!|%7e|%3a|%21)(.*)",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
# The separators before the mark. A client that normalizes URLs may have escaped the mark.
_LEADS: Final = {"~": "://", "%7e": "://", ":": ":", "%3a": ":"}
_OURS: Final = "pegboard"


def _stays(uri: str) -> bool:
    """Whether a URI is the same on both sides, so that only the catalog tells its owner."""
    return uri[:8].lower().startswith(("http:", "https:"))


def wrap_uri(uri: str, toolbox: str, server: str) -> str:
    """A server's URI as the gateway's clients see it."""
    if _stays(uri):
        return uri
    host = f"{server}.{toolbox}.pegboard".lower()
    found = _SCHEME.match(uri)
    if found is None:
        return f"{_OURS}://{host}/!{uri}"
    scheme, rest = found[0], uri[found.end() + 1 :]
    return f"{scheme}://{host}/~{rest[2:]}" if rest.startswith("//") else f"{scheme}://{host}/:{rest}"


def wrap_template(template: str, toolbox: str, server: str) -> str:
    """The same for a URI template: every expansion, unwrapped, is an expansion of the original template."""
    return wrap_uri(template, toolbox, server)


def unwrap_uri(uri: str) -> tuple[str, str, str] | None:
    """Toolbox and server, in lower case, and the server's own URI; None for one that is not wrapped."""
    found = _WRAPPED.fullmatch(uri)
    if found is None:
        return None
    scheme, server, toolbox, mark, rest = found.groups()
    lead = _LEADS.get(mark.lower())
    if lead is not None:
        return toolbox.lower(), server.lower(), f"{scheme}{lead}{rest}"
    return (toolbox.lower(), server.lower(), rest) if scheme.lower() == _OURS else None
