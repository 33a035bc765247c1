"""Spans of calls, collected by OpenTelemetry's own SDK."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from pegboard import Board, Client, ToolError, ToolResult
from pegboard.errors import InvalidParams, SetupError
from pegboard.middleware import Tracing
from pegboard.testing import make_call, run_alone
from tests.client_variants import on_one_machine

pytestmark = pytest.mark.peer

TRACE = "0af7651916cd43dd8448eb211c80319c"
SENDER = "b7ad6b7169203331"


class Collected:
    """A provider, and the spans that ended under it."""

    def __init__(self) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> Any:
        return self.exporter.get_finished_spans()


async def test_a_span_has_the_name_kind_and_attributes_of_the_conventions() -> None:
    from opentelemetry.trace import SpanKind, StatusCode

    collected = Collected()
    call = make_call("pay", {"amount": 3}, session="abc", transport="http")
    await run_alone(Tracing(collected.provider), call=call)
    (span,) = collected.spans
    assert (span.name, span.kind, span.parent, span.status.status_code) == (
        "tools/call pay", SpanKind.SERVER, None, StatusCode.UNSET,
    )  # fmt: skip
    assert dict(span.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "mcp.session.id": "abc",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "pay",
        "jsonrpc.request.id": "1",
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }
    await run_alone(Tracing(collected.provider), call=make_call("pay", transport="stdio"))
    assert collected.spans[1].attributes["network.transport"] == "pipe"


async def test_failures_have_their_error_type_and_status(road: str) -> None:
    from opentelemetry.trace import SpanKind, StatusCode

    board, collected = Board(), Collected()

    @board.tool
    async def run(how: str) -> ToolResult:
        match how:
            case "raise":
                raise ValueError("kept in the trace")
            case "say":
                raise ToolError("no")
        return ToolResult("x", is_error=how == "fail")

    board.use(Tracing(collected.provider))
    async with Client(board) as client:
        for how in ("fail", "raise", "say"):
            assert (await client.call("run", {"how": how})).is_error
        with pytest.raises(InvalidParams, match=r"Unknown tool: .anything else."):
            await client.call("anything else")
    spans = [span for span in collected.spans if span.kind is SpanKind.SERVER]
    assert [span.attributes["error.type"] for span in spans] == ["tool_error"] * 3 + ["-32602"]
    assert all(span.status.status_code is StatusCode.ERROR for span in collected.spans)
    # The exception itself stays where it was raised, behind a gateway too.
    assert [len(span.events) for span in spans] == [0, 0 if "gateway" in road else 1, 0, 0]
    unknown = spans[3]
    # A name that anybody may invent is no part of the span's own.
    assert (unknown.name, unknown.attributes["rpc.response.status_code"]) == ("tools/call", "-32602")


async def test_the_parent_is_the_senders_trace_and_an_ambient_span_is_linked() -> None:
    from opentelemetry import baggage

    collected = Collected()
    seen: list[object] = []

    def tool(_: object) -> str:
        seen.append(baggage.get_baggage("user"))
        return "x"

    meta = {"traceparent": f"00-{TRACE}-{SENDER}-01", "tracestate": "vendor=1", "baggage": "user=ann", "more": {"a": 1}}
    with collected.provider.get_tracer("web").start_as_current_span("POST /mcp") as web:
        await run_alone(Tracing(collected.provider), call=make_call("pay", meta=meta), answer=tool)
    assert seen == ["ann"]
    assert baggage.get_baggage("user") is None
    span = collected.spans[0]
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SENDER)
    assert span.context.trace_state.get("vendor") == "1"
    assert [link.context.span_id for link in span.links] == [web.get_span_context().span_id]


async def test_without_a_senders_trace_an_ambient_span_is_the_parent() -> None:
    collected = Collected()
    with collected.provider.get_tracer("web").start_as_current_span("POST /mcp") as web:
        await run_alone(Tracing(collected.provider), call=make_call("pay"))
    span = collected.spans[0]
    assert span.parent.span_id == web.get_span_context().span_id
    assert span.links == ()


@pytest.mark.parametrize(
    "meta",
    [
        {"traceparent": 7},
        {"traceparent": "nonsense"},
        {"traceparent": f"00-{'0' * 32}-{SENDER}-01"},
        {"traceparent": None},
    ],
)
async def test_a_traceparent_that_cannot_be_read_is_none(meta: dict[str, Any]) -> None:
    collected = Collected()
    assert (await run_alone(Tracing(collected.provider), call=make_call("pay", meta=meta))).text == "done"
    assert collected.spans[0].parent is None


async def test_arguments_and_results_are_in_the_span_only_if_asked_for_and_masked() -> None:
    collected = Collected()
    call = make_call("pay", {"password": "hunter2", "amount": 3})
    await run_alone(Tracing(collected.provider, arguments=True, results=True), call=call, answer="token=abcdef")
    attributes = collected.spans[0].attributes
    assert attributes["gen_ai.tool.call.arguments"] == '{"password":"***","amount":3}'
    assert "abcdef" not in attributes["gen_ai.tool.call.result"]
    assert "content" in attributes["gen_ai.tool.call.result"]


@on_one_machine("a server has a trace of its own")
async def test_spans_of_a_tool_are_children_of_its_calls_span_in_a_thread_too() -> None:
    board, collected = Board(), Collected()
    tracer = collected.provider.get_tracer("author")

    @board.tool
    def in_a_thread() -> None:
        tracer.start_span("work").end()

    @board.tool
    async def on_the_loop() -> None:
        await asyncio.sleep(0)
        tracer.start_span("work").end()

    board.use(Tracing(collected.provider))
    async with Client(board) as client:
        await asyncio.gather(client.call("in_a_thread"), client.call("on_the_loop"))
    by_id = {span.context.span_id: span for span in collected.spans}
    parents = sorted(by_id[span.parent.span_id].name for span in collected.spans if span.name == "work")
    assert parents == ["tools/call in_a_thread", "tools/call on_the_loop"]


def test_without_the_extra_it_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(SetupError, match=r"pip install 'pegboard\[otel\]'"):
        Tracing()


@on_one_machine("the middleware of the board itself")
async def test_tracing_that_exports_nothing_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    board, tracing = Board(), Tracing()

    @board.tool
    async def look() -> bool:
        return tracing.enabled

    board.use(tracing)
    async with Client(board) as client:
        assert (await client.call("look")).structured is False
    assert tracing.enabled
