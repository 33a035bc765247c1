"""Resources: fixed ones, and families of them described by a URI template."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from pegboard.call import Handler, Json
from pegboard.call_target import CalledItem
from pegboard.catalog.caching import Caching
from pegboard.catalog.folder import Folder
from pegboard.catalog.uri_template import Template, TemplateIndex, is_template
from pegboard.errors import DeclarationError, ResourceNotFound
from pegboard.media import File
from pegboard.protocol.content import guess_by_suffix, resource_block
from pegboard.protocol.json_values import as_object, texts_in
from pegboard.rules.verdicts import Verdict, View
from pegboard.schema.plain_json import ResultProblem, as_plain
from pegboard.tools.naming import humanise
from pegboard.tools.tool import Icons, Tool, read_icons

_PART = frozenset({"uri", "mimeType", "text", "blob", "_meta"})
_TEXT, _BYTES, _JSON = "text/plain", "application/octet-stream", "application/json"


class Resource:
    """A resource or a resource template; `tool` is the function behind it, its arguments the template's variables."""

    relay: Handler | None = None
    """The relay that answers requests for it, if another server has it."""

    def __init__(
        self,
        uri: str,
        tool: Tool,
        *,
        name: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Mapping[str, Json] | None = None,
        icons: Icons = (),
        meta: Mapping[str, Json] | None = None,
        caching: Caching = Caching(),  # noqa: B008 — it cannot be changed
        scopes: Iterable[str] = (),
    ) -> None:
        if ":" not in uri.partition("{")[0] and not uri.startswith("{"):
            raise DeclarationError(
                f"{tool.source}: {uri!r} is not a URI; start it with a scheme, for example notes://{uri}"
            )
        self.uri = uri
        self.tool = tool
        self.template = Template(uri, tool.source) if is_template(uri) else None
        self.name = name or tool.name
        self.item = CalledItem(
            item="resource",
            name=uri,
            listed_name=self.name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema,
            annotations=annotations,
            meta=meta,
            scopes=frozenset(scopes),
        )
        self.mime_type = mime_type
        self._size = size
        self._annotations = annotations
        self._icons = list(read_icons(icons))
        self._meta = meta
        self.caching = caching
        self._check_parameters()

    def own_uri(self, uri: str) -> str:
        """The URI at the server that has the resource."""
        return uri

    def verdict(self, uri: str, view: View) -> Verdict:
        """What callers with this view may do with the resource behind a URI, which may be one of a template's."""
        if uri == self.uri:
            return view.of(self.item)
        return view.of_uri(self.item, self.own_uri(uri), from_template=self.template is not None)

    def definition(self) -> dict[str, Json]:
        """The resource as a list item."""
        shown: dict[str, Json] = {
            "uri" if self.template is None else "uriTemplate": self.uri,
            "name": self.name,
            "title": self.tool.title or humanise(self.name),
            "description": self.tool.description,
            "mimeType": self.mime_type or guess_by_suffix(self.uri),
            "size": self._size if self.template is None else None,
            "annotations": self._annotations,
            "icons": self._icons,
            "_meta": self._meta,
        }
        return {key: value for key, value in shown.items() if value or key == "name"}

    def result(self, uri: str, value: Any) -> dict[str, Json]:
        """The return value of the function as the result of resources/read for this URI."""
        if value is None:
            raise ResourceNotFound(uri)
        if isinstance(value, list) and value and all(isinstance(item, File) for item in value):
            return {"contents": [as_object(item.to_block()["resource"]) for item in value]}
        if isinstance(value, str | bytes | bytearray | File):
            return {"contents": [self._content(uri, value)]}
        plain = as_plain(value)
        if isinstance(plain, dict) and isinstance(plain.get("contents"), list):
            return {**plain, "contents": [self._check_part(uri, *part) for part in enumerate(plain["contents"])]}
        if isinstance(plain, dict) and _is_part(plain):
            return {"contents": [self._check_part(uri, 0, plain)]}
        return {"contents": [self._content(uri, plain)]}

    def _check_part(self, uri: str, place: int, part: Json) -> Mapping[str, Json]:
        """A part that the author wrote as in the protocol: `{"uri": …, "mimeType": …, "text": …}`, or with `blob`."""
        given = {"uri": uri, **as_object(part)}
        for member in ("uri", "text", "blob"):
            if not isinstance(given.get(member, ""), str):
                raise ResultProblem(f"contents[{place}].{member}", "is not text")
        if ("text" in given) == ("blob" in given):
            raise ResultProblem(f"contents[{place}]", "needs either text or blob")
        mime_type = self.mime_type or guess_by_suffix(uri)
        return given if mime_type is None else {"mimeType": mime_type, **given}

    def _content(self, uri: str, value: Any) -> Mapping[str, Json]:
        if isinstance(value, File):
            content = as_object(value.to_block()["resource"])
            return content if value.has_uri else {**content, "uri": uri}
        guessed = self.mime_type or guess_by_suffix(uri)
        written: str | bytes
        if isinstance(value, str):
            kind, written = guessed or _TEXT, value
        elif isinstance(value, bytes | bytearray):
            kind, written = guessed or _BYTES, bytes(value)
        else:
            kind, written = guessed or _JSON, msgspec.json.encode(value).decode()
        return as_object(resource_block(uri, written, kind)["resource"])

    def _check_parameters(self) -> None:
        names = set(as_object(self.tool.input_schema.get("properties")))
        required = set(texts_in(self.tool.input_schema.get("required")))
        given = set() if self.template is None else set(self.template.names)
        if not required <= given:
            missing = ", ".join(sorted(required - given))
            raise DeclarationError(
                f"{self.tool.source}: {self.uri!r} has no variable for the parameter {missing}; add {{{missing}}} to it"
            )
        # A function without parameters of its own that takes the raw message finds all variables in it.
        if not given <= names and self.tool.input_schema.get("additionalProperties") is False:
            extra = ", ".join(sorted(given - names))
            raise DeclarationError(
                f"{self.tool.source}: the function has no parameter {extra}, which {self.uri!r} uses"
            )


