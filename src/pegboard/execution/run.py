"""Runs a tool for one call: parse the arguments, inject values, call it, write the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Token
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from pegboard.approvals.approval_gate import ApprovalGate, FindVerdict, Gate
from pegboard.approvals.approval_store import Approvals
from pegboard.argument_problems import ParseWarning
from pegboard.asking.rounds import asking
from pegboard.call import Call, Done, Handler, Reply
from pegboard.errors import InternalFailure, InvalidArguments, InvalidParams, Refusal, ToolError
from pegboard.execution.call_resources import CallResources
from pegboard.execution.connector import ToolConnector, collect, collect_async
from pegboard.execution.context import CancellationToken, Context
from pegboard.execution.debug_mode import NO_DEBUG, DebugMode
from pegboard.execution.services import Services, ServiceScope
from pegboard.execution.threads import Threads
from pegboard.execution.tool_conditions import Perform, check_transport, detached, requiring, with_timeout
from pegboard.hooks.observation import Report
from pegboard.limits import Limits
from pegboard.logs.log_lines import current_call, log_failure
from pegboard.logs.printable import printable
from pegboard.rules.rule import Approval
from pegboard.schema.plain_json import UnawaitedResult
from pegboard.schema.problems import render
from pegboard.tools.argument_parser import Mode, ParsedArguments
from pegboard.tools.message import JsonRpcMessage, Request
from pegboard.tools.parameters import ToolCallRequest, ToolExecutionContext
from pegboard.tools.relayed_tool import Relay
from pegboard.tools.tool import Tool
from pegboard.tools.tool_result import (
    RepairNotes,
    ResultWriter,
    error_result,
    parse_error_result,
    read_response,
    with_warnings,
)

_log = logging.getLogger("pegboard.tools")
_parse_log = logging.getLogger("pegboard.tools.parse")
# The repairs of one call that are logged.
_REPAIRS = 10
_NOTHING: Mapping[str, Any] = {}

Settle: TypeAlias = Callable[[Call, BaseException, "asyncio.Task[Any] | None"], Reply]
Begin: TypeAlias = Callable[[Call, Any, Mapping[str, Any], ServiceScope | None], Coroutine[Any, Any, Any]]

SPECIAL = frozenset({Context, ToolConnector, CancellationToken, JsonRpcMessage, Request, ToolExecutionContext})
"""Parameter types that receive the call itself."""
_STREAMING = frozenset({Context, ToolConnector})


class Runner:
    """Makes the innermost Handler of each tool of a board."""

    def __init__(
        self,
        services: Services,
        threads: Threads,
        arguments: Mode = "lenient",
        limits: Limits | None = None,
        call_resources: CallResources | None = None,
        repair_notes: RepairNotes = "text",
    ) -> None:
        self._call_resources = call_resources or CallResources()
        self._services = services
        self._threads = threads
        self._arguments: Mode = arguments
        self._repair_notes: RepairNotes = repair_notes
        self._limits = limits or Limits()

    def handler(self, tool: Tool, gate: Gate | None = None) -> Handler:
        """From raw arguments to a result; raises what the tool raises. A `gate` lets approved calls through."""
        limits = self._limits
        notes = tool.repair_notes or self._repair_notes
        if tool.relay is not None:
            relaying = _relaying(tool, tool.relay, self._arguments, limits, notes)
            return with_timeout(tool, relaying if gate is None else gate(relaying))
        parser = tool.parser
        bind, view = parser.bind_raw, parser.view
        tell = ResultWriter(tool.output_schema, name=tool.name, limit=limits.result_bytes, dump=tool.dump).write
        perform = self._performer(tool)
        passes = tool.on_parse_error == "pass"
        mode = tool.arguments or self._arguments

        # The most common tool, a coroutine function with plain arguments, is called directly.
        author = tool.author if tool.kind == "async" and not tool.injected else None
        if tool.task is not None and tool.detach == "start":
            author, perform = None, detached(perform)

        async def run(call: Call) -> Reply:
            raw = call.raw
            bound = bind(raw)
            if bound is not None:
                parsed = ParsedArguments(bound, (), (), view)
            else:
                parsed = parser.repair_and_parse(raw, mode, limits)
                if parsed.warnings:
                    _log_repairs(tool.name, parsed)
            call.parsed = parsed
            if call._origin is not None:
                call._set_parsed(parsed)
            if parsed.errors and not passes:
                raise InvalidArguments(render(parsed.errors, tool.name), parsed.errors)
            value = await (author(parsed.value, _NOTHING) if author is not None else perform(call, parsed))
            done = tell(value, call.id)
            return with_warnings(done, parsed.warnings, notes) if parsed.warnings else done

        speaks = not _STREAMING.isdisjoint(tool.injected.values())
        ready: Handler = asking(run) if speaks else run
        if gate is not None:
            ready = gate(ready)
        if tool.requires:
            ready = requiring(tool.requires, ready)
        if tool.transports:
            ready = check_transport(tool, ready)
        return with_timeout(tool, ready)

    def transformed(self, tool: Tool, inner: Handler, gate: Gate | None = None) -> Handler:
        """The Handler of a transformed tool: its arguments are parsed, then those of the original are made of them."""
        mapping = tool.mapping
        ready = inner
        if mapping is not None:

            async def relay(call: Call, parsed: ParsedArguments) -> Reply:
                try:
                    return await inner(call.with_arguments(mapping.to_server_arguments(parsed.arguments)))
                finally:
                    # For hooks, the arguments of the call are those that its caller knows.
                    call._set_parsed(parsed)

            notes = tool.repair_notes or self._repair_notes
            ready = _relaying(tool, relay, self._arguments, self._limits, notes)
        return with_timeout(tool, ready if gate is None else gate(ready))

    def gate(self, tool: Tool, approval: Approval, approvals: Approvals, find_verdict: FindVerdict) -> Gate:
        """The gate that lets only approved calls of a tool through."""

        def parse(raw: Raw) -> ParsedArguments:
            return tool.parse(raw, self._arguments, self._limits)

        return ApprovalGate(approvals, approval, tool, parse, find_verdict, self._call_resources.tickets, self._limits)

    def reader(self, tool: Tool) -> Callable[[Call], Coroutine[Any, Any, Any]]:
        """As `handler`, but returns the function's value without converting it; from a message, its result."""
        perform = self._performer(tool)

        async def read(call: Call) -> Any:
            parsed = call.parsed = tool.parse(call.raw, limits=self._limits)
            if parsed.errors:
                raise InvalidArguments(render(parsed.errors, tool.name), parsed.errors)
            value = await perform(call, parsed)
            return read_response(value, call.id) if isinstance(value, JsonRpcMessage) else value

        return read

    def completer(self, tool: Tool) -> Callable[[Call, str], Coroutine[Any, Any, Any]]:
        """Calls a function that completes an argument with the text typed so far."""
        perform = self._performer(tool)
        names = list(tool.argument_types)

        async def suggest(call: Call, typed: str) -> Any:
            parsed = tool.parse(msgspec.json.encode(dict.fromkeys(names, typed)), limits=self._limits)
            if parsed.errors:
                raise InvalidArguments(render(parsed.errors, tool.name), parsed.errors)
            return await perform(call, parsed)

        return suggest

    def _performer(self, tool: Tool) -> Perform:
        """How the author's code is called: on the loop or in a thread, with or without injected values."""
        wanted = tool.injected
        asked = {name: kind for name, kind in wanted.items() if kind not in SPECIAL}
        begin = self._begin(tool, asked)
        if not wanted:

            async def perform(call: Call, parsed: ParsedArguments) -> Any:
                return await begin(call, parsed.value, _NOTHING, None)

            return perform

        in_thread = _runs_in_thread(tool)
        special = {name: kind for name, kind in wanted.items() if kind in SPECIAL}

        async def perform_supplied(call: Call, parsed: ParsedArguments) -> Any:
            token = CancellationToken(asyncio.current_task())
            # One Context for everything that reports progress, so that the numbers keep increasing.
            context = Context(call, token, asyncio.get_running_loop(), self._call_resources)
            context._resume_round()
            supplied: dict[str, Any] = {}
            for name, kind in special.items():
                supplied[name] = _special(kind, call, parsed, context, token)
            try:
                if not asked:
                    return await begin(call, parsed.value, supplied, None)
                async with self._services.scope() as scope:
                    if in_thread:
                        await scope.prepare(asked.values())
                    else:
                        for name, kind in asked.items():
                            supplied[name] = await scope.get(kind)
                    return await begin(call, parsed.value, supplied, scope)
            except asyncio.CancelledError:
                token.cancel()
                raise
            finally:
                context._end()

        return perform_supplied

    def _begin(self, tool: Tool, asked: Mapping[str, Any]) -> Begin:
        invoke, threads, call_resources = tool.author, self._threads, self._call_resources
        match tool.kind:
            case "async":

                async def begin(call: Call, value: Any, supplied: Mapping[str, Any], scope: ServiceScope | None) -> Any:
                    return await invoke(value, supplied)

            case "async_generator":

                async def begin(call: Call, value: Any, supplied: Mapping[str, Any], scope: ServiceScope | None) -> Any:
                    return await collect_async(invoke(value, supplied), call, _context(call, supplied, call_resources))

            case "generator":
                return _begin_generator(tool, asked, threads, call_resources)

            case _ if tool.inline:

                async def begin(call: Call, value: Any, supplied: Mapping[str, Any], scope: ServiceScope | None) -> Any:
                    return invoke(value, supplied)

            case _:
                return _begin_in_thread(tool, asked, threads)

        return begin


