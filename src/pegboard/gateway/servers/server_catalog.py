"""The lists of one server."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from pegboard.call import Json
from pegboard.client.links.legacy_session import MAX_URI_LENGTH
from pegboard.client.transports.mirrored_headers import usable_tools
from pegboard.errors import InvalidParams, MalformedMessage, MethodNotFound
from pegboard.protocol.json_values import as_list
from pegboard.protocol.params import PREFIX
from pegboard.tools.qualified_names import dropped_because

MAX_ITEMS: Final = 10_000
"""How many definitions of a kind one server may have; the rest is dropped."""
MAX_ITEM_BYTES: Final = 1024 * 1024
MAX_BYTES: Final = 32 * 1024 * 1024
"""How large all definitions of one kind may be; the rest is dropped."""
MAX_PAGES: Final = 1000
MAX_NAME_LENGTH: Final = 256
MAX_DROPPED: Final = 100
"""How many of the dropped definitions are named."""

Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends a request and returns its result: that of `server/discover` as values, that of a list as raw members."""
Definition: TypeAlias = Mapping[str, Json]

_encode = msgspec.json.Encoder(order="sorted").encode
_items = msgspec.json.Decoder(list[Raw]).decode
_plain = msgspec.json.Decoder().decode


class _NamedItem(Struct):
    name: str


_named_item = msgspec.json.Decoder(_NamedItem).decode


class ServerCatalog(Struct, frozen=True, kw_only=True):
    """The definitions, unchanged; `dropped` lists what was left out and why, `withheld` the same for tools by name.

    `ttl_ms` is the shortest lifetime that the server states for its lists, and `private` whether one of them must not
    be shared. The `digest` stays the same as long as the content does, in whatever order.
    """

    info: Mapping[str, Json] = {}
    version: str = ""
    capabilities: Mapping[str, Json] = {}
    instructions: str | None = None
    tools: tuple[Definition, ...] = ()
    prompts: tuple[Definition, ...] = ()
    resources: tuple[Definition, ...] = ()
    templates: tuple[Definition, ...] = ()
    dropped: tuple[str, ...] = ()
    withheld: Mapping[str, str] = {}
    ttl_ms: int | None = None
    private: bool = True
    digest: str = ""

    def announces_changes(self, kind: str) -> bool:
        """Whether the server reports changes of its list of that kind."""
        return _declares(self.capabilities, kind, "listChanged")

    def announces_updates(self) -> bool:
        """Whether its resources can be subscribed to."""
        return _declares(self.capabilities, "resources", "subscribe")


async def list_server_catalog(
    ask: Ask, version: Callable[[], str], *, mirrors: Callable[[], bool], name: str
) -> ServerCatalog:
    """Read all lists that a server declares.

    `mirrors` returns whether arguments are repeated in headers; tools with invalid header annotations are then dropped.
    """
    discovered = await ask("server/discover", {})
    capabilities = discovered.get("capabilities")
    if not isinstance(capabilities, dict):
        capabilities = {}
    shelf = _CatalogReader(ask)
    tools = await shelf.fill("tools", "tools/list", _check_tool) if "tools" in capabilities else []
    if mirrors():
        tools = shelf.keep(
            "tools", tools, lambda tool: bool(usable_tools([tool], name)), "has an invalid header annotation"
        )
    prompts = await shelf.fill("prompts", "prompts/list", _check_prompt) if "prompts" in capabilities else []
    resources: list[dict[str, Json]] = []
    templates: list[dict[str, Json]] = []
    if "resources" in capabilities:
        resources = await shelf.fill("resources", "resources/list", _check_resource)
        templates = await shelf.fill("resourceTemplates", "resources/templates/list", _check_template)
    meta = discovered.get("_meta")
    info = meta.get(PREFIX + "serverInfo") if isinstance(meta, dict) else None
    instructions = discovered.get("instructions")
    catalog = ServerCatalog(
        info=info if isinstance(info, dict) else {},
        version=version(),
        capabilities=capabilities,
        instructions=instructions if isinstance(instructions, str) else None,
        tools=tuple(tools),
        prompts=tuple(prompts),
        resources=tuple(resources),
        templates=tuple(templates),
        dropped=tuple(shelf.dropped),
        withheld=shelf.withheld,
        ttl_ms=shelf.ttl_ms,
        private=shelf.private,
    )
    return msgspec.structs.replace(catalog, digest=_digest(catalog))


