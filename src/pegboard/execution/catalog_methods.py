"""The methods for resources, prompts and completions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from pegboard.asking.rounds import asking
from pegboard.call import EMPTY_OBJECT, Call, Caller, Done, Handler, Json, Reply
from pegboard.catalog.caching import Caching
from pegboard.catalog.folder import read_file
from pegboard.catalog.pagination import Listing, PagedResults
from pegboard.catalog.prompt import Prompt, PromptCatalog
from pegboard.catalog.resource import Resource, ResourceCatalog
from pegboard.errors import Busy, DeclarationError, InternalFailure, InvalidParams, ResourceNotFound, ToolError
from pegboard.execution.item_chains import Found, ItemChains, Surround
from pegboard.execution.run import Runner
from pegboard.limits import Limits
from pegboard.media import File
from pegboard.protocol.json_values import as_object, objects_in
from pegboard.rules.access_control import AccessControl, raise_denied
from pegboard.rules.verdicts import Verdict, View
from pegboard.security.seal import Seal
from pegboard.tools.tool import Tool

_log = logging.getLogger("pegboard.resources")

_NOT_KEPT = Caching()

MAX_COMPLETIONS = 100


def known_values(tool: Tool, argument: str) -> list[str]:
    """The values that an argument's type allows: those of an enum or a Literal, true and false."""
    schema = as_object(tool.input_schema.get("properties")).get(argument)
    if not isinstance(schema, Mapping):
        return []
    if schema.get("type") == "boolean":
        return ["true", "false"]
    options = schema.get("enum", [])
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        options = [*options, *branch.get("enum", ())]
    return [option if isinstance(option, str) else str(option) for option in options]


def complete(values: Sequence[str], typed: str) -> Mapping[str, Json]:
    """The values that start with the text, then those that contain it; at most a hundred, and the total number."""
    folded = typed.casefold()
    first = [value for value in values if value.casefold().startswith(folded)]
    also = [value for value in values if folded in value.casefold() and not value.casefold().startswith(folded)]
    found = first + also
    # "Maximum 100 items per response" (Completion, Data Types)
    return {
        "completion": {"values": found[:MAX_COMPLETIONS], "total": len(found), "hasMore": len(found) > MAX_COMPLETIONS}
    }