def _is_part(value: Mapping[str, Json]) -> bool:
    """Whether this is one part of a resource as in the protocol, and not data."""
    return "uri" in value and ("text" in value) != ("blob" in value) and set(value) <= _PART


class RelayedResource(Resource):
    """A resource or a template of another server, shown with its own definition."""

    def __init__(
        self,
        definition: Mapping[str, Json],
        relay: Handler,
        *,
        source: str,
        toolbox: str = "",
        server: str = "",
        own_uri: Callable[[str], str] = str,
        scopes: frozenset[str] = frozenset(),
        category: str = "",
        tags: Iterable[str] = (),
        middleware: Iterable[Any] = (),
    ) -> None:
        fixed = definition.get("uri")
        uri = definition.get("uriTemplate") if fixed is None else fixed
        if not isinstance(uri, str) or ":" not in uri:
            raise DeclarationError(f"{source}: a resource without a URI")
        self.uri = uri
        self.template = Template(uri, source) if fixed is None else None
        self.name = str(definition.get("name", uri))
        self._own_uri = own_uri
        self.item = CalledItem(
            item="resource",
            name=uri,
            own_name=own_uri(uri),
            toolbox=toolbox,
            server=server,
            scopes=scopes,
            category=category,
            tags=tags,
            hooks=tuple(middleware),
        )
        self.relay = relay
        self._shown = dict(definition)

    def own_uri(self, uri: str) -> str:
        return self._own_uri(uri)

    def definition(self) -> dict[str, Json]:
        return self._shown


