"""The tools, resources and prompts of one server, ready to be added to endpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from pegboard.call import Call, Handler, Json, Reply
from pegboard.call_target import CalledItem
from pegboard.catalog.prompt import RelayedPrompt
from pegboard.catalog.resource import RelayedResource
from pegboard.config.config_keys import ToolOverride
from pegboard.config.gateway_config import ToolboxConfig, describe_unused, is_allowed
from pegboard.errors import DeclarationError
from pegboard.gateway.forwarding.forwarder import Forwarder
from pegboard.gateway.forwarding.outcome import Destination
from pegboard.gateway.servers.downstream import Downstream
from pegboard.gateway.servers.server_catalog import ServerCatalog
from pegboard.gateway.uri_rewriter import UriRewriter
from pegboard.protocol.json_values import as_object
from pegboard.tools.argument_mapping import ArgumentMapping
from pegboard.tools.argument_parser import ParsedArguments
from pegboard.tools.qualified_names import ToolName, dropped_because
from pegboard.tools.relayed_tool import CheckedSchemas, RelayedTool, check_schemas
from pegboard.tools.tool_result import RESULT_BYTES, ResultWriter

_log = logging.getLogger("pegboard.gateway")

MAX_NOTES: Final = 100
"""How many notes are made of one list of a server."""

MAX_REASON: Final = 200
"""Characters of the reason why a tool is withheld."""

_UNCHANGED = ToolOverride()


class ToolOffer(Struct, eq=False):
    """A tool of a server; it is the same at each endpoint, except for its name."""

    place: ToolName
    make: Callable[[str], RelayedTool]
    tags: tuple[str, ...]
    _made: dict[str, RelayedTool] = {}

    def under(self, name: str) -> RelayedTool:
        """The tool under that name; DeclarationError if its definition is invalid."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self.make(name)
        return made


class PromptOffer:
    """A prompt of a server; the same."""

    def __init__(self, place: ToolName, make: Callable[[str], RelayedPrompt]) -> None:
        self.place = place
        self.under = make


