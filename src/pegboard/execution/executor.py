"""Runs tool calls for programs with their own agent loop.

    executor = ToolExecutor(board)                      # or ToolExecutor(ToolCatalog([search, MemorySearch()]))
    batch = await executor.execute_batch(Provider("anthropic", board.tools).parse(message))
    for record in batch.records: …

A request takes the path of every call: middleware, repair and validation of the arguments, the tool, validation of the
result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from pegboard.argument_problems import ParseError, ParseWarning
from pegboard.call import EMPTY_OBJECT, NULL_CHANNEL, Call, Caller, Done, EncodedResult, Handler, Json, Reply
from pegboard.call_target import CalledItem
from pegboard.catalog.tool_catalog import ToolCatalog
from pegboard.errors import Refusal, ServerFault, UnknownTool
from pegboard.execution.context import CancellationToken
from pegboard.execution.dispatch import Dispatcher
from pegboard.execution.run import Runner, catch_errors
from pegboard.execution.services import Services
from pegboard.execution.threads import Threads
from pegboard.hooks.pipeline import compose
from pegboard.limits import Limits
from pegboard.logs.log_lines import log_failure
from pegboard.protocol.content import joined_text
from pegboard.protocol.json_values import as_list, as_object, objects_in
from pegboard.protocol.revisions import MODERN
from pegboard.rules.access_control import AccessControl
from pegboard.rules.verdicts import Rules
from pegboard.schema.plain_json import encode
from pegboard.tools.parameters import ToolCallRequest
from pegboard.tools.tool import Tool
from pegboard.tools.tool_result import PARSE_ERRORS, PARSE_WARNINGS, SKIPPED

Status: TypeAlias = Literal["success", "failed", "skipped"]
Environment: TypeAlias = Mapping[str, Any] | Callable[[ToolCallRequest], Mapping[str, Any]]

Note = TypeVar("Note", ParseWarning, ParseError)

_log = logging.getLogger("pegboard.tools")

HANDLER_NOT_FOUND = "handler_not_found"
CANCELLED = "cancelled"


class HasHandler(Protocol):
    """An object with tools and a Handler, such as a board."""

    @property
    def handler(self) -> Handler: ...


class SendsRequests(Protocol):
    """A client of a server, which runs the tools."""

    async def request(
        self, method: str, params: Mapping[str, Json] | None = None, *, name: str = "", arguments: Raw | None = None
    ) -> Mapping[str, Any]: ...


class ToolExecutionRecord(Struct, frozen=True, kw_only=True):
    """The outcome of one request.

    tool_name: the name of the tool.
    tool_call_id: the id of the call.
    status: "success", "failed" or "skipped".
    result: the text for the model.
    content: all content blocks.
    structured: the structured content.
    elapsed_ms: how long the call took, in milliseconds.
    metadata: that of the tool (`ToolResult(metadata=…)`), with `elapsed_ms` and, if it failed, `error`.
    warnings: the repairs of the arguments.
    errors: what is wrong with the arguments.
    """

    tool_name: str
    tool_call_id: str
    status: Status
    result: str
    content: tuple[Mapping[str, Json], ...] = ()
    structured: Json = None
    elapsed_ms: float | None = None
    metadata: Mapping[str, Any] = {}
    warnings: tuple[ParseWarning, ...] = ()
    errors: tuple[ParseError, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the call failed."""
        return self.status == "failed"

    def text_with_warnings(self) -> str:
        """The result with a line for each repair, so that the model sees how its arguments were read."""
        return "\n".join([self.result, *(f"[ParseWarning] {warning.message}" for warning in self.warnings)])


class ToolExecutionBatch(Struct, frozen=True):
    """One record for each request, in order, and `metadata` that sums them up."""

    records: tuple[ToolExecutionRecord, ...]
    metadata: Mapping[str, Any]

    @property
    def error(self) -> str | None:
        """The text of the first failure."""
        return next((record.result for record in self.records if record.failed), None)


