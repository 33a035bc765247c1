"""Our own server, once for each way to observe calls: `observed.py FILE WAY WAY …`, all in one process.

It writes the port of each way to the file.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

import uvloop

from pegboard import Board, Limits
from pegboard.console.board_subject import BoardSubject
from pegboard.console.console import Console
from pegboard.middleware import Audit, History, Logging, Metrics, Tracing
from pegboard.server.http.listener import listen
from pegboard.server.http_serving import make_endpoint
from pegboard.server.serving_options import resolve_options
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.store_url import open_store

TOKEN = "bench"


def make(way: str, folder: Path) -> Board:
    """A board that is observed in this way, or in none."""
    board = Board("bench", version="1.0.0")

    @board.tool
    async def add(a: float, b: float) -> float:
        """Adds two numbers."""
        return a + b

    match way:
        case "idle" | "open":
            Console(BoardSubject(board), token=TOKEN)
        case "stored":
            board.use(History())
        case "audit":
            board.use(Audit(folder / "audit", secret="a secret of the benchmark"))
        case "metrics":
            board.use(Metrics())
        case "both":
            board.use(Metrics())
            Console(BoardSubject(board), token=TOKEN)
        case "tracing":
            board.use(Tracing(_provider()))
        case "logging":
            logger = logging.getLogger("bench.calls")
            logger.propagate = False
            logger.setLevel(logging.INFO)
            logger.addHandler(logging.FileHandler(os.devnull))
            board.use(Logging(logger, style="json"))
    return board


def _provider() -> object:
    """A provider of the SDK that collects spans in batches, and drops them."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    return provider


async def main(told: Path, ways: list[str]) -> None:
    ports = {}
    for way in ways:
        board, shared = make(way, told.parent), None
        if way == "stored":
            store = open_store(f"sqlite:{told.parent / 'store.db'}")
            await store.start()
            shared = SharedStore(store, Cluster(store, Limits()))
        await board.start(shared)
        server = await listen(make_endpoint(board, resolve_options({}, {}), None), Limits())
        ports[way] = server.port
    part = told.with_suffix(".part")
    part.write_text(json.dumps(ports))
    part.rename(told)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2:]))
