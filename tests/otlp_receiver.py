"""An OpenTelemetry collector: OTLP over HTTP, decoded with OpenTelemetry's own messages."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.waiting import SOON


class OtlpReceiver:
    """What it received: `spans` and `logs` in their order, the newest state of each metric by its name."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.logs: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.resources: list[dict[str, str]] = []
        self._received = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._accept(self.path, self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    async def wait_for_metric(self, name: str) -> None:
        """Wait until this metric has arrived."""
        await asyncio.to_thread(self._wait_for, name)

    def _wait_for(self, name: str) -> None:
        with self._received:
            assert self._received.wait_for(lambda: name in self.metrics, SOON), f"{name} did not arrive"

    def _accept(self, path: str, body: bytes) -> None:
        with self._received:
            match path:
                case "/v1/traces":
                    for traces in ExportTraceServiceRequest.FromString(body).resource_spans:
                        self.resources.append(attributes_of(traces.resource))
                        for scope in traces.scope_spans:
                            self.spans += scope.spans
                case "/v1/metrics":
                    for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                        self.resources.append(attributes_of(measured.resource))
                        for scoped in measured.scope_metrics:
                            self.metrics |= {metric.name: metric for metric in scoped.metrics}
                case "/v1/logs":
                    for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                        for logged in logs.scope_logs:
                            self.logs += logged.log_records
            self._received.notify_all()


def attributes_of(item: Any) -> dict[str, str]:
    """The attributes of a span, a data point or a resource, as texts."""
    return {
        pair.key: str(getattr(pair.value, pair.value.WhichOneof("value") or "string_value")) for pair in item.attributes
    }