class ToolExecutor:
    """Executes requests against a board, a gateway, another server, or a catalog of its own.

    tools: a board or gateway that was started, an open Client, or a catalog of tools.
    environment: passed to declared tools as `context.environment`: a mapping, or a function of the request.
    limits: the limits for a catalog; a board has its own.
    """

    def __init__(
        self,
        tools: HasHandler | SendsRequests | ToolCatalog,
        environment: Environment | None = None,
        *,
        limits: Limits | None = None,
    ) -> None:
        self._handler = _find_handler(tools, limits or Limits())
        self._environment = environment
        self._caller = Caller(version=MODERN, transport="direct", client={"name": "executor", "version": "0"})

    async def execute(
        self, request: ToolCallRequest, *, cancellation: CancellationToken | None = None
    ) -> ToolExecutionRecord:
        """Run one request. Raises only if the waiting task itself is cancelled, as asyncio requires.

        It runs with the text that the model sent, or with `arguments` if they were edited or given without a text.
        """
        if cancellation is not None and cancellation.cancelled:
            return _skipped(request, None)
        began = perf_counter()
        try:
            return await self._run(request, cancellation, began)
        except UnknownTool as unknown:
            # Nothing ran, so there is no time to report.
            return _refused(request, unknown, {"error": HANDLER_NOT_FOUND}, None)
        except Refusal as refusal:
            return _refused(request, refusal, {"error": type(refusal).__name__}, _elapsed(began))
        except ServerFault as fault:
            return _record(request, "failed", str(fault), {"error": type(fault).__name__}, _elapsed(began))
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is not None and waiting.cancelling():
                raise
            return _skipped(request, _elapsed(began))
        except Exception as exception:  # noqa: BLE001 — whatever it is, the host's loop goes on
            error_id = log_failure(_log, "%s could not be executed", request.tool_name, error=exception)
            metadata = {"error": type(exception).__name__, "error_id": error_id}
            text = f"{request.tool_name} failed, error id {error_id}"
            return _record(request, "failed", text, metadata, _elapsed(began))

    async def execute_batch(
        self,
        requests: Iterable[ToolCallRequest],
        *,
        metadata: Mapping[str, Any] | None = None,
        cancellation: CancellationToken | None = None,
        parallel: int = 1,
    ) -> ToolExecutionBatch:
        """Run requests one after the other, or some at a time; the records are in the order of the requests.

        requests: the requests.
        metadata: the summary is added to it; its own keys are kept.
        cancellation: once it is cancelled, the remaining requests are skipped.
        parallel: how many requests may run at the same time.
        """
        if parallel < 1:
            raise ValueError(f"parallel={parallel}: must be at least 1")
        slots = asyncio.Semaphore(parallel)

        async def run_in_turn(request: ToolCallRequest) -> ToolExecutionRecord:
            async with slots:
                return await self.execute(request, cancellation=cancellation)

        async with asyncio.TaskGroup() as group:
            running = [group.create_task(run_in_turn(request)) for request in requests]
        records = tuple(task.result() for task in running)
        return ToolExecutionBatch(records, {**summarise(records), **(metadata or {})})

    async def _run(
        self, request: ToolCallRequest, cancellation: CancellationToken | None, began: float
    ) -> ToolExecutionRecord:
        environment = self._environment
        call = Call(
            method="tools/call",
            caller=self._caller,
            channel=NULL_CHANNEL,
            id=request.tool_call_id or None,
            name=request.tool_name,
            raw=_arguments_of(request),
            environment=environment(request) if callable(environment) else environment,
        )
        # A separate task: a hook that cancels the call must not cancel the host.
        loop = asyncio.get_running_loop()
        running = loop.create_task(self._handler(call))
        if cancellation is None:
            return _record_of(request, await running, began)
        end_watch = cancellation._watch(lambda: loop.call_soon_threadsafe(running.cancel))
        try:
            return _record_of(request, await running, began)
        finally:
            end_watch()


def summarise(records: Iterable[ToolExecutionRecord]) -> dict[str, Any]:
    """The number of calls and failures, their total time, and the metadata of each call by its id."""
    listed = list(records)
    return {
        "tool_call_count": len(listed),
        "tool_failed_count": sum(record.failed for record in listed),
        "tool_elapsed_total_ms": sum(record.elapsed_ms or 0.0 for record in listed),
        "per_call_metadata": {record.tool_call_id: record.metadata for record in listed},
    }