def _begin_in_thread(tool: Tool, asked: Mapping[str, Any], threads: Threads) -> Begin:
    invoke = tool.author

    async def begin(call: Call, value: Any, supplied: Mapping[str, Any], scope: ServiceScope | None) -> Any:
        if scope is None:
            return await threads.run(invoke, value, supplied, owner=call.caller.account, call=call)
        return await threads.run(
            scope.supply,
            asked,
            supplied,
            partial(invoke, value),
            owner=call.caller.account,
            call=call,
            on_leave=scope.keep_until_done,
        )

    return begin


def _begin_generator(tool: Tool, asked: Mapping[str, Any], threads: Threads, call_resources: CallResources) -> Begin:
    invoke = tool.author

    async def begin(call: Call, value: Any, supplied: Mapping[str, Any], scope: ServiceScope | None) -> Any:
        context = _context(call, supplied, call_resources)
        left: list[asyncio.Future[None]] = []

        def leave(returned: asyncio.Future[None]) -> None:
            left.append(returned)
            if scope is not None:
                scope.keep_until_done(returned)

        def work(supplied: Mapping[str, Any]) -> list[Any]:
            return collect(invoke(value, supplied), call, context, left)

        if scope is None:
            return await threads.run(work, supplied, owner=call.caller.account, call=call, on_leave=leave)
        return await threads.run(
            scope.supply, asked, supplied, work, owner=call.caller.account, call=call, on_leave=leave
        )

    return begin


