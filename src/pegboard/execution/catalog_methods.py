"""The methods for resources, prompts and completions."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from pegboard.asking.rounds import asking
from pegboard.call import Call, Done, Handler, Json, Reply
from pegboard.catalog.caching import Caching
from pegboard.catalog.completion import Suggest, complete, known_values
from pegboard.catalog.file_reader import read_file
from pegboard.catalog.pagination import Listing
from pegboard.catalog.prompt import PromptCatalog
from pegboard.catalog.resource import Resource, ResourceCatalog
from pegboard.errors import InternalFailure, InvalidArguments, InvalidParams, Refusal, ResourceNotFound, ToolError
from pegboard.execution.caller_rate import CallerRate
from pegboard.execution.run import Runner
from pegboard.limits import Limits
from pegboard.logs.log_lines import log_failure
from pegboard.media import File
from pegboard.protocol.json_values import as_object
from pegboard.security.seal import Seal
from pegboard.tools.tool import Tool

_log = logging.getLogger("pegboard.resources")

Read: TypeAlias = Callable[[Call], Coroutine[Any, Any, Any]]

_NOT_KEPT = Caching()


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
        lists_caching: Caching = Caching(scope="public"),  # noqa: B008 — it cannot be changed
    ) -> None:
        self._resources = resources
        self._prompts = prompts
        self._runner = runner
        self._result_bytes = limits.result_bytes
        self._completion_rate = CallerRate("completions", limits.completions)
        self._reads: dict[int, Read] = {}
        self.suggestions: dict[tuple[str, str], Suggest] = {}
        lists = (
            Listing("resources", resources.definitions, seal, page, lists_caching),
            Listing(
                "resourceTemplates",
                lambda: [template.definition() for template in resources.templates],
                seal,
                page,
                lists_caching,
            ),
            Listing("prompts", lambda: [prompt.definition() for prompt in prompts.all], seal, page, lists_caching),
        )
        resources._watch(lists[0].forget)
        resources._watch(lists[1].forget)
        prompts._watch(lists[2].forget)
        # A removed resource must not stay alive in the cache of readers.
        resources._watch(self._reads.clear)
        prompts._watch(self._reads.clear)
        self.methods: Mapping[str, Handler] = {
            "resources/list": self._with_fresh_files(_lister(lists[0])),
            "resources/templates/list": _lister(lists[1]),
            "resources/read": asking(self._read),
            "resources/subscribe": self._subscribe,
            "prompts/list": _lister(lists[2]),
            "prompts/get": asking(self._get),
            "completion/complete": self._complete,
        }

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

    async def _read(self, call: Call) -> Reply:
        resource, variables = self._resources.find(call.name)
        if resource.relay is not None:
            return await resource.relay(call)
        call.raw = Raw(msgspec.json.encode(variables))
        value = await self._value(resource.tool, call)
        if isinstance(value, Path):
            value = await self._file(resource, call.name, value)
        contents = resource.contents(call.name, value)
        size = sum(len(str(part.get("text") or part.get("blob") or "")) for part in contents)
        if size > self._result_bytes:
            _log.error("the resource %s has %d bytes, the limit is %d", call.name, size, self._result_bytes)
            raise InternalFailure("The resource is too large to send")
        # Content that depends on a user's answer must not be cached or shared.
        caching = resource.caching if call.answers is None and call.ticket is None else _NOT_KEPT
        return Done({"contents": contents, **caching.hints()})

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
        """Check that the resource exists; the session records the subscription."""
        self._resources.find(call.name)
        return Done({})

    async def _get(self, call: Call) -> Reply:
        prompt = self._prompts.find(call.name)
        if prompt.relay is not None:
            return await prompt.relay(call)
        return Done(prompt.messages(await self._value(prompt.tool, call)))

    async def _value(self, tool: Tool, call: Call) -> Any:
        read = self._reads.get(id(tool))
        if read is None:
            read = self._reads[id(tool)] = self._runner.reader(tool)
        try:
            return await read(call)
        except InvalidArguments as refused:
            raise InvalidParams(refused.message) from None
        except ToolError as error:
            raise InternalFailure(error.message) from None
        except Refusal:
            raise
        except Exception as error:  # noqa: BLE001 — the author's text is for the log, not for the client
            error_id = log_failure(_log, "%s failed", tool.name, error=error)
            raise InternalFailure(f"{tool.name} failed, error id {error_id}") from None

    async def _complete(self, call: Call) -> Reply:
        self._completion_rate.check(call.caller)
        try:
            asked = msgspec.json.decode(call.params, type=_Completion)
        except msgspec.MsgspecError:
            raise InvalidParams(
                "completion/complete needs ref (ref/prompt or ref/resource) and argument {name, value}"
            ) from None
        ref, argument = asked.ref, asked.argument
        about = self._prompts.find(ref.name) if ref.type == "ref/prompt" else self._template(ref.uri)
        if about.relay is not None:
            return await about.relay(call)
        owner, tool = ref.name or ref.uri, about.tool
        if argument.name not in as_object(tool.input_schema.get("properties")):
            raise InvalidParams(f"{owner!r} has no argument {argument.name[:80]!r}")
        suggest = self.suggestions.get((owner, argument.name))
        if suggest is None:
            values = known_values(tool, argument.name)
        else:
            made = suggest(argument.value)
            values = [str(value) for value in (await made if inspect.isawaitable(made) else made)]
        return Done(complete(values, argument.value))

    def _template(self, uri: str) -> Resource:
        template = self._resources.template(uri)
        return self._resources.find(uri)[0] if template is None else template


def _lister(listing: Listing) -> Handler:
    async def answer(call: Call) -> Reply:
        return Done(listing.page(read_cursor(call)))

    return answer


def read_cursor(call: Call) -> str | None:
    """The cursor of a list request."""
    if not bytes(call.params):
        # A request may have no params at all.
        return None
    try:
        return msgspec.json.decode(call.params, type=_Cursor).cursor
    except msgspec.MsgspecError:
        raise InvalidParams("Invalid cursor: it must be a string") from None