def _find_handler(tools: HasHandler | SendsRequests | ToolCatalog, limits: Limits) -> Handler:
    if isinstance(tools, ToolCatalog):
        return _handler_of(tools, limits)
    handler: Handler | None = getattr(tools, "handler", None)
    return handler or _sending(cast(SendsRequests, tools))


def _sending(client: SendsRequests) -> Handler:
    """The Handler that lets the server of a client run the tool."""

    async def send(call: Call) -> Reply:
        return Done(await client.request(call.method, name=call.name, arguments=call.raw))

    return send


def _handler_of(catalog: ToolCatalog, limits: Limits) -> Handler:
    def surround(tool: Tool | CalledItem, inner: Handler) -> Handler:
        return catch_errors(compose((), tool, inner))

    runner = Runner(Services(), Threads(limits.threads, limits.thread_queue), limits=limits)
    return Dispatcher(catalog, lambda tool, _: runner.handler(tool), surround, AccessControl(Rules()))


def _arguments_of(request: ToolCallRequest) -> Raw:
    text = request.raw_arguments
    if request.edited or not text.strip():
        return Raw(encode(request.arguments)) if request.arguments else EMPTY_OBJECT
    data = text.encode("utf-8", "replace")
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        # Not JSON, but it may contain some: pass the text on, and the tool parses it.
        return Raw(msgspec.json.encode(data.decode("utf-8")))
    return Raw(data)


def _record_of(request: ToolCallRequest, reply: Reply, began: float) -> ToolExecutionRecord:
    elapsed = _elapsed(began)
    result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
    content = tuple(objects_in(result.get("content")))
    meta = as_object(result.get("_meta"))
    errors = _notes(meta.get(PARSE_ERRORS), ParseError)
    failed = bool(result.get("isError"))
    metadata = dict(reply.metadata or {})
    if failed:
        metadata.setdefault("error", "invalid_arguments" if errors else "tool_error")
    status: Status = "skipped" if meta.get(SKIPPED) is True else "success"
    if failed:
        status = "skipped" if metadata["error"] == CANCELLED else "failed"
    return _record(
        request,
        status,
        joined_text(content),
        metadata,
        elapsed,
        content=content,
        structured=result.get("structuredContent"),
        # The repairs of arguments that were replaced are no longer true.
        warnings=_merge_notes(
            () if request.edited else request.warnings, _notes(meta.get(PARSE_WARNINGS), ParseWarning)
        ),
        errors=errors,
    )


def _refused(
    request: ToolCallRequest, refusal: Refusal, metadata: dict[str, Any], elapsed: float | None
) -> ToolExecutionRecord:
    if isinstance(refusal.data, Mapping):
        metadata = {**refusal.data, **metadata}
    return _record(request, "failed", refusal.message, metadata, elapsed, warnings=request.warnings)


def _skipped(request: ToolCallRequest, elapsed: float | None) -> ToolExecutionRecord:
    return _record(request, "skipped", f"{request.tool_name} was cancelled", {"error": CANCELLED}, elapsed)


def _record(
    request: ToolCallRequest, status: Status, text: str, metadata: dict[str, Any], elapsed: float | None, **more: Any
) -> ToolExecutionRecord:
    if elapsed is not None:
        metadata.setdefault("elapsed_ms", elapsed)
    return ToolExecutionRecord(
        tool_name=request.tool_name,
        tool_call_id=request.tool_call_id,
        status=status,
        result=text,
        elapsed_ms=elapsed,
        metadata=metadata,
        **{"content": ({"type": "text", "text": text},), **more},
    )


def _notes(listed: Json, kind: type[Note]) -> tuple[Note, ...]:
    return tuple(msgspec.convert(note, kind) for note in as_list(listed))


def _merge_notes(earlier: Iterable[ParseWarning], found: Iterable[ParseWarning]) -> tuple[ParseWarning, ...]:
    """Keeps earlier warnings, and drops those that the tool reported again."""
    return tuple({(warning.path, warning.code): warning for warning in (*earlier, *found)}.values())


def _elapsed(began: float) -> float:
    return (perf_counter() - began) * 1000
