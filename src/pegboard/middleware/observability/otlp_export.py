"""Sends metrics to an OpenTelemetry collector, as the variables `OTEL_…` say: OTLP over HTTP, by the SDK's own exporter."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from pegboard import __version__
from pegboard.background_tasks import end_tasks
from pegboard.middleware.observability.metric_families import HistogramValue, MetricFamily

_log = logging.getLogger("pegboard")

OtlpSignal: TypeAlias = Literal["traces", "metrics", "logs"]

_HTTP: Final = "http/protobuf"
_INTERVAL_SECONDS: Final = 60.0
_SHORTEST_SECONDS: Final = 0.05
_EXPORT_SECONDS: Final = 10.0


def is_exported(signal: OtlpSignal, environ: Mapping[str, str]) -> bool:
    """Whether the variables of OpenTelemetry name a collector for this signal that we can reach; logs why not."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    own, name = f"OTEL_EXPORTER_OTLP_{signal.upper()}", f"OTEL_{signal.upper()}_EXPORTER"
    exporter = environ.get(name) or "otlp"
    if exporter == "none" or not (environ.get(own + "_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")):
        return False
    protocol = environ.get(own + "_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or _HTTP
    if exporter == "otlp" and protocol == _HTTP:
        return True
    _log.warning(
        "%s are not exported: %s over %s is not supported, use %s=otlp and OTEL_EXPORTER_OTLP_PROTOCOL=%s",
        signal.capitalize(),
        exporter[:40],
        protocol[:40],
        name,
        _HTTP,
    )
    return False


class MetricsExport:
    """Sends families of metrics again and again, while it is started."""

    def __init__(
        self, families: Callable[[], Iterable[MetricFamily]], environ: Mapping[str, str] | None = None
    ) -> None:
        self._families = families
        self._environ = os.environ if environ is None else environ
        self._since = time.time_ns()
        self._send: Callable[[Iterable[MetricFamily]], None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to send, if there is a collector."""
        if not is_exported("metrics", self._environ):
            return
        # The exporter takes a while to import.
        self._send = await asyncio.to_thread(_make_sender, self._since)
        if self._send is not None:
            self._task = asyncio.create_task(self._run(self._send))

    async def stop(self) -> None:
        """Send the last figures."""
        task, self._task = self._task, None
        send, self._send = self._send, None
        if task is not None and send is not None:
            await end_tasks(task)
            await self._export(send)

    async def _run(self, send: Callable[[Iterable[MetricFamily]], None]) -> None:
        try:
            seconds = float(self._environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")) / 1000
        except ValueError:
            seconds = _INTERVAL_SECONDS
        while True:
            await asyncio.sleep(max(seconds, _SHORTEST_SECONDS))
            await self._export(send)

    async def _export(self, send: Callable[[Iterable[MetricFamily]], None]) -> None:
        # Read here, in the thread that counts; encoded and sent in another.
        families = [
            MetricFamily(one.name, one.kind, one.unit, one.description, [*map(_copy, one.samples)])
            for one in self._families()
        ]
        await asyncio.to_thread(send, families)


def _copy(sample: tuple[Mapping[str, str], float | HistogramValue]) -> tuple[Mapping[str, str], float | HistogramValue]:
    labels, value = sample
    if not isinstance(value, HistogramValue):
        return sample
    copied = HistogramValue(value.bounds)
    copied.counts, copied.total = list(value.counts), value.total
    return labels, copied


def _make_sender(since: int) -> Callable[[Iterable[MetricFamily]], None] | None:
    """A function that sends families with the SDK's exporter; None, with a reason in the log, without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 — an extra, as below
            OTLPMetricExporter,
        )
        from opentelemetry.sdk.metrics import export  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415
    except ImportError:
        _log.warning("Metrics are not exported: install the exporter with pip install 'pegboard[otel]'")
        return None
    exporter = OTLPMetricExporter()
    # Workers of one server are instances of one service.
    resource = Resource.create({"service.instance.id": secrets.token_hex(16)})
    scope = InstrumentationScope("pegboard", __version__)
    cumulative = export.AggregationTemporality.CUMULATIVE

    def make(family: MetricFamily, now: int) -> Any:
        points: list[Any] = []
        for labels, value in family.samples:
            if isinstance(value, HistogramValue):
                points.append(
                    export.HistogramDataPoint(
                        attributes=dict(labels),
                        start_time_unix_nano=since,
                        time_unix_nano=now,
                        count=sum(value.counts),
                        sum=value.total,
                        bucket_counts=value.counts,
                        explicit_bounds=value.bounds,
                        min=None,  # type: ignore[arg-type]  # not measured, and optional in OTLP
                        max=None,  # type: ignore[arg-type]
                    )
                )
            else:
                points.append(export.NumberDataPoint(dict(labels), since, now, value))
        data: Any
        match family.kind:
            case "histogram":
                data = export.Histogram(points, cumulative)
            case "counter":
                data = export.Sum(points, cumulative, is_monotonic=True)
            case _:
                data = export.Gauge(points)
        return export.Metric(family.name, family.description, family.unit, data)

    def send(families: Iterable[MetricFamily]) -> None:
        now = time.time_ns()
        metrics = [make(family, now) for family in families]
        scoped = export.ScopeMetrics(scope, metrics, "")
        exporter.export(
            export.MetricsData([export.ResourceMetrics(resource, [scoped], "")]), timeout_millis=_EXPORT_SECONDS * 1000
        )

    return send