class CallerRate:
    """Limits requests per second for each caller; the counts are dropped every second."""

    def __init__(self, what: str, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._limit = limit
        self._clock = clock
        self._second = 0
        self._counts: dict[tuple[str, str], int] = {}

    def check(self, caller: Caller) -> None:
        """Count one request, or reject it until the next second."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._counts.clear()
        # The sessions of a principal count together; anonymous callers have nothing but their sessions.
        key = caller.principal.id, "" if caller.principal else caller.session
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > self._limit:
            raise Busy(f"More than {self._limit} {self._what} per second; slow down", retry_after=1)


class _Reference(Struct):
    type: Literal["ref/prompt", "ref/resource"]
    name: str = ""
    uri: str = ""


class _Argument(Struct):
    name: str
    value: str


class _Completion(Struct):
    ref: _Reference
    argument: _Argument


class _Cursor(Struct):
    cursor: str | None = None


class CatalogMethods:
    """Answers lists, reads, prompts and completions for one board."""

    def __init__(
        self,
        resources: ResourceCatalog,
        prompts: PromptCatalog,
        runner: Runner,
        seal: Seal,
        page: int,
        limits: Limits,
        surround: Surround,
        generation: Callable[[], int],
        access: AccessControl,
        lists_caching: Caching = Caching(scope="public"),  # noqa: B008 — it cannot be changed
    ) -> None:
        self._resources = resources
        self._prompts = prompts
        self._runner = runner
        self._access = access
        self._result_bytes = limits.result_bytes
        self._completion_rate = CallerRate("completions", limits.completions)
        reads = ItemChains("resource", self._find_resource, surround, generation)
        gets = ItemChains("prompt", self._find_prompt, surround, generation)
        self._completions = ItemChains("completion", self._find_completion, surround, generation)
        self._suggestions: dict[tuple[str, str], Callable[[Call, str], Coroutine[Any, Any, Any]]] = {}
        self.tools = PagedResults("tools", seal, page, lists_caching)
        lists = (
            Listing("resources", resources.definitions, seal, page, lists_caching),
            Listing("resourceTemplates", resources.template_definitions, seal, page, lists_caching),
            Listing(
                "prompts",
                lambda view: [prompt.definition() for prompt in prompts.shown(view)],
                seal,
                page,
                lists_caching,
            ),
        )
        self._lists = lists
        resources._watch(lists[0].forget)
        resources._watch(lists[1].forget)
        prompts._watch(lists[2].forget)
        # A removed item must not stay alive in the cache of chains.
        for catalog, chains in ((resources, reads), (prompts, gets)):
            catalog._watch(chains.clear)
            catalog._watch(self._completions.clear)
        self.methods: Mapping[str, Handler] = {
            "resources/list": self._with_fresh_files(self._lister(lists[0])),
            "resources/templates/list": self._lister(lists[1]),
            "resources/read": reads,
            "resources/subscribe": self._subscribe,
            "prompts/list": self._lister(lists[2]),
            "prompts/get": gets,
            "completion/complete": self._complete,
        }

    def add_completion(self, owner: str, argument: str, tool: Tool) -> None:
        """Complete an argument of a prompt or template with this function."""
        if len(tool.argument_types) > 1:
            second = list(tool.argument_types)[1]
            raise DeclarationError(
                f"{tool.source}: a completion takes the text typed so far, and services; parameter {second!r} is neither"
            )
        self._suggestions[owner, argument] = self._runner.completer(tool)

    def capabilities(self) -> Mapping[str, Json]:
        """The capabilities to declare; none for a board that has only tools."""
        declared: dict[str, Json] = {}
        if self._resources.offered:
            declared["resources"] = {"listChanged": True, "subscribe": True}
        if self._prompts.offered:
            declared["prompts"] = {"listChanged": True}
        return {**declared, "completions": {}} if declared else {}

    def _with_fresh_files(self, inner: Handler) -> Handler:
        """The catalog with the current files of its folders; folders are listed again for the first page only."""

        async def look_and_list(call: Call) -> Reply:
            beginning = read_cursor(call) is None
            folders = [folder for folder in self._resources.folders if beginning or not folder.seen]
            if folders and any([await asyncio.to_thread(folder.look) for folder in folders]):
                self._resources.notify_changed()
            return await inner(call)

        return look_and_list

    def forget_lists(self) -> None:
        """What callers see has changed."""
        for listing in self._lists:
            listing.forget()

    def _lister(self, listing: Listing) -> Handler:
        async def answer(call: Call) -> Reply:
            return Done(listing.page(read_cursor(call), self._view(call)))

        return answer

    def _view(self, call: Call) -> View | None:
        return self._access.view(call.caller.principal)

    def _visible(self, call: Call, uri: str) -> tuple[Resource, Mapping[str, str]]:
        """The resource for a URI, and the variables in it, if the caller may use it; if it is hidden, it does not exist."""
        view = self._view(call)
        if view is None:
            return self._resources.find(uri)
        try:
            resource, variables = self._resources.find(uri)
        except ResourceNotFound:
            # Without the reason, which may be about something that the caller does not see.
            raise ResourceNotFound(uri) from None
        verdict = resource.verdict(uri, view)
        if verdict.effect == "hide":
            raise ResourceNotFound(uri)
        _check(verdict, call, uri)
        return resource, variables

    def _find_resource(self, call: Call) -> Found:
        resource, variables = self._visible(call, call.name)
        call.raw = Raw(msgspec.json.encode(variables)) if variables else EMPTY_OBJECT
        return resource.item, partial(self._reader, resource)

    def _reader(self, resource: Resource) -> Handler:
        if resource.relay is not None:
            return resource.relay
        value_of = self._runner.reader(resource.tool)

        async def read(call: Call) -> Reply:
            value = await value_of(call)
            if isinstance(value, Path):
                value = await self._file(resource, call.name, value)
            result = resource.result(call.name, value)
            size = sum(len(str(part.get("text") or part.get("blob") or "")) for part in objects_in(result["contents"]))
            if size > self._result_bytes:
                _log.error("the resource %s has %d bytes, the limit is %d", call.name, size, self._result_bytes)
                raise InternalFailure("The resource is too large to send")
            # Content that depends on a user's answer must not be cached or shared.
            caching = resource.caching if call.answers is None and call.ticket is None else _NOT_KEPT
            return Done({**caching.hints(), **result})

        return asking(read)

    async def _file(self, resource: Resource, uri: str, path: Path) -> File:
        def read() -> File:
            return File(
                read_file(path.resolve(), self._result_bytes), name=path.name, uri=uri, mime_type=resource.mime_type
            )

        try:
            return await asyncio.to_thread(read)
        except ToolError as refused:
            raise InternalFailure(refused.message) from None
        except OSError as problem:
            _log.warning("the file of the resource %s cannot be read: %s", uri, problem)
            raise ResourceNotFound(uri) from None

    async def _subscribe(self, call: Call) -> Reply:
        """Check that the caller may read the resource; the session records the subscription."""
        self._visible(call, call.name)
        return Done({})

    def _prompt(self, call: Call, name: str) -> Prompt:
        view = self._view(call)
        prompt = self._prompts.find(name, view)
        if view is not None:
            _check(view.of(prompt.item), call, name)
        return prompt

    def _find_prompt(self, call: Call) -> Found:
        prompt = self._prompt(call, call.name)
        return prompt.item, partial(self._getter, prompt)

    def _getter(self, prompt: Prompt) -> Handler:
        if prompt.relay is not None:
            return prompt.relay
        value_of = self._runner.reader(prompt.tool)

        async def get(call: Call) -> Reply:
            return Done(prompt.result(await value_of(call)))

        return asking(get)

    def _complete(self, call: Call) -> Coroutine[Any, Any, Reply]:
        self._completion_rate.check(call.caller)
        return self._completions(call)

    def _find_completion(self, call: Call) -> Found:
        try:
            asked = msgspec.json.decode(call.params, type=_Completion)
        except msgspec.MsgspecError:
            raise InvalidParams(
                "completion/complete needs ref (ref/prompt or ref/resource) and argument {name, value}"
            ) from None
        ref, argument = asked.ref, asked.argument
        call.name = ref.name or ref.uri
        call.raw = Raw(msgspec.json.encode({argument.name: argument.value}))
        about = self._prompt(call, ref.name) if ref.type == "ref/prompt" else self._template(call, ref.uri)
        return about.item, partial(self._completer, about)

    def _completer(self, about: Prompt | Resource) -> Handler:
        if about.relay is not None:
            return about.relay
        tool = about.tool

        async def suggest_values(call: Call) -> Reply:
            ((name, given),) = call.arguments.items()
            value = str(given)
            if name not in as_object(tool.input_schema.get("properties")):
                raise InvalidParams(f"{call.name!r} has no argument {name[:80]!r}")
            suggest = self._suggestions.get((call.name, name))
            values = known_values(tool, name) if suggest is None else map(str, await suggest(call, value))
            return Done(complete(list(values), value))

        return suggest_values

    def _template(self, call: Call, uri: str) -> Resource:
        template, view = self._resources.template(uri), self._view(call)
        if template is None or (view is not None and view.of(template.item).effect == "hide"):
            return self._visible(call, uri)[0]
        if view is not None:
            _check(view.of(template.item), call, uri)
        return template


def _check(verdict: Verdict, call: Call, name: str) -> None:
    call.note(rule=verdict.rule)
    if verdict.effect != "allow":
        raise_denied(verdict, call.caller, name)


def read_cursor(call: Call) -> str | None:
    """The cursor of a list request."""
    if not bytes(call.params):
        # A request may have no params at all.
        return None
    try:
        return msgspec.json.decode(call.params, type=_Cursor).cursor
    except msgspec.MsgspecError:
        raise InvalidParams("Invalid cursor: it must be a string") from None
