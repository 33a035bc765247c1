"""Rewrites the URIs in a server's definitions and results, and the names of tools that it suggests."""

from __future__ import annotations

from collections.abc import Mapping

from pegboard.call import Json
from pegboard.gateway.pegboard_notes import NOTES, translate_notes
from pegboard.gateway.uris import unwrap_uri, wrap_uri
from pegboard.tools.qualified_names import join_name


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
                return translate_notes(rewritten, self._to_name, self.to_gateway)
        return rewritten

    def _to_name(self, tool: str) -> str:
        return join_name(self._toolbox, self._server, tool)

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
