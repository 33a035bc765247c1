"""The dashboard, the alerts and the list of metrics in docs/ name what a gateway really measures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pegboard import Board, Client, Context, Gateway, Limits
from pegboard.logs.watchdog import TALLY
from pegboard.middleware import Metrics, RateLimit, TokenCount
from pegboard.server.http.listener import listen
from pegboard.server.http_serving import make_endpoint
from pegboard.server.serving_options import resolve_options

DOCS = Path(__file__).resolve().parent.parent / "docs"
OF_PROMETHEUS = {"up": {"job", "instance"}}
EVERYWHERE = {"job", "instance", "le"}


async def measure(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The metrics of a gateway that is served over HTTP, each with its labels."""
    monkeypatch.setattr(TALLY, "watchers", 1)
    board = Board("sums")

    @board.tool
    async def add(a: int, b: int, ctx: Context) -> int:
        await ctx.progress(1)
        return a + b

    gateway = Gateway({"toolboxes": {"dev": {"description": "Sums", "mcpServers": {"sums": {"board": board}}}}})
    gateway.use(Metrics(), TokenCount(), RateLimit(2, "hour"))
    await gateway.start()
    server = await listen(make_endpoint(gateway, resolve_options({}, {}), None), Limits())
    url = f"http://127.0.0.1:{server.port}"
    try:
        async with Client(f"{url}/mcp") as client:
            for _ in range(3):
                await client.call("dev__sums__add", {"a": "2", "b": 3})
        async with Client(f"{url}/mcp", version="2025-06-18") as older:
            await older.list_tools()
        await gateway.restart_server("dev", "sums")
        async with httpx.AsyncClient() as web:
            response = await web.get(f"{url}/metrics")
    finally:
        await server.close()
        await gateway.stop()
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> dict[str, str]:
    """The queries of the dashboard and of the alerts, by their titles."""
    dashboard = json.loads((DOCS / "observability" / "grafana-dashboard.json").read_text())
    rules = yaml.safe_load((DOCS / "observability" / "prometheus-alerts.yaml").read_text())
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }
    return panels | {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}


def names_in(expression: str) -> set[str]:
    """The metrics that a query names."""
    return set(re.findall(r"\b(?:mcp|pegboard)_\w+|\bup(?=\{)", re.sub(r"\{[^}]*\}", "{}", expression)))


async def test_the_dashboard_and_the_alerts_name_metrics_and_labels_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = await measure(monkeypatch)
    for title, expression in expressions().items():
        names = names_in(expression)
        assert names, title
        assert names <= measured.keys() | OF_PROMETHEUS, title
        assert expression.count("(") == expression.count(")"), title
        labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=|!~)\s*\"", expression))
        labels |= {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", group)}
        known = EVERYWHERE.union(*(measured.get(name, OF_PROMETHEUS.get(name, set())) for name in names))
        assert labels <= known, title


async def test_every_metric_is_on_the_dashboard_and_in_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = await measure(monkeypatch)
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in measured}
    shown = {re.sub("_(bucket|sum|count)$", "", name) for query in expressions().values() for name in names_in(query)}
    assert families - shown == set()
    rows: list[Any] = re.findall(
        r"^\| `((?:mcp|pegboard)_\w+)` \| (\w+) \|", (DOCS / "observability.md").read_text(), re.MULTILINE
    )
    assert {name for name, _ in rows} == families


def test_every_alert_has_a_severity_and_a_summary() -> None:
    rules = yaml.safe_load((DOCS / "observability" / "prometheus-alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"]
