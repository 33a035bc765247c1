"""Boards mounted under other servers keep what they have in a store, and share it, as those do that we serve."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from pegboard import Board
from pegboard.errors import SetupError, StoreDown
from tests.cluster.servers import folder, guest, modern, serve, steps_of
from tests.server.fake_sink import request
from tests.server_processes import UvicornChild
from tests.waiting import until

pytestmark = pytest.mark.process

ROUTE = "__import__('fastapi').FastAPI(routes=[board.asgi(store={!r}, legacy_endpoints='all')])"
ALONE = "board.asgi(store={!r}, legacy_endpoints='all')"


def mounted(store: str, how: str = ALONE) -> UvicornChild:
    return UvicornChild("tests.cluster_board", how.format(store))


# -- after a restart ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [ALONE, ROUTE], ids=["alone", "a route"])
async def test_a_session_and_a_stream_go_on_after_the_server_was_restarted(how: str) -> None:
    with folder() as place:
        store = f"sqlite:{place}/store.db"
        with mounted(store, how) as first:
            async with guest(first) as client:
                stream = await client.start("pace", 7, count=5, seconds=0)
                await stream.rest()
                assert steps_of(stream) == [1, 2, 3, 4, 5]
                seen = next(event.id for event in stream.events if event.id and event.id.endswith("-2"))
                first.signal(signal.SIGTERM)
                first.wait()
                with mounted(store, how) as second:
                    later = client.at(second)
                    assert await later.text("pid") == str(second.process.pid)
                    rest = await later.come_back(seen)
                    await rest.rest()
                    assert steps_of(rest) == [3, 4, 5]
                    assert rest.json["id"] == 7
                    assert "result" in rest.json


async def test_a_call_whose_server_was_killed_ends_with_its_error_at_the_next_one() -> None:
    with folder() as place:
        store = f"sqlite:{place}/store.db"
        with mounted(store) as first:
            async with guest(first) as client:
                stream = await client.start("hold", 9, cancelled=str(place / "never"))
                await stream.read(1)
                first.signal(signal.SIGKILL)
                first.wait()
                with mounted(store) as second:
                    rest = await client.at(second).come_back(stream.last_id)
                    await rest.rest()
                    assert (rest.json["id"], rest.json["error"]["code"]) == (9, -32603)


# -- together ----------------------------------------------------------------------------------------------------------


async def test_two_mounted_boards_and_a_served_one_serve_the_same_sessions(store: str) -> None:
    with mounted(store) as one, mounted(store, ROUTE) as two, serve(store) as three:
        async with guest(one, {"elicitation": {}}) as client:
            servers = [client, client.at(two), client.at(three)]
            assert len({await at.text("pid") for at in servers}) == 3
            stream = await client.start("pace", 5, count=3, seconds=0)
            await stream.rest()
            for at in servers[1:]:
                again = await at.come_back(stream.events[0].id)
                assert steps_of(await _whole(again)) == [1, 2, 3]
            # A question that one of them asks is answered through another.
            asking = await client.send("POST", request("tools/call", {"name": "ask", "arguments": {}}, 6))
            asked = (await asking.read(1))[0]
            answer = await servers[1].answer(asked["id"], result={"action": "accept", "content": {"name": "Ada"}})
            assert answer.status == 202
            await asking.rest()
            assert asking.json["result"]["content"][0]["text"] == "Ada is there"
            # A change at one is heard at another.
            listening = await servers[1].send("GET", accept="text/event-stream")
            await servers[2].text("grow", name="late")
            heard = await listening.read(1)
            assert heard[0]["method"] == "notifications/tools/list_changed"
            assert await client.end() == 204
            assert [(await at.ask("tools/list")).status for at in servers] == [404, 404, 404]


async def _whole(response: Any) -> Any:
    await response.rest()
    return response


async def test_a_client_of_the_first_transport_may_post_to_another_server_than_its_stream_is_at(store: str) -> None:
    headers = {"content-type": "application/json", "accept": "*/*"}
    with mounted(store) as one, mounted(store) as two:
        async with (
            httpx.AsyncClient(headers=headers) as client,
            client.stream("GET", f"http://127.0.0.1:{one.port}/sse") as stream,
        ):
            lines = (line.removeprefix("data: ") async for line in stream.aiter_lines() if line.startswith("data: "))
            place = await anext(lines)
            body = request("tools/call", {"name": "pid", "arguments": {}}, 3)
            posted = await client.post(f"http://127.0.0.1:{two.port}{place}", content=body)
            assert posted.status_code == 202
            answer = json.loads(await anext(lines))
            assert answer["result"]["content"][0]["text"] == str(one.process.pid)


async def test_what_one_has_sealed_another_opens(store: str) -> None:
    with mounted(store) as one, mounted(store) as two:
        asked = await modern(one, "tools/call", {"name": "ask", "arguments": {}}, "ask")
        state, keys = asked["result"]["requestState"], asked["result"]["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Bo"}} for key in keys}
        params = {"name": "ask", "arguments": {}, "requestState": state, "inputResponses": answers}
        told = await modern(two, "tools/call", params, "ask")
        assert told["result"]["content"][0]["text"] == "Bo is there"


# -- how it begins and ends --------------------------------------------------------------------------------------------


def make_board() -> Board:
    board = Board("kept")

    @board.tool
    async def hello() -> str:
        return "hello"

    return board


async def hail(app: Any) -> httpx.Response:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        return await client.post("/mcp", content=request("initialize", params), headers=headers)


def workers(place: Path) -> list[str]:
    with closing(sqlite3.connect(place / "store.db")) as file:
        return [name for (name,) in file.execute("select name from leases")]


def living(place: Path) -> int:
    return len(workers(place))


@contextmanager
def kept() -> Iterator[tuple[Path, str]]:
    with folder() as place:
        yield place, f"sqlite:{place}/store.db"


async def test_nothing_is_opened_before_the_first_request_and_all_is_closed_after_the_block() -> None:
    with kept() as (place, store):
        mounting = make_board().asgi(store=store)
        assert not (place / "store.db").exists()
        async with mounting:
            assert living(place) == 1
            assert (await hail(mounting)).status_code == 200
        assert living(place) == 0
        # What comes later opens it again.
        assert (await hail(mounting)).status_code == 200
        assert living(place) == 1
        await mounting.close()
        assert living(place) == 0


def test_a_mounted_app_without_a_lifespan_is_stopped_when_the_loop_closes() -> None:
    with kept() as (place, store):
        app = FastAPI()
        app.routes.append(make_board().asgi(store=store))

        async def ask() -> None:
            assert (await hail(app)).status_code == 200
            assert living(place) == 1

        for _ in range(2):
            asyncio.run(ask())
            assert living(place) == 0


async def test_requests_that_come_at_once_open_it_once() -> None:
    with kept() as (place, store):
        mounting = make_board().asgi(store=store)
        answers = await asyncio.gather(*(hail(mounting) for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        assert living(place) == 1
        await mounting.close()


async def test_a_client_that_leaves_meanwhile_takes_nothing_with_it() -> None:
    with kept() as (place, store):
        mounting = make_board().asgi(store=store)
        left = asyncio.ensure_future(hail(mounting))
        stays = asyncio.ensure_future(hail(mounting))
        await asyncio.sleep(0)
        left.cancel()
        assert (await stays).status_code == 200
        await mounting.close()
        assert living(place) == 0


async def test_a_store_that_cannot_be_opened_is_said_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    with folder() as place:
        in_the_way = place / "secret"
        in_the_way.write_text("a file where a folder is wanted")
        mounting = make_board().asgi(store=f"sqlite:{in_the_way}/store.db")
        answer = await hail(mounting)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "secret" not in answer.text
        assert "secret" in caplog.text
        with pytest.raises(StoreDown):
            async with mounting:
                pass
        told = await lifespan(mounting, "lifespan.startup")
        assert told[0]["type"] == "lifespan.startup.failed"
        assert "secret" in told[0]["message"]
        in_the_way.unlink()
        assert (await hail(mounting)).status_code == 200
        await mounting.close()


async def lifespan(app: Any, *kinds: str) -> list[Any]:
    events, told = iter([{"type": kind} for kind in kinds]), []

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        told.append(message)

    await app({"type": "lifespan"}, receive, send)
    return told


async def test_a_lifespan_opens_and_closes_it() -> None:
    with kept() as (place, store):
        mounting = make_board().asgi(store=store)
        for _ in range(2):
            told = await lifespan(mounting, "lifespan.startup", "lifespan.shutdown")
            assert [event["type"] for event in told] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
            assert living(place) == 0


@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_at_the_end_calls_come_to_their_answers_and_then_it_serves_again(where: str) -> None:
    with kept() as (_, store):
        board, begun, gate = make_board(), asyncio.Event(), asyncio.Event()

        @board.tool
        async def slow() -> str:
            begun.set()
            await gate.wait()
            return "done"

        mounting = board.asgi(store=store if where == "sqlite" else "memory", legacy_endpoints="all")
        transport = httpx.ASGITransport(mounting)
        headers = {"content-type": "application/json", "accept": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            body = request("tools/call", {"name": "slow", "arguments": {}})
            calling = asyncio.ensure_future(client.post("/rpc", content=body, headers=headers))
            await begun.wait()
            ending = asyncio.ensure_future(mounting.close())
            await until(lambda: mounting._app.endpoint.draining)  # type: ignore[union-attr, attr-defined]
            refused = await client.post("/rpc", content=body, headers=headers)
            assert refused.status_code == 503
            gate.set()
            assert (await calling).json()["result"]["content"][0]["text"] == "done"
            await ending
            assert (await client.post("/rpc", content=body, headers=headers)).json()["result"]
        await mounting.close()


async def test_without_sessions_older_clients_are_served_all_the_same() -> None:
    mounting = make_board().asgi(sessions="off")
    answer = await hail(mounting)
    assert answer.status_code == 200
    assert "mcp-session-id" not in answer.headers


def test_a_wrong_address_is_refused_where_it_is_written() -> None:
    with pytest.raises(SetupError, match="not a supported store"):
        make_board().asgi(store="mongodb://nowhere")


async def test_a_store_is_created_again_each_time_it_is_opened() -> None:
    """A server may fork between making the application and serving it: what names a process must not be made before."""
    with kept() as (place, store):
        mounting = make_board().asgi(store=store)
        names = set()
        for _ in range(2):
            async with mounting:
                names.update(workers(place))
        assert len(names) == 2


async def test_a_board_has_one_store_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    with kept() as (place, store):
        board = make_board()
        async with board.asgi(store=store):
            assert (await hail(board.asgi(store=store))).status_code == 503
            assert "already uses another store" in caplog.text
            assert living(place) == 1
        async with board.asgi(store=store) as again:
            assert (await hail(again)).status_code == 200