class _CatalogReader:
    """Collects lists page by page, and the problems of their definitions."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.dropped: list[str] = []
        self.withheld: dict[str, str] = {}
        self.ttl_ms: int | None = None
        self.private = False

    async def fill(
        self, member: str, method: str, check: Callable[[dict[str, Json]], tuple[str, str]]
    ) -> list[dict[str, Json]]:
        """Read every page of a list; `check` returns the name of a definition, and its problem if it has one."""
        found: dict[str, dict[str, Json]] = {}
        size = 0
        try:
            pages = await self._pages(member, method)
        except MethodNotFound:
            if member == "tools":
                raise
            # Many servers declare resources, but support only one of the two lists.
            self.drop(f"{member}: the server declares them, but does not support {method}")
            return []
        for number, raw in enumerate(pages, 1):
            size += len(bytes(raw))
            if number > MAX_ITEMS or size > MAX_BYTES:
                left = len(pages) - number + 1
                self.drop(f"{member}: {left} more than the {MAX_ITEMS} or {MAX_BYTES} bytes that one server may have")
                break
            if len(bytes(raw)) > MAX_ITEM_BYTES:
                problem = f"is larger than {MAX_ITEM_BYTES} bytes"
                self.drop(f"{member}: number {number} {problem}")
                self._withhold(member, _name_of(raw), problem)
                continue
            value = _plain(raw)
            if not isinstance(value, dict):
                self.drop(f"{member}: number {number} is not an object")
                continue
            key, problem = check(value)
            if problem or key in found:
                self.drop(f"{member}: {key[:80]!r} {problem or 'occurs twice; the first one is kept'}")
                self._withhold(member, key, problem)
                continue
            found[key] = value
        return list(found.values())

    def keep(
        self, member: str, items: list[dict[str, Json]], good: Callable[[dict[str, Json]], bool], problem: str
    ) -> list[dict[str, Json]]:
        """The items that pass the check; the others are dropped with their names."""
        kept = []
        for item in items:
            if good(item):
                kept.append(item)
            else:
                self.drop(f"{member}: {str(item.get('name'))[:80]!r} {problem}")
        return kept

    def _withhold(self, member: str, name: str, problem: str) -> None:
        if member == "tools" and problem and len(name) <= MAX_NAME_LENGTH and len(self.withheld) < MAX_DROPPED:
            self.withheld.setdefault(name, f"its definition {problem}")

    def drop(self, message: str) -> None:
        if len(self.dropped) < MAX_DROPPED:
            self.dropped.append(message)
        elif len(self.dropped) == MAX_DROPPED:
            self.dropped.append("and more")

    async def _pages(self, member: str, method: str) -> list[Raw]:
        items: list[Raw] = []
        params: dict[str, Json] = {}
        restarted = False
        size = 0
        for _ in range(MAX_PAGES):
            try:
                page = await self._ask(method, params)
            except InvalidParams:
                if not params or restarted:
                    raise
                # "discard all cached pages and re-fetch from the beginning": the cursor is no longer valid.
                items, params, size, restarted = [], {}, 0, True
                continue
            try:
                listed = _items(page[member])
            except (KeyError, msgspec.MsgspecError):
                raise MalformedMessage(f"answered {method} with no list of {member}") from None
            items += listed
            size += sum(len(bytes(raw)) for raw in listed)
            self._note(page)
            cursor = _plain(page["nextCursor"]) if "nextCursor" in page else None
            if cursor is None or cursor == params.get("cursor"):
                return items
            if len(items) > MAX_ITEMS or size > MAX_BYTES:
                self.drop(
                    f"{member}: more than {MAX_ITEMS} or {MAX_BYTES} bytes; the following pages were not requested"
                )
                return items
            params = {"cursor": cursor}
        self.drop(f"{member}: more than {MAX_PAGES} pages; the following ones were not requested")
        return items

    def _note(self, page: Mapping[str, Any]) -> None:
        millis = _plain(page["ttlMs"]) if "ttlMs" in page else None
        if isinstance(millis, int) and not isinstance(millis, bool) and millis > 0:
            self.ttl_ms = millis if self.ttl_ms is None else min(self.ttl_ms, millis)
        self.private = self.private or ("cacheScope" in page and _plain(page["cacheScope"]) != "public")


def _name_of(raw: Raw) -> str:
    try:
        return _named_item(raw).name
    except msgspec.MsgspecError:
        return ""


def _check_tool(tool: dict[str, Json]) -> tuple[str, str]:
    name, problem = _named(tool)
    if not problem:
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict) or schema.get("type", "object") != "object":
            problem = "has no inputSchema of type object"
        else:
            problem = _wrong(tool, outputSchema=dict, annotations=dict, description=str, title=str, icons=list)
    return name, problem


def _check_prompt(prompt: dict[str, Json]) -> tuple[str, str]:
    name, problem = _named(prompt)
    if not problem:
        problem = _wrong(prompt, arguments=list, description=str, title=str, icons=list)
    arguments = as_list(prompt.get("arguments"))
    if not problem and not all(
        isinstance(argument, dict) and isinstance(argument.get("name"), str) for argument in arguments
    ):
        problem = "has an argument without a name"
    return name, problem


def _check_resource(resource: dict[str, Json]) -> tuple[str, str]:
    uri, problem = _placed(resource, "uri")
    return uri, problem or _wrong(resource, name=str, mimeType=str, annotations=dict, description=str, title=str)


def _check_template(template: dict[str, Json]) -> tuple[str, str]:
    uri, problem = _placed(template, "uriTemplate")
    return uri, problem or _wrong(template, name=str, mimeType=str, annotations=dict, description=str, title=str)


def _named(item: dict[str, Json]) -> tuple[str, str]:
    name = item.get("name")
    problem = dropped_because(name, ()) or ""
    if not problem and len(str(name)) > MAX_NAME_LENGTH:
        problem = f"has a name of more than {MAX_NAME_LENGTH} characters"
    return str(name), problem


def _placed(item: dict[str, Json], member: str) -> tuple[str, str]:
    uri = item.get(member)
    if not isinstance(uri, str) or not uri.strip():
        return str(uri), f"has no {member}"
    if len(uri) > MAX_URI_LENGTH:
        return uri, f"has a {member} of more than {MAX_URI_LENGTH} characters"
    return uri, "" if uri.isprintable() else f"has a {member} with invisible characters"


def _wrong(item: dict[str, Json], **kinds: type) -> str:
    """The problem of the first member that has the wrong type."""
    for member, kind in {**kinds, "_meta": dict}.items():
        if item.get(member) is not None and not isinstance(item[member], kind):
            return f"has a {member} of the wrong type"
    return ""


def _declares(capabilities: Mapping[str, Json], kind: str, what: str) -> bool:
    declared = capabilities.get(kind)
    return isinstance(declared, Mapping) and bool(declared.get(what))


def _digest(catalog: ServerCatalog) -> str:
    digest = hashlib.sha256()
    whole = [catalog.info, catalog.version, catalog.capabilities, catalog.instructions, catalog.dropped]
    digest.update(_encode(whole))
    kinds: Sequence[Sequence[Definition]] = (
        catalog.tools, catalog.prompts, catalog.resources, catalog.templates
    )  # fmt: skip
    for items in kinds:
        for written in sorted(map(_encode, items)):
            digest.update(b"%d:" % len(written) + written)
        digest.update(b"|")
    return digest.hexdigest()
