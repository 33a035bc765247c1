"""Sends audit records to an OpenTelemetry collector as log records, as the variables `OTEL_EXPORTER_OTLP_…` say.

The files are the audit log; the collector gets a copy. Records that it does not accept in time are dropped there, and logged by
the exporter.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from pegboard.errors import SetupError
from pegboard.middleware.audit.hash_chain import OPEN

EVENT: Final = "pegboard.audit"


class _Record(Struct, gc=False):
    number: int
    hash: str
    at: str
    action: str
    name: str = ""
    principal: str = ""
    address: str = ""
    outcome: str = ""
    trace: str = ""


_decode: Final = msgspec.json.Decoder(_Record).decode
_ATTRIBUTES: Final = {
    "action": "mcp.method.name",
    "name": "gen_ai.tool.name",
    "principal": "user.id",
    "address": "client.address",
    "outcome": "pegboard.audit.outcome",
    "number": "pegboard.audit.number",
    "hash": "pegboard.audit.hash",
}


class OtlpLogs:
    """The exporter of one audit log; needs the `otel` extra."""

    def __init__(self) -> None:
        try:
            from opentelemetry import _logs as api  # noqa: PLC0415 — an extra, imported only here
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415
            from opentelemetry.sdk._logs import LoggerProvider  # noqa: PLC0415
            from opentelemetry.sdk._logs.export import BatchLogRecordProcessor  # noqa: PLC0415
        except ImportError:
            raise SetupError("Audit(otlp=True) needs OpenTelemetry: pip install 'pegboard[otel]'") from None
        self._api = api
        self._make: Any = lambda: (LoggerProvider(shutdown_on_exit=False), BatchLogRecordProcessor(OTLPLogExporter()))
        self._provider: Any = None
        self._logger: Any = None

    def send(self, chain: str, lines: Sequence[bytes]) -> None:
        """Send lines that have been written; the first ones start the exporter."""
        if self._logger is None:
            self._provider, processor = self._make()
            self._provider.add_log_record_processor(processor)
            self._logger = self._provider.get_logger(EVENT)
        for line in lines:
            self._logger.emit(self._record(chain, line))

    def close(self) -> None:
        """Send what waits, and end; the next lines start again."""
        provider, self._provider, self._logger = self._provider, None, None
        if provider is not None:
            provider.shutdown()

    def _record(self, chain: str, line: bytes) -> Any:
        record = _decode(line)
        severity = self._api.SeverityNumber
        attributes: dict[str, str | int] = {"pegboard.audit.chain": chain}
        for field, name in _ATTRIBUTES.items():
            if value := getattr(record, field):
                attributes[name] = value
        made = self._api.LogRecord(
            timestamp=int(datetime.fromisoformat(record.at).timestamp() * 1e9),
            severity_number=severity.INFO if record.action == OPEN or record.outcome == "ok" else severity.WARN,
            # As it is in the file, so that its hash can be checked.
            body=line.decode().rstrip("\n"),
            attributes=attributes,
            event_name=EVENT,
        )
        if record.trace:
            made.trace_id = int(record.trace, 16)
        return made
