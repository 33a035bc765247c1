"""The endpoint with its sessions in a store: what asks the store, what does not, and what is said when it is down."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard.errors import StoreDown
from pegboard.limits import Limits
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.sqlite.writer_thread import WriterThread
from pegboard.stores.store import Store
from tests.server.fake_sink import Door, request
from tests.stores import backends


@asynccontextmanager
async def door(store: Store) -> AsyncIterator[Door]:
    cluster = Cluster(store, Limits(worker_seconds=60))
    await cluster.start()
    try:
        yield Door(shared=SharedStore(store, cluster))
    finally:
        await cluster.close()


def call(name: str = "echo") -> bytes:
    return request("tools/call", {"name": name, "arguments": {"a": 1}}, 1)


def break_down(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise StoreDown("The store does not respond; try again later", retry_after=5)

    for part, names in ((store.records, ("get", "put", "delete")), (store.logs, ("open", "append", "read"))):
        for name in names:
            monkeypatch.setattr(part, name, fail)


async def test_a_plain_answer_in_a_session_that_is_known_asks_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async with backends.opened(backends.sqlite) as store, door(store) as served:
        session = await served.open_session()
        written: list[object] = []
        write = WriterThread.run

        async def count(self: WriterThread, work: Any, weight: int = 0) -> Any:
            written.append(work)
            return await write(self, work, weight)

        monkeypatch.setattr(WriterThread, "run", count)
        break_down(monkeypatch, store)
        for _ in range(20):
            visit = session.send(call())
            # Nothing is waited for either.
            assert (await visit.response()).json["result"]["content"][0]["text"] == '{"a": 1}'
            assert (await session.ask("tools/list").response()).status == 200
            assert (await session.ask("ping").response()).status == 200
        assert written == []


async def test_while_the_store_is_down_what_needs_it_is_refused_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with backends.opened(backends.sqlite) as store, door(store) as served:
        session = await served.open_session()
        with monkeypatch.context() as broken:
            break_down(broken, store)
            opened = await served.initialize()
            assert (opened.status, opened.headers["retry-after"]) == (503, "5")
            assert len(served.endpoint.sessions) == 1
            level = await session.ask("logging/setLevel", {"level": "error"}).response()
            assert (level.status, level.json["id"]) == (503, 1)
            ended = await session.send(b"", method="DELETE").response()
            assert ended.status == 503
            assert (await session.send(call()).response()).status == 200
            foreign = {**session.headers, "mcp-session-id": "0" * 32}
            assert (await served.send(call(), foreign).response()).status == 503
        assert (await served.send(call(), foreign).response()).status == 404
        assert (await session.send(b"", method="DELETE").response()).status == 204
        assert (await session.send(call()).response()).status == 404


async def test_a_server_is_ready_only_while_its_store_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with backends.opened(backends.sqlite) as store, door(store) as served:
        with monkeypatch.context() as broken:
            break_down(broken, store)
            down = await served.send(path="/ready", method="GET").response()
            assert (down.status, down.json) == (503, {"status": "unready", "store": "unavailable"})
        up = await served.send(path="/ready", method="GET").response()
        assert (up.status, up.json) == (200, {"status": "ready", "store": "ready"})


async def test_an_unknown_session_is_refused_under_the_id_of_the_request() -> None:
    async with backends.opened(backends.sqlite) as store, door(store) as served:
        session = await served.open_session()
        stranger = {**session.headers, "mcp-session-id": "f" * 32}
        for body in (call(), request("tools/list", None, 1)):
            response = await served.send(body, stranger).response()
            assert (response.status, response.code, response.json["id"]) == (404, -32001, 1)
        batch = await served.send(b"[" + call() + b"]", {**stranger, "mcp-protocol-version": "2025-03-26"}).response()
        assert batch.status == 404
        for method in ("GET", "DELETE"):
            response = await served.send(b"", stranger, method=method).response()
            assert (response.status, response.code) == (404, -32001)
