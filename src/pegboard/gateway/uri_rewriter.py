"""Rewrites the URIs in a server's definitions and results, and the names of tools that it suggests.

A URI through a gateway contains the name of its server:

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
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from pegboard.call import Json
from pegboard.errors import ERROR, REFUSED, describe_tools
from pegboard.middleware.limits.kept_results import PAGE
from pegboard.middleware.limits.token_budget import TRUNCATED
from pegboard.next_action import NextAction
from pegboard.protocol.json_values import as_object, objects_in
from pegboard.tools.answer_suggestions import NEXT_ACTIONS, describe_actions
from pegboard.tools.qualified_names import join_name

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+(?=:)")
_WRAPPED: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*)://([a-z0-9_-]+)\.([a-z0-9_-]+)\.pegboard/(~|:|!|%7e|%3a|%21)(.*)",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
# The separators before the mark. A client that normalizes URLs may have escaped the mark.
_LEADS: Final = {"~": "://", "%7e": "://", ":": ":", "%3a": ":"}
_OURS: Final = "pegboard"

NOTES: Final = frozenset({ERROR, NEXT_ACTIONS, PAGE, REFUSED, TRUNCATED})
_MAX_ACTIONS: Final = 20

Rename = Callable[[str], str]


def translate_notes(result: Mapping[str, Json], to_name: Rename, to_uri: Rename) -> dict[str, Json]:
    """The result with names of tools and URIs as the gateway's callers know them, in what a Pegboard server added.

    They are in `_meta` for programs and in a text for the model. The texts are written by a rule, so the old one is found
    and replaced as a whole; a text of another form is left as it is.
    """
    meta = dict(as_object(result.get("_meta")))
    texts: dict[str, str] = {}
    for key, member in ((TRUNCATED, "uri"), (REFUSED, "uri"), (PAGE, "next")):
        note = as_object(meta.get(key))
        if isinstance(uri := note.get(member), str):
            texts[uri] = to_uri(uri)
            meta[key] = {**note, member: texts[uri]}
    error = as_object(meta.get(ERROR))
    for describe, listed in ((describe_tools, error.get("tools")), (describe_actions, meta.get(NEXT_ACTIONS))):
        old = [_read_action(item) for item in objects_in(listed)[:_MAX_ACTIONS]]
        new = [NextAction(to_name(action.tool), action.arguments, action.reason) for action in old]
        if old:
            texts[describe(old)] = describe(new)
            written = [action.as_json() for action in new]
            meta |= {ERROR: {**error, "tools": written}} if describe is describe_tools else {NEXT_ACTIONS: written}
    rewritten = {**result, "_meta": meta}
    for member in ("content", "contents"):
        if isinstance(items := rewritten.get(member), list):
            rewritten[member] = [_replace(item, texts) for item in items]
    return rewritten


def _read_action(item: Mapping[str, Json]) -> NextAction:
    reason = item.get("reason")
    return NextAction(
        str(item.get("tool", "")), as_object(item.get("arguments")), reason if isinstance(reason, str) else ""
    )


def _replace(item: Json, texts: Mapping[str, str]) -> Json:
    if not isinstance(item, dict):
        return item
    if isinstance(item.get("resource"), dict):
        return {**item, "resource": _replace(item["resource"], texts)}
    text = item.get("text")
    if not isinstance(text, str):
        return item
    for old, new in texts.items():
        text = text.replace(old, new)
    return {**item, "text": text}


def _stays(uri: str) -> bool:
    """Whether a URI is the same on both sides, so that only the catalog tells its owner."""
    return uri[:8].lower().startswith(("http:", "https:"))


def wrap_uri(uri: str, toolbox: str, server: str) -> str:
    """A server's URI, or a URI template, as the gateway's clients see it."""
    if _stays(uri):
        return uri
    host = f"{server}.{toolbox}.pegboard".lower()
    found = _SCHEME.match(uri)
    if found is None:
        return f"{_OURS}://{host}/!{uri}"
    scheme, rest = found[0], uri[found.end() + 1 :]
    return f"{scheme}://{host}/~{rest[2:]}" if rest.startswith("//") else f"{scheme}://{host}/:{rest}"


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


class UriRewriter:
    """Rewrites in both directions; a server whose toolbox keeps plain names keeps its URIs too."""

    def __init__(self, toolbox: str, server: str, *, plain: bool = False) -> None:
        self._toolbox = toolbox
        self._server = server
        self._plain = plain
        self._changes = ("content", self._block), ("contents", self._contents), ("messages", self._message)

    def to_gateway(self, uri: str) -> str:
        """A URI of the server, as clients see it."""
        # A server's URI that looks like ours would lead elsewhere: wrap it too.
        if self._plain and unwrap_uri(uri) is None:
            return uri
        return wrap_uri(uri, self._toolbox, self._server)

    def to_server(self, uri: str) -> str:
        """The URI at the server."""
        found = unwrap_uri(uri)
        return uri if found is None else found[2]

    def in_definition(self, definition: Mapping[str, Json]) -> dict[str, Json]:
        """The definition of a resource or a template."""
        rewritten = dict(definition)
        if isinstance(uri := rewritten.get("uri"), str):
            rewritten["uri"] = self.to_gateway(uri)
        elif isinstance(template := rewritten.get("uriTemplate"), str):
            rewritten["uriTemplate"] = self.to_gateway(template)
        return rewritten

    def in_meta(self, meta: Mapping[str, Json]) -> dict[str, Json]:
        """The metadata of a tool, which may name its UI resource (MCP Apps)."""
        rewritten = dict(meta)
        ui = rewritten.get("ui")
        if isinstance(ui, Mapping) and isinstance(uri := ui.get("resourceUri"), str):
            rewritten["ui"] = {**ui, "resourceUri": self.to_gateway(uri)}
        if isinstance(uri := rewritten.get("ui/resourceUri"), str):
            rewritten["ui/resourceUri"] = self.to_gateway(uri)
        return rewritten

    def in_result(self, result: dict[str, Json]) -> dict[str, Json]:
        """A result of the server: its contents, links, embedded resources, messages and metadata."""
        if self._plain:
            return result
        rewritten = dict(result)
        for member, change in self._changes:
            if member in rewritten and isinstance(items := rewritten[member], list):
                rewritten[member] = [change(item) for item in items]
        if isinstance(meta := rewritten.get("_meta"), dict):
            rewritten["_meta"] = self.in_meta(meta)
            if not NOTES.isdisjoint(meta):
                return translate_notes(rewritten, partial(join_name, self._toolbox, self._server), self.to_gateway)
        return rewritten

    def _contents(self, item: Json) -> Json:
        if isinstance(item, dict) and isinstance(uri := item.get("uri"), str):
            return {**item, "uri": self.to_gateway(uri)}
        return item

    def _block(self, item: Json) -> Json:
        if not isinstance(item, dict):
            return item
        match item.get("type"):
            case "resource_link":
                return self._contents(item)
            case "resource":
                return {**item, "resource": self._contents(item.get("resource"))}
            case _:
                return item

    def _message(self, item: Json) -> Json:
        if not isinstance(item, dict):
            return item
        content = item.get("content")
        # Older revisions have one block, some servers send a list.
        rewritten = [self._block(block) for block in content] if isinstance(content, list) else self._block(content)
        return {**item, "content": rewritten}