def _runs_in_thread(tool: Tool) -> bool:
    """Whether the author's code runs in a thread of the pool."""
    return tool.kind == "generator" or (tool.kind == "sync" and not tool.inline)


def _relaying(tool: Tool, relay: Relay, mode: Mode, limits: Limits, notes: RepairNotes) -> Handler:
    """The Handler of a relayed tool: only its arguments are processed here."""

    def forward(call: Call) -> Coroutine[Any, Any, Reply]:
        parsed = call.parsed = tool.parse(call.raw, mode, limits)
        if call._origin is not None:
            call._set_parsed(parsed)
        if parsed.warnings:
            _log_repairs(tool.name, parsed)
        if parsed.errors:
            raise InvalidArguments(render(parsed.errors, tool.name), parsed.errors)
        relayed = relay(call, parsed)
        return _with_warnings(relayed, parsed.warnings, notes) if parsed.warnings else relayed

    return forward


async def _with_warnings(
    relayed: Coroutine[Any, Any, Reply], warnings: Sequence[ParseWarning], notes: RepairNotes
) -> Reply:
    reply = await relayed
    return with_warnings(reply, warnings, notes) if isinstance(reply, Done) else reply


def _log_repairs(name: str, parsed: ParsedArguments) -> None:
    """Without the values, which may be secrets; `Logging` has the repairs in the line of the call."""
    if _parse_log.isEnabledFor(logging.DEBUG):
        repairs = "; ".join(f"{warning.path or 'arguments'}: {warning.code}" for warning in parsed.warnings[:_REPAIRS])
        _parse_log.debug("%s: %d repairs: %s", name, len(parsed.warnings), printable(repairs))


def catch_errors(inner: Handler, report: Report | None = None, debug: DebugMode = NO_DEBUG) -> Handler:
    """Turn what a tool or a hook raised into a result for the model; only Refusals and cancellation propagate.

    The call is reported as it ended inside: to its observers, an error is an error.
    """
    return _settling(inner, report, partial(_failure_result, debug))


def refuse_errors(inner: Handler) -> Handler:
    """The same for prompts, resources and completions, whose results cannot be errors: raise a Refusal."""
    return _settling(inner, None, _raise_refusal)


