"""`pegboard status [URL]`: what a running server says about itself: servers, uptime, calls and errors."""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from pegboard.cli.arguments.target_argument import CANNOT_CONNECT, OK, read_headers
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.terminal.output import note, show, show_json
from pegboard.cli.terminal.tables import show_rows
from pegboard.client.http.address import read_address
from pegboard.client.http.http_pool import HttpPool, PooledRequest, header_lines
from pegboard.errors import ServerFault, SetupError
from pegboard.protocol.json_values import as_object
from pegboard.server.serving_options import DEFAULT_PORT
from pegboard.tools.naming import counted

NOT_READY: Final = 1

_BYTES: Final = 4_000_000
_FAMILY: Final = "# TYPE pegboard_build_info "
_CALLS: Final = re.compile(
    r"^mcp_server_operation_duration_seconds_count\{(?P<labels>[^}\n]{0,2000})\} (?P<count>[0-9]{1,15}(?:\.[0-9]{1,3})?)$",
    re.MULTILINE,
)


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard status",
        description="Show what a running server says about itself: whether it is ready, the state of its servers, its uptime, and "
        "calls and errors if it has metrics.",
        examples=(
            "pegboard status",
            "pegboard status https://tools.example.com --header 'Authorization: Bearer pb_…' --json",
        ),
        codes="0 ready, 1 not ready, 2 wrong usage, 3 cannot connect",
    )
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        default=f"http://127.0.0.1:{DEFAULT_PORT}",
        help=f"the server (http://127.0.0.1:{DEFAULT_PORT})",
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="send a header, such as a key"
    )
    parser.add_argument("--ca", metavar="FILE", help="CA bundle for verifying the server")
    parser.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="fail after SECONDS (5)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(argv)
    server = _RunningServer(chosen)
    try:
        found = asyncio.run(server.describe())
    except TimeoutError:
        note(f"pegboard status: Cannot reach {server.root}: no response within {chosen.timeout:g} s")
        return CANNOT_CONNECT
    except ServerFault as problem:
        note(f"pegboard status: Cannot reach {server.root}: {problem}. Is the server running?")
        return CANNOT_CONNECT
    if chosen.json:
        show_json(found)
    else:
        _print(server.root, found)
    return OK if found.get("ready", {}).get("status") == "ready" else NOT_READY


class _RunningServer:
    """A server at a URL; the headers are sent to it alone, not to another one that it redirects to."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        parts = urlsplit(chosen.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SetupError(f"{chosen.url!r} is not the URL of a server: use http://HOST:PORT")
        prefix = re.split(r"/(?:mcp|console|toolboxes)\b", parts.path)[0].rstrip("/")
        self.root = f"{parts.scheme}://{parts.netloc}{prefix}"
        read_address(self.root)
        self._secrets = header_lines(read_headers(chosen.header), "--header")
        self._seconds = chosen.timeout
        self._pool = HttpPool(ca=chosen.ca)

    async def describe(self) -> dict[str, Any]:
        try:
            began = time.perf_counter()
            health = await self._json("/health")
            elapsed = (time.perf_counter() - began) * 1000
            if not health:
                raise SetupError(
                    f"{self.root} responds, but not as a Pegboard server: {self.root}/health has no status"
                )
            ready = await self._json("/ready")
            found = {"url": self.root, "milliseconds": round(elapsed, 1), "health": health, "ready": ready}
            status, metrics = await self._get("/metrics")
        finally:
            await self._pool.close()
        if status in (401, 403):
            # A server keeps only digests of its keys, so this command cannot find one itself.
            return {**found, "needs": f"--header 'Authorization: Bearer KEY' (status {status} of /metrics)"}
        calls = _count_calls(metrics.decode("utf-8", "replace"))
        return found if calls is None else {**found, "calls": calls}

    async def _json(self, path: str) -> dict[str, Any]:
        try:
            return msgspec.json.decode((await self._get(path))[1], type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            return {}

    async def _get(self, path: str) -> tuple[int, bytes]:
        async with asyncio.timeout(self._seconds):
            response = await self._pool.send(
                PooledRequest("GET", read_address(self.root + path), secrets=self._secrets)
            )
            try:
                return response.status, await response.read_all(_BYTES)
            finally:
                response.close()


def _count_calls(metrics: str) -> dict[str, int] | None:
    """The number of tool calls and of those that failed; None without metrics."""
    if _FAMILY not in metrics:
        return None
    counts = [
        (round(float(found["count"])), 'error_type="' in found["labels"] and 'error_type=""' not in found["labels"])
        for found in _CALLS.finditer(metrics)
        if 'mcp_method_name="tools/call"' in found["labels"]
    ]
    return {
        "calls": sum(count for count, _ in counts),
        "errors": sum(count for count, failed in counts if failed),
    }


def _print(root: str, found: Mapping[str, Any]) -> None:
    health, ready = found["health"], found["ready"]
    uptime = _duration(health.get("uptime_seconds"))
    # A board without a version has "0".
    version = f", version {health['version']}" if health.get("version", "0") != "0" else ""
    show(f"{root}: {ready.get('status', 'unknown')}, up for {uptime}{version}, {found['milliseconds']} ms")
    servers = ready.get("servers")
    if isinstance(servers, dict):
        rows = [(name, str(about.get("state", ""))) for name, about in servers.items() if isinstance(about, dict)]
        show_rows(rows, "  ")
    if calls := found.get("calls"):
        show(f"  {counted(calls['calls'], 'tool call')}, {counted(calls['errors'], 'error')}")
    if needs := found.get("needs"):
        note(f"The server shows its calls and errors to callers with a key: add {needs}; `pegboard keys add` makes one")
    stalls = as_object(health.get("stalls")).get("count")
    if stalls and isinstance(stalls, int):
        show(f"  the event loop was blocked {counted(stalls, 'time')}: see the log")


def _duration(seconds: object) -> str:
    if not isinstance(seconds, int | float):
        return "an unknown time"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
