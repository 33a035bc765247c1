"""`pegboard status [URL]`: what a running server says about itself: servers, uptime, calls and errors."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from pegboard.cli.arguments.target_argument import CANNOT_CONNECT, OK, add_url_flags, read_headers
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.server_store import add_store_flags, open_server_store, store_of
from pegboard.cli.terminal.output import note, show, show_json
from pegboard.cli.terminal.tables import show_rows, show_wrapped
from pegboard.client.http.address import read_address
from pegboard.client.http.http_pool import HttpPool, PooledRequest, header_lines
from pegboard.config.gateway_config import find_config
from pegboard.errors import PegboardError, ServerFault, SetupError
from pegboard.gateway.state_folder import store_file
from pegboard.protocol.json_values import as_object
from pegboard.server.http.guard import is_loopback
from pegboard.server.serving_options import DEFAULT_PORT
from pegboard.stores.operator_proof import HEADER, make_proof
from pegboard.tools.naming import counted

NOT_READY: Final = 1

_BYTES: Final = 4_000_000
_LAST_TIME: Final = 2**33
_FAMILY: Final = "# TYPE pegboard_build_info "
_CALLS: Final = re.compile(
    r"^mcp_server_operation_duration_seconds_count\{(?P<labels>[^}\n]{0,2000})\} (?P<count>[0-9]{1,15}(?:\.[0-9]{1,3})?)$",
    re.MULTILINE,
)


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard status",
        description="Show what a running server says about itself: whether it is ready, its uptime, the state of its servers, "
        "and the calls and errors of each that its history keeps.",
        examples=(
            "pegboard status",
            "pegboard status --config gateway.json",
            "pegboard status https://tools.example.com --header 'Authorization: Bearer pb_…' --json",
        ),
        codes="0 ready, 1 not ready, 2 wrong usage, 3 cannot connect",
        epilog="Where callers authenticate, it needs a key with the scope console.read, or the store of the server: on its machine, that of the configuration here is found.",
    )
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        default=f"http://127.0.0.1:{DEFAULT_PORT}",
        help=f"the server (http://127.0.0.1:{DEFAULT_PORT})",
    )
    add_url_flags(parser)
    add_store_flags(parser)
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
        note(f"pegboard status: {problem}")
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
        self._is_store_named = bool(chosen.store or chosen.config)
        self._store = _find_store(chosen) if self._is_store_named or is_loopback(parts.hostname) else None
        self._pool = HttpPool(ca=chosen.ca)

    async def describe(self) -> dict[str, Any]:
        try:
            began = time.perf_counter()
            health = (await self._json("/health"))[1]
            elapsed = (time.perf_counter() - began) * 1000
            if not health:
                raise SetupError(
                    f"{self.root} responds, but not as a Pegboard server: {self.root}/health has no status"
                )
            found = {
                "url": self.root,
                "milliseconds": round(elapsed, 1),
                "health": health,
                "ready": (await self._json("/ready"))[1],
            }
            return {**found, **await self._read_status()}
        finally:
            await self._pool.close()

    async def _read_status(self) -> dict[str, Any]:
        """The servers and calls: from the status of the server, or from its metrics if it has none."""
        status, document = await self._json("/operator/status", await self._proof())
        if status == 200:
            return {name: document[name] for name in ("servers", "calls") if isinstance(document.get(name), dict)}
        if status == 404:
            status, metrics = await self._get("/metrics")
            calls = _count_calls(metrics.decode("utf-8", "replace"))
            if calls is not None:
                return {"calls": calls}
        return {"needs": status} if status in (401, 403) else {}

    async def _proof(self) -> bytes:
        """The header that proves that we can read the store of the server; empty if we cannot."""
        address = self._store
        if address is None:
            return b""
        try:
            async with open_server_store(address, "the keys of a server") as store:
                return header_lines({HEADER: await make_proof(store.records)}, HEADER)
        except PegboardError:
            if self._is_store_named:
                raise
            return b""

    async def _json(self, path: str, more: bytes = b"") -> tuple[int, dict[str, Any]]:
        status, body = await self._get(path, more)
        try:
            return status, msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            return status, {}

    async def _get(self, path: str, more: bytes = b"") -> tuple[int, bytes]:
        request = PooledRequest("GET", read_address(self.root + path), secrets=self._secrets + more)
        async with asyncio.timeout(self._seconds):
            response = await self._pool.send(request)
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
    servers = found.get("servers") or ready.get("servers")
    if isinstance(servers, dict):
        show_rows([_row(name, about) for name, about in servers.items() if isinstance(about, dict)], "  ")
        for name, about in servers.items():
            if problem := as_object(about).get("problem"):
                show_wrapped(f"{name}: {problem}", "  ")
    if calls := found.get("calls"):
        since = calls.get("since")
        kept = f" since {time.strftime('%Y-%m-%d %H:%M', time.localtime(since))}" if _is_time(since) else ""
        show(f"  {_count(calls, 'call')}{kept}, {_count(calls, 'error')}")
    if needs := found.get("needs"):
        note(
            f"The server shows its servers, calls and errors to its operator (status {needs}): add --config or --store on its "
            "machine, or --header 'Authorization: Bearer KEY'; `pegboard keys add NAME --scope console.read` makes a key"
        )
    stalls = as_object(health.get("stalls")).get("count")
    if stalls and isinstance(stalls, int):
        show(f"  the event loop was blocked {counted(stalls, 'time')}: see the log")


def _row(name: str, about: Mapping[str, Any]) -> tuple[str, ...]:
    counts = [_count(about, what) if f"{what}s" in about else "" for what in ("tool", "call", "error")]
    return name, str(about.get("state", "")), *counts


def _count(counts: Mapping[str, Any], what: str) -> str:
    number = counts.get(f"{what}s")
    return counted(number, what) if isinstance(number, int) else ""


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < _LAST_TIME


def _find_store(chosen: argparse.Namespace) -> str | None:
    """The address of the store that the server uses; None if there is none here."""
    if chosen.store or chosen.config:
        return str(chosen.store or store_of(chosen.config))
    if given := os.environ.get("PEGBOARD_STORE"):
        return given
    with suppress(SetupError):
        file = store_file(str(find_config(os.environ)))
        return f"sqlite:{file}" if file.is_file() else None
    return None


def _duration(seconds: object) -> str:
    if not isinstance(seconds, int | float):
        return "an unknown time"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