def _settling(inner: Handler, report: Report | None, settle: Settle) -> Handler:
    async def settled(call: Call) -> Reply:
        task = call._task = asyncio.current_task()
        outer = current_call.set(call)
        if report is not None:
            began = perf_counter()
        try:
            reply = await inner(call)
        except BaseException as exception:
            if report is not None:
                report(call, began, None, exception)  # type: ignore[possibly-undefined]  # set where there is a report
            # SystemExit in a tool also ends its call only.
            if isinstance(exception, GeneratorExit) and not call._is_current():
                raise
            call._task = None
            try:
                if call._stopped:
                    await _undo_cancel(task)
                return settle(call, exception, task)
            finally:
                current_call.reset(outer)
        if report is not None:
            report(call, began, reply, None)  # type: ignore[possibly-undefined]  # as above
        if not call.has_own_task or outer.old_value is not Token.MISSING:
            # Otherwise the context ends with the call, and to reset it would cost as much as to set it.
            current_call.reset(outer)
        call._task = None
        if call._stopped:
            await _undo_cancel(task)
        return reply

    return settled


def answer_unknown(inner: Handler, reject: Handler) -> Handler:
    """Reject a request with an unknown name as such even if a hook fails; a hook can reject it with an error of its own."""

    async def settled(call: Call) -> Reply:
        try:
            return await inner(call)
        except (Refusal, ToolError):
            raise
        except Exception as error:  # noqa: BLE001 — hooks are written for what exists
            log_failure(_log, "a hook failed for a request with an unknown name", error=error)
            return await reject(call)

    return settled


def _failure_result(debug: DebugMode, call: Call, exception: BaseException, task: asyncio.Task[Any] | None) -> Done:
    match exception:
        case Refusal():
            raise exception
        case InvalidArguments():
            return parse_error_result(exception.message, exception.errors, exception.meta)
        case ToolError():
            return error_result(exception.message, exception.meta)
        case asyncio.CancelledError():
            if call._stopped:
                stopped = error_result(f"{call.name} was stopped before it had a result")
                return Done(stopped.result, metadata={"error": "cancelled"})
            if task is None or task.cancelling():
                raise exception
            return _failed(call, debug, "it cancelled itself")
        case UnawaitedResult():
            return _failed(call, debug, type(exception).__name__, exception, exception.message)
        case _:
            return _failed(call, debug, type(exception).__name__, exception)


def _raise_refusal(call: Call, exception: BaseException, task: asyncio.Task[Any] | None) -> Reply:
    if isinstance(exception, InvalidArguments):
        raise InvalidParams(exception.message) from None
    if isinstance(exception, ToolError):
        raise InternalFailure(exception.message, exception.meta) from None
    result: Any = _failure_result(NO_DEBUG, call, exception, task).result
    raise InternalFailure(result["content"][0]["text"]) from None


async def _undo_cancel(task: asyncio.Task[Any] | None) -> None:
    """Clear the cancellation that a hook requested, delivered or not; one from outside propagates."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        pass
    if task is not None and task.uncancel():
        raise asyncio.CancelledError


def _failed(call: Call, debug: DebugMode, how: str, exception: BaseException | None = None, hint: str = "") -> Done:
    name = call.name[:200]
    error_id = log_failure(_log, "%s failed (%s)", name, how, error=exception)
    shown = debug.describe(call, exception)
    result = error_result(f"{name} failed, error id {error_id}{': ' if hint else ''}{hint}{shown}").result
    return Done(result, metadata={"error": how, "error_id": error_id})


def _special(kind: Any, call: Call, parsed: ParsedArguments, context: Context, token: CancellationToken) -> Any:
    if kind is Context:
        return context
    if kind is ToolConnector:
        return ToolConnector(context, call.stream)
    if kind is CancellationToken:
        return token
    if kind is Request:
        return Request(id=call.id, method=call.name, params=parsed.arguments, args=parsed.value.bound)
    if kind is JsonRpcMessage:
        return JsonRpcMessage(id=call.id, method=call.name, params=parsed.arguments)
    return ToolExecutionContext(
        ToolCallRequest(
            tool_name=call.name,
            tool_call_id="" if call.id is None else str(call.id),
            arguments=parsed.arguments,
            raw_arguments=bytes(call.raw).decode(),
            warnings=parsed.warnings,
            errors=parsed.errors,
        ),
        call.environment or _NOTHING,
    )


def _context(call: Call, supplied: Mapping[str, Any], call_resources: CallResources) -> Context:
    """The tool's own Context if it has one, so that the progress of both keeps increasing."""
    for value in supplied.values():
        if isinstance(value, Context):
            return value
        if isinstance(value, ToolConnector):
            return value.context
    return Context(call, CancellationToken(), asyncio.get_running_loop(), call_resources)
