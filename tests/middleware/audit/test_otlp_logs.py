"""Audit records reach an OpenTelemetry collector, as its own library reads them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from pegboard.errors import SetupError
from pegboard.middleware import Audit
from pegboard.testing import make_call, run_alone
from tests.middleware.audit.audit_records import SECRET, findings_of, lines_of

TRACE = "0af7651916cd43dd8448eb211c80319c"


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """An OTLP receiver over HTTP: its address, and the log records that it got."""
    received: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = ExportLogsServiceRequest.FromString(body)
            for resource in request.resource_logs:
                for scope in resource.scope_logs:
                    received.extend(scope.log_records)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_every_record_is_sent_with_its_hash_and_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as (address, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        audit = Audit(tmp_path, secret=SECRET, otlp=True)
        call = make_call(
            "pay", {"password": "hunter2"}, principal="ann", meta={"traceparent": f"00-{TRACE}-{'1' * 16}-01"}
        )
        await run_alone(audit, call=call)
        await run_alone(audit, answer=ValueError())
        await audit.stop()
        audit.close()
    written = lines_of(tmp_path)
    attributes = [{item.key: item.value for item in record.attributes} for record in received]
    assert [found["pegboard.audit.hash"].string_value for found in attributes] == [line["hash"] for line in written]
    opened, paid, failed = received
    assert {record.event_name for record in received} == {"pegboard.audit"}
    assert paid.trace_id.hex() == TRACE
    assert attributes[1]["user.id"].string_value == "ann"
    assert attributes[1]["gen_ai.tool.name"].string_value == "pay"
    assert "hunter2" not in str(received)
    assert (opened.severity_number, failed.severity_number) == (9, 13)
    # What the collector got is the line of the file.
    assert paid.body.string_value in (tmp_path / "audit-1.000001.jsonl").read_text()
    assert findings_of(tmp_path) == []


def test_without_the_extra_it_is_refused_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk._logs", None)
    with pytest.raises(SetupError, match=r"pegboard\[otel\]"):
        Audit(tmp_path, otlp=True)