class ResourceCatalog:
    """Resources by URI, and templates in the order they were added.

    `expected` says that some may be added later; `elsewhere` finds unlisted ones; `folders` are those whose files are
    listed here, though a template reads each.
    """

    def __init__(self) -> None:
        self.expected = False
        self.elsewhere: Callable[[str], Resource | None] | None = None
        self.folders: list[Folder] = []
        self._fixed: dict[str, Resource] = {}
        self._templates: dict[str, Resource] = {}
        self._index: TemplateIndex[Resource] | None = None
        self._watchers: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._fixed) + len(self._templates)

    @property
    def offered(self) -> bool:
        """Whether the resources capability is declared."""
        return self.expected or len(self) > 0

    @property
    def fixed(self) -> Iterable[Resource]:
        return tuple(self._fixed.values())

    @property
    def templates(self) -> Iterable[Resource]:
        return tuple(self._templates.values())

    def get(self, uri: str) -> Resource | None:
        """The resource or the template with exactly this text."""
        return self._fixed.get(uri) or self._templates.get(uri)

    def template(self, uri: str) -> Resource | None:
        """The template with exactly this text."""
        return self._templates.get(uri)

    def definitions(self, view: View | None = None) -> list[dict[str, Json]]:
        """The listed resources: those added here, then the files of folders."""
        listed = [resource.definition() for resource in self.fixed if view is None or view.of(resource.item).listed]
        for folder in self.folders:
            template = self._templates[folder.template]
            for resource in folder.definitions():
                uri = str(resource["uri"])
                if uri not in self._fixed and (view is None or template.verdict(uri, view).listed):
                    listed.append(resource)
        return listed

    def template_definitions(self, view: View | None = None) -> list[dict[str, Json]]:
        """The listed templates."""
        return [template.definition() for template in self.templates if view is None or view.of(template.item).listed]

    def notify_changed(self) -> None:
        """The list has changed."""
        self._changed()

    def add(self, resource: Resource) -> None:
        """Add a resource; a URI that is already in use is rejected."""
        home = self._fixed if resource.template is None else self._templates
        if resource.uri in home:
            where = f"{resource.tool.source}: " if resource.relay is None else ""
            raise DeclarationError(f"{where}the resource {resource.uri!r} already exists")
        home[resource.uri] = resource
        self._index = None
        self._changed()

    def replace_all(self, resources: Iterable[Resource]) -> None:
        """Replace all resources by these, in this order; of two with one URI the first is kept."""
        before = [known.definition() for known in (*self.fixed, *self.templates)]
        self._fixed, self._templates, self._index = {}, {}, None
        for resource in resources:
            (self._fixed if resource.template is None else self._templates).setdefault(resource.uri, resource)
        if [known.definition() for known in (*self.fixed, *self.templates)] != before:
            self._changed()

    def remove(self, uri: str) -> Resource:
        """Remove a resource or a template."""
        home = self._fixed if uri in self._fixed else self._templates
        if uri not in home:
            raise ResourceNotFound(uri)
        resource = home.pop(uri)
        self._index = None
        self.folders = [folder for folder in self.folders if folder.template != uri]
        self._changed()
        return resource

    def find(self, uri: str) -> tuple[Resource, Mapping[str, str]]:
        """The resource for a URI and the variables in it; an exact match wins over templates."""
        fixed = self._fixed.get(uri)
        if fixed is not None:
            return fixed, {}
        found = self.match(uri)
        if found is not None:
            return found
        stranger = None if self.elsewhere is None else self.elsewhere(uri)
        if stranger is not None:
            return stranger, {}
        raise ResourceNotFound(uri)

    def match(self, uri: str) -> tuple[Resource, Mapping[str, str]] | None:
        """The template that a URI matches and the variables in it."""
        if self._index is None:
            self._index = TemplateIndex(self.templates)
        return self._index.find(uri)

    def _watch(self, watcher: Callable[[], None]) -> None:
        self._watchers.append(watcher)

    def _changed(self) -> None:
        for watcher in self._watchers:
            watcher()