class Offers:
    """Everything that one server offers, once it is read.

    `notes` tell the operator what was left out, and why; `withheld` are the tools among that, with the reason for callers.
    """

    def __init__(
        self,
        downstream: Downstream,
        toolbox: ToolboxConfig,
        forwarder: Forwarder,
        middleware: Sequence[Any] = (),
        result_bytes: int = RESULT_BYTES,
        catalog: ServerCatalog | None = None,
    ) -> None:
        self.downstream = downstream
        self.catalog = catalog
        self._result_bytes = result_bytes
        self.notes: list[str] = []
        self._toolbox = toolbox
        self._config = downstream.config
        self._forwarder = forwarder
        self._middleware = middleware
        self.plain = toolbox.names == "plain"
        self.place = toolbox.name, downstream.name
        self.source = f"{toolbox.name}/{downstream.name}"
        self.addresses = UriRewriter(toolbox.name, downstream.name, plain=self.plain)
        self.anything = Destination(downstream=downstream, map_result=self.addresses.in_result)
        self.destinations: dict[str, Destination] = {}
        self._places: dict[str, ToolName] = {}
        self.withheld: dict[ToolName, str] = {}
        self.tools: list[ToolOffer] = []
        self.prompts: list[PromptOffer] = []
        self.resources: list[RelayedResource] = []
        self._unlisted_item = CalledItem(
            item="resource",
            name=self.source,
            toolbox=toolbox.name,
            server=downstream.name,
            category=downstream.config.category,
            tags=downstream.config.tags,
            hooks=tuple(middleware),
        )

    def read(self) -> Iterator[None]:
        """Read what the server listed, one definition at a step: there may be thousands, and each schema is checked."""
        if self.catalog is None:
            return
        try:
            for tool in self._read_tools(self.catalog.tools):
                if tool is not None:
                    self.tools.append(tool)
                yield
            for prompt in self._read_prompts(self.catalog.prompts):
                self.prompts.append(prompt)
                yield
            for resource in self._read_resources([*self.catalog.resources, *self.catalog.templates]):
                self.resources.append(resource)
                yield
        except Exception:  # noqa: BLE001 — what one server lists must not keep the others from being served
            _log.exception("%s: its lists cannot be served", self.source)
            self.tools, self.prompts, self.resources = [], [], []

    def is_made_for(self, catalog: ServerCatalog | None, toolbox: ToolboxConfig, middleware: Sequence[Any]) -> bool:
        """Whether this is what the server offers by that catalog and configuration."""
        return (
            self.catalog is catalog
            and self._toolbox is toolbox
            and self._config is self.downstream.config
            and self._middleware is middleware
        )

    def note(self, text: str) -> None:
        """Tell the operator of something, unless a hundred such notes were made already."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)
        elif len(self.notes) == MAX_NOTES:
            self.notes.append(f"{self.source}: and more of this kind")

    # -- tools -------------------------------------------------------------------------------------------------------

    def _read_tools(self, definitions: Iterable[Mapping[str, Json]]) -> Iterator[ToolOffer | None]:
        config = self.downstream.config
        renamed = {override.name: name for name, override in config.tools.items() if override.name}
        seen: set[str] = set()
        for definition in definitions:
            yield self._read_tool(definition, seen, renamed)
        self._withhold_malformed(seen)
        if seen:
            for message in describe_unused(config, seen):
                self.note(f"{self.source}: {message}")

    def _withhold_malformed(self, seen: Container[str]) -> None:
        """Keep the reasons for tools whose definition was not even read, except hidden ones."""
        config = self.downstream.config
        for name, reason in (self.catalog.withheld if self.catalog is not None else {}).items():
            override = config.tools.get(name, _UNCHANGED)
            if name not in seen and override.enabled and is_allowed(config.tool_filters, name):
                self.withheld[ToolName(*self.place, override.name or name)] = reason[:MAX_REASON]

    def _read_tool(
        self, definition: Mapping[str, Json], seen: set[str], renamed: Mapping[str, str]
    ) -> ToolOffer | None:
        """The tool of a definition; None for one that is left out."""
        config, name = self.downstream.config, definition.get("name")
        problem = dropped_because(name, seen)
        if problem is not None or not isinstance(name, str):
            self.note(f"{self.source}: a tool is left out: {problem}")
            return None
        seen.add(name)
        override = config.tools.get(name, _UNCHANGED)
        if renamed.get(override.name or name, name) != name:
            # Two tools under one name: the operator's choice holds, whichever the server lists first.
            self.note(f"{self.source}: a tool is left out: {name!r} is the name given to another tool")
            return None
        if not (override.enabled and is_allowed(config.tool_filters, name)):
            return None
        place = self._places[name] = ToolName(self._toolbox.name, self.downstream.name, override.name or name)
        try:
            make = self._tool_maker(name, definition, override, place)
        except DeclarationError as refused:
            self.note(f"a tool is left out: {refused}")
            problem = str(refused).removeprefix(f"{self.source}: {place.qualified}: ")
            self.withheld[place] = f"its schema cannot be used: {problem[:MAX_REASON]}"
            return None
        return ToolOffer(place, make, (*config.tags, *override.tags))

    def _tool_maker(
        self, original: str, definition: Mapping[str, Json], override: ToolOverride, place: ToolName
    ) -> Callable[[str], RelayedTool]:
        config = self.downstream.config
        schema = definition.get("inputSchema") if override.input_schema is None else override.input_schema
        arguments = ArgumentMapping(schema if isinstance(schema, Mapping) else {}, override.arguments)
        shown = {**definition, "inputSchema": arguments.schema if isinstance(schema, Mapping) else schema}
        texts = {"title": override.title, "description": override.description}
        shown |= {member: text for member, text in texts.items() if text is not None}
        if override.annotations is not None:
            own = definition.get("annotations")
            shown["annotations"] = {**(own if isinstance(own, Mapping) else {}), **override.annotations}
        shown = self._with_origin(shown, original, "Tool")
        checked = check_schemas(shown, f"{self.source}: {place.qualified}")

        scopes = self.downstream.scopes_of("tool", original)

        def make(name: str) -> RelayedTool:
            tool = RelayedTool(
                {**shown, "name": name},
                relay,
                source=self.source,
                toolbox=self._toolbox.name,
                server=self.downstream.name,
                own_name=place.tool,
                scopes=scopes,
                category=override.category or config.category,
                tags=(*config.tags, *override.tags),
                middleware=self._middleware,
                timeout=override.timeout,
                arguments=config.arguments or self._toolbox.arguments,
                repair_notes=override.repair_notes or config.repair_notes or self._toolbox.repair_notes,
                # The author of a board in this process is trusted.
                promises=as_object(shown.get("annotations")) if config.kind == "board" else override.annotations,
                checked=checked,
            )
            if tool.flaw:
                self.note(tool.flaw)
            return tool

        destination = self._tool_destination(original, shown, checked)
        self.destinations[original] = destination

        def relay(call: Call, parsed: ParsedArguments) -> Coroutine[Any, Any, Reply]:
            # Arguments that fit keep the spelling of their numbers.
            fits = arguments.unchanged and not parsed.warnings
            sent = call.raw if fits else arguments.to_server_arguments(parsed.arguments)
            return self._forwarder.forward(destination, call, {"name": original, "arguments": sent})

        return make

    def _tool_destination(self, original: str, shown: Mapping[str, Json], checked: CheckedSchemas) -> Destination:
        hints, execution = shown.get("annotations"), shown.get("execution")
        annotations = hints if isinstance(hints, Mapping) else {}
        return Destination(
            downstream=self.downstream,
            tool=original,
            tell=ResultWriter(checked.output, name=f"{self.source}/{original}", limit=self._result_bytes).pass_on,
            map_result=self.addresses.in_result,
            repeatable=annotations.get("readOnlyHint") is True or annotations.get("idempotentHint") is True,
            as_task=isinstance(execution, Mapping) and execution.get("taskSupport") == "required",
        )

    def _with_origin(self, definition: Mapping[str, Json], original: str, kind: str) -> dict[str, Json]:
        """A definition that names its server."""
        toolbox, server = self._toolbox.name, self.downstream.name
        own = definition.get("_meta")
        meta = self.addresses.in_meta(own) if isinstance(own, Mapping) else {}
        marked = {
            **definition,
            "_meta": {**meta, "source_server": server, "toolbox_name": toolbox, "original_name": original},
        }
        if not self.plain:
            description = definition.get("description")
            marked["description"] = (
                f"[{toolbox}/{server}] {description}"
                if isinstance(description, str) and description
                else f"{kind} from {toolbox}/{server}"
            )
        return marked

    # -- prompts and resources -----------------------------------------------------------------------------------------

    def _read_prompts(self, definitions: Iterable[Mapping[str, Json]]) -> Iterable[PromptOffer]:
        seen: set[str] = set()
        for definition in definitions:
            name = definition.get("name")
            problem = dropped_because(name, seen)
            if problem is not None or not isinstance(name, str):
                self.note(f"{self.source}: a prompt is left out: {problem}")
                continue
            seen.add(name)
            shown = self._with_origin(definition, name, "Prompt")
            relay = self._prompt_relay(name)

            def make(
                served: str, shown: Mapping[str, Json] = shown, relay: Handler = relay, name: str = name
            ) -> RelayedPrompt:
                return RelayedPrompt(
                    {**shown, "name": served},
                    relay,
                    source=self.source,
                    toolbox=self._toolbox.name,
                    server=self.downstream.name,
                    own_name=name,
                    scopes=self.downstream.scopes_of("prompt", name),
                    category=self._config.category,
                    tags=self._config.tags,
                    middleware=self._middleware,
                )

            yield PromptOffer(ToolName(self._toolbox.name, self.downstream.name, name), make)

    def _prompt_relay(self, original: str) -> Handler:
        async def relay(call: Call) -> Reply:
            if call.method == "completion/complete":
                return await self._complete(call, {"type": "ref/prompt", "name": original})
            return await self._forwarder.forward(self.anything, call, {"name": original, "arguments": call.raw})

        return relay

    def _read_resources(self, definitions: Iterable[Mapping[str, Json]]) -> Iterable[RelayedResource]:
        for definition in definitions:
            try:
                yield self._resource(self.addresses.in_definition(definition))
            except (DeclarationError, ValueError) as problem:
                self.note(f"{self.source}: a resource is left out: {problem}")

    def place_of(self, tool: str) -> ToolName | None:
        """The served name of a server's tool; None for one that is hidden."""
        return self._places.get(tool)

    @property
    def serves_resources(self) -> bool:
        """Whether there may be unlisted resources."""
        return self.catalog is not None and "resources" in self.catalog.capabilities

    def qualified(self, resource: RelayedResource) -> RelayedResource:
        """The same under a URI that names its server; unchanged if it already does."""
        whole = UriRewriter(self._toolbox.name, self.downstream.name)
        return self._resource(whole.in_definition(resource.definition()))

    def unlisted(self, uri: str) -> RelayedResource:
        """A resource that the server does not list; for middleware, all of them are one item."""
        resource = self._resource({"uri": uri, "name": uri})
        resource.item = self._unlisted_item
        return resource

    def _resource(self, definition: Mapping[str, Json]) -> RelayedResource:
        uri = str(definition.get("uri") or definition.get("uriTemplate"))
        return RelayedResource(
            definition,
            self.relay,
            source=self.source,
            toolbox=self._toolbox.name,
            server=self.downstream.name,
            own_uri=self.addresses.to_server,
            scopes=self.downstream.scopes_of("resource", self.addresses.to_server(uri)),
            category=self._config.category,
            tags=self._config.tags,
            middleware=self._middleware,
        )

    def relay(self, call: Call) -> Coroutine[Any, Any, Reply]:
        """Answer requests for a resource of this server, listed or not."""
        if call.method == "completion/complete":
            asked = msgspec.json.decode(call.params)["ref"]
            return self._complete(call, {**asked, "uri": self.addresses.to_server(asked["uri"])})
        return self._forwarder.forward(self.anything, call, {"uri": self.addresses.to_server(call.name)})

    def _complete(self, call: Call, ref: Mapping[str, Json]) -> Coroutine[Any, Any, Reply]:
        return self._forwarder.forward(self.anything, call, {"ref": ref})
