"""An OpenTelemetry span for every call."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from pegboard.call import Call, EncodedResult, Handler, Json, Reply
from pegboard.errors import Refusal, SetupError, ToolError
from pegboard.hooks.middleware import Middleware
from pegboard.hooks.observation import describe_failure
from pegboard.middleware.observability.masking import mask
from pegboard.middleware.observability.metrics import TOOL_ERROR, error_type
from pegboard.middleware.observability.otlp_export import is_exported
from pegboard.tools.tool import Tool

_NETWORK: Mapping[str, Mapping[str, str]] = {
    "stdio": {"network.transport": "pipe"},
    "http": {"network.transport": "tcp", "network.protocol.name": "http"},
}

_MAX_MESSAGE: Final = 200

_log = logging.getLogger("pegboard")


class _Carried(Struct, gc=False):
    """The trace context of a request, in W3C format, without a prefix in `_meta` (SEP-414)."""

    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None


class _TraceParams(Struct, gc=False):
    meta: _Carried | None = field(name="_meta", default=None)


_decode = msgspec.json.Decoder(_TraceParams).decode
_encode = msgspec.json.Encoder().encode


def _provider_from_environ(environ: Mapping[str, str]) -> Any:
    """A provider that exports as the variables of OpenTelemetry say; None, with a reason in the log, if they do not."""
    if not is_exported("traces", environ):
        if "OTEL_EXPORTER_OTLP_ENDPOINT" not in environ and "OTEL_TRACES_EXPORTER" not in environ:
            _log.warning("Tracing: spans are not exported; set OTEL_EXPORTER_OTLP_ENDPOINT, or a tracer provider")
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 — an extra, as below
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        _log.warning("Tracing: spans are not exported; install the exporter: pip install 'pegboard[otel]'")
        return None
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class _ClientSpan:
    """The span of one request to a server behind a gateway."""

    __slots__ = ("_fail", "_span", "carried")

    def __init__(self, span: Any, carried: Mapping[str, Json], fail: Callable[[Any, str, str], None]) -> None:
        self._span = span
        self._fail = fail
        self.carried = carried

    def end(self, result: Mapping[str, Json] | None, error: Exception | None) -> None:
        if result is not None and result.get("isError"):
            self._fail(self._span, TOOL_ERROR, "")
        elif result is None and error is None:
            self._fail(self._span, "cancelled", "")
        elif isinstance(error, Refusal):
            self._span.set_attribute("rpc.response.status_code", str(error.code))
            self._fail(self._span, str(error.code), error.message[:_MAX_MESSAGE])
        elif error is not None:
            # Its text may have the address of the server.
            self._fail(self._span, type(error).__name__, "")
        self._span.end()


class _CallSpans:
    """The spans of requests to servers, below the span of a call."""

    __slots__ = ("_context", "_tracing")

    def __init__(self, tracing: Tracing, context: Any) -> None:
        self._tracing = tracing
        self._context = context

    def begin(self, method: str, name: str, server: str) -> _ClientSpan:
        return self._tracing._begin_request(self._context, method, name, server)


class Tracing(Middleware):
    """Opens a SERVER span around each call of any kind: needs the `otel` extra, and a provider unless one is set globally.

    The parent is the `traceparent` in the request's `_meta`; a span that is current here, such as the web server's, is
    linked. A request to a server behind a gateway is a CLIENT span below it, and the parent of the server's own. `arguments=True` and `results=True` add both to the
    span, with secrets masked. If no provider is set by the time it starts, it exports by OTLP over HTTP as the
    variables `OTEL_EXPORTER_OTLP_…` say; without them it logs that spans are not exported.
    """

    order = 1

    def __init__(self, provider: Any = None, *, arguments: bool = False, results: bool = False) -> None:
        try:
            from opentelemetry import context, trace  # noqa: PLC0415 — an extra, imported only here
            from opentelemetry.baggage.propagation import W3CBaggagePropagator  # noqa: PLC0415
            from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
                TraceContextTextMapPropagator,
            )
        except ImportError:
            raise SetupError("Tracing needs OpenTelemetry: pip install 'pegboard[otel]'") from None
        self.arguments, self.results = arguments, results
        self._trace, self._context = trace, context
        self._given = provider
        self._own: Any = None
        self._muted = False
        self._tracer = trace.get_tracer("pegboard", tracer_provider=provider)
        self._readers = (TraceContextTextMapPropagator(), W3CBaggagePropagator())

    async def start(self) -> None:
        trace = self._trace
        if self._given is not None or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return
        # The exporter takes a while to import.
        self._own = await asyncio.to_thread(_provider_from_environ, os.environ)
        if self._own is not None:
            self._tracer = trace.get_tracer("pegboard", tracer_provider=self._own)
        elif self.enabled:
            # Spans would go nowhere; a gateway passes the trace context of its callers on all the same.
            self.enabled, self._muted = False, True

    async def stop(self) -> None:
        if self._muted:
            self.enabled, self._muted = True, False
        own, self._own = self._own, None
        if own is not None:
            # It sends the last spans, and may wait for the collector.
            await asyncio.to_thread(own.shutdown)

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Run the call within a span."""
        trace = self._trace
        parent = self._parent(call)
        ambient = trace.get_current_span().get_span_context()
        links = [trace.Link(ambient)] if parent is not None and ambient.is_valid else None
        # Names of tools and prompts are few; URIs and unknown names are not added to span names.
        named = call.known and call.kind in ("tool", "prompt")
        name = f"{call.method} {call.name}" if named else call.method
        span = self._tracer.start_span(
            name, context=parent, kind=trace.SpanKind.SERVER, attributes=self._attributes(call), links=links
        )
        here = trace.set_span_in_context(span, parent)
        if call.tool.toolbox or (isinstance(call.tool, Tool) and call.tool.relay is not None):
            call.spans = _CallSpans(self, here)
        call.notes.trace_id = f"{span.get_span_context().trace_id:032x}"
        token = self._context.attach(here)
        try:
            reply = await proceed(call)
            result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
            if result.get("isError"):
                self._fail(span, TOOL_ERROR, "")
            if self.results and call.kind == "tool" and span.is_recording():
                span.set_attribute("gen_ai.tool.call.result", _encode(mask(result)).decode())
            return reply
        except BaseException as problem:
            self._fail(span, error_type(describe_failure(problem)), "")
            if isinstance(problem, Refusal):
                span.set_attribute("rpc.response.status_code", str(problem.code))
            elif not isinstance(problem, ToolError):
                span.record_exception(problem)
            raise
        finally:
            self._context.detach(token)
            span.end()

    def _parent(self, call: Call) -> Any:
        """The trace context of the sender; None if it is missing or invalid."""
        if b"traceparent" not in bytes(call.params):
            return None
        try:
            carried = _decode(call.params).meta
        except msgspec.MsgspecError:
            return None
        if carried is None or carried.traceparent is None:
            return None
        headers = {name: value for name, value in msgspec.structs.asdict(carried).items() if value is not None}
        context: Any = None
        for reader in self._readers:
            context = reader.extract(headers, context)
        return context if self._trace.get_current_span(context).get_span_context().is_valid else None

    def _carried(self, context: Any) -> Mapping[str, Json]:
        """The trace context for another server, whose spans become children of ours."""
        carried: dict[str, Json] = {}
        for writer in self._readers:
            writer.inject(carried, context)
        return carried

    def _attributes(self, call: Call) -> dict[str, str]:
        caller = call.caller
        attributes = {
            "mcp.method.name": call.method,
            "mcp.protocol.version": caller.version,
            **_NETWORK.get(caller.transport, {}),
        }
        match call.kind:
            case "tool":
                attributes["gen_ai.operation.name"] = "execute_tool"
                attributes["gen_ai.tool.name"] = call.name[:128]
            case "prompt":
                attributes["gen_ai.prompt.name"] = call.name[:128]
            case "resource":
                attributes["mcp.resource.uri"] = call.name[:512]
            case _:
                pass
        if call.id is not None:
            attributes["jsonrpc.request.id"] = str(call.id)
        if caller.session:
            attributes["mcp.session.id"] = caller.session
        if self.arguments and call.kind == "tool":
            attributes["gen_ai.tool.call.arguments"] = _encode(mask(call.sent)).decode()
        return attributes

    def _begin_request(self, context: Any, method: str, name: str, server: str) -> _ClientSpan:
        """The CLIENT span of a request to a server, whose own span becomes its child."""
        trace = self._trace
        attributes = {"mcp.method.name": method, "pegboard.server": server}
        if name and method == "tools/call":
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name[:128]}
        elif name and method == "prompts/get":
            attributes["gen_ai.prompt.name"] = name[:128]
        span = self._tracer.start_span(
            f"{method} {name[:128]}" if name else method,
            context=context,
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
        )
        return _ClientSpan(span, self._carried(trace.set_span_in_context(span, context)), self._fail)

    def _fail(self, span: Any, kind: str, message: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, message or None))
