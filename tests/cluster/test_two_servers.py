"""Two servers share a store: whatever a client began at one it goes on with at the other."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.servers import BOARD, LEASE, Pair, folder, guest, modern, pair, serve, steps_of
from tests.server.fake_sink import notification, request
from tests.server.http_clients import Line, Response
from tests.server_processes import PEGBOARD, Child, HttpChild
from tests.waiting import until

pytestmark = pytest.mark.process

ASKED = {"elicitation": {}}


async def test_a_session_is_served_wherever_its_client_comes(both: Pair) -> None:
    async with guest(both.one) as client:
        here, there = await client.text("pid"), await client.at(both.two).text("pid")
        assert here != there
        assert await client.text("pid") == here


async def test_an_unknown_session_is_not_found_on_any_server(both: Pair) -> None:
    async with guest(both.one) as client:
        other = client.at(both.two)
        other.session = "0" * 32
        answer = await other.ask("tools/list")
        assert (answer.status, answer.json["error"]["code"], answer.json["id"]) == (404, -32001, 1)


async def test_a_session_that_was_ended_is_gone_everywhere_once_that_is_answered(both: Pair) -> None:
    async with guest(both.one) as client:
        other = client.at(both.two)
        await other.text("pid")
        assert await client.end() == 204
        assert [(await one.ask("tools/list")).status for one in (other, client, other)] == [404, 404, 404]
        assert await other.end() == 404


async def test_ending_a_session_cancels_its_calls_and_ends_its_streams_elsewhere(both: Pair) -> None:
    with folder() as place:
        async with guest(both.one) as client:
            other = client.at(both.two)
            running = await other.start("hold", cancelled=str(place / "mark"))
            await running.read(1)
            listening = await other.send("GET", accept="text/event-stream")
            assert listening.status == 200
            assert await client.end() == 204
            await until((place / "mark").exists)
            await listening.rest()


async def test_what_a_client_wishes_for_its_session_holds_everywhere_once_it_is_answered(both: Pair) -> None:
    async with guest(both.one) as client:
        other = client.at(both.two)
        listening = await other.send("GET", accept="text/event-stream")
        answer = await client.ask("resources/subscribe", {"uri": "notes://mine"})
        assert answer.json["result"] == {}
        # At the very next moment, and told by a third party.
        await other.text("touch", uri="notes://mine")
        messages = await listening.read(1)
        assert [message["params"] for message in messages] == [{"uri": "notes://mine"}], listening.events
        await client.ask("resources/unsubscribe", {"uri": "notes://mine"})
        await other.text("touch", uri="notes://mine")
        await other.text("grow", name=f"after_{client.session[:8]}")
        messages = await listening.read(2)
        assert [one["method"] for one in messages[1:]] == ["notifications/tools/list_changed"]


async def test_a_question_is_answered_through_the_other_server(both: Pair) -> None:
    async with guest(both.one, ASKED) as client:
        response = await client.start("ask")
        [question] = await response.read(1)
        worker, _, rest = question["id"].partition(".")
        assert (len(worker), len(rest)) == (12, 16)
        answer = await client.at(both.two).answer(
            question["id"], result={"action": "accept", "content": {"name": "Ann"}}
        )
        assert answer.status == 202
        assert (await response.rest())[-1]["result"]["content"][0]["text"] == "Ann is there"


async def test_an_answer_from_another_session_is_ignored(both: Pair) -> None:
    async with guest(both.one, ASKED) as client, guest(both.two, ASKED) as stranger:
        response = await client.start("ask")
        [question] = await response.read(1)
        said: dict[str, Any] = {"result": {"action": "accept", "content": {"name": "Eve"}}}
        assert (await stranger.answer(question["id"], **said)).status == 202
        assert (await stranger.at(both.one).answer(question["id"], **said)).status == 202
        said["result"]["content"]["name"] = "Ann"
        await client.at(both.two).answer(question["id"], **said)
        assert (await response.rest())[-1]["result"]["content"][0]["text"] == "Ann is there"


async def test_a_call_is_cancelled_through_the_other_server(both: Pair) -> None:
    with folder() as place:
        async with guest(both.one) as client:
            response = await client.start("hold", 77, cancelled=str(place / "mark"))
            await response.read(1)
            assert await client.at(both.two).notify("notifications/cancelled", {"requestId": 77}) == 202
            await until((place / "mark").exists)
            await response.rest()


async def test_a_growing_stream_can_be_resumed_on_the_other_server(both: Pair) -> None:
    with folder() as place:
        async with guest(both.one) as client:
            response = await client.start("steps", count=40, gate=str(place / "gate"))
            await response.read(1)
            resumed = await client.at(both.two).come_back(response.last_id)
            (place / "gate").touch()
            messages = await resumed.rest()
            assert steps_of(resumed) == list(range(2, 41))
            assert messages[-1]["result"]["content"][0]["text"].startswith("40 steps")
            # The connection it was on before has been let go of, and had nothing of the rest.
            await response.rest()
            assert steps_of(response) == [1]


async def test_a_call_can_disconnect_its_client_on_the_server_where_it_resumed(both: Pair) -> None:
    with folder() as place:
        async with guest(both.one) as client:
            response = await client.start("poll", gate=str(place / "gate"))
            await response.rest()
            resumed = await client.at(both.two).come_back(response.last_id)
            (place / "gate").touch()
            await resumed.rest()
            assert resumed.events[-1].retry == 60
            again = await client.come_back(resumed.last_id if steps_of(resumed) else response.last_id)
            assert (await again.rest())[-1]["result"]["content"][0]["text"] == "polled"


async def test_a_list_change_is_notified_to_clients_of_all_servers(both: Pair) -> None:
    async with guest(both.one) as client, guest(both.two) as other:
        streams = [await one.send("GET", accept="text/event-stream") for one in (client, other)]
        await client.text("grow", name=f"tool_{client.session[:8]}")
        for stream in streams:
            [message] = await stream.read(1)
            assert message["method"] == "notifications/tools/list_changed"
            assert stream.last_id == streams[0].last_id


async def test_the_newest_of_several_streams_of_a_session_carries_changes_and_the_one_before_goes_on(
    both: Pair,
) -> None:
    async with guest(both.one) as client:
        other = client.at(both.two)
        first = await client.send("GET", accept="text/event-stream")
        second = await other.send("GET", accept="text/event-stream")
        mine = client.session[:8]
        await client.text("grow", name=f"a_{mine}")
        assert len(await second.read(1)) == 1
        second.line.hang_up()
        await client.text("grow", name=f"b_{mine}")
        messages = await first.read(1)
        # What the second has told is not told again.
        assert len(messages) == 1
        assert first.last_id != second.last_id


async def test_a_change_stream_can_be_resumed_on_the_other_server(both: Pair) -> None:
    async with guest(both.one) as client:
        first = await client.send("GET", accept="text/event-stream")
        mine = client.session[:8]
        await client.text("grow", name=f"c_{mine}")
        await first.read(1)
        last = first.last_id
        first.line.hang_up()
        await client.at(both.two).ask("resources/subscribe", {"uri": "notes://x"})
        await client.text("touch", uri="notes://x")
        again = await client.at(both.two).come_back(last)
        [message] = await again.read(1)
        assert message["method"] == "notifications/resources/updated"


async def test_a_task_is_asked_after_answered_and_ended_through_the_other_server(both: Pair) -> None:
    with folder() as place:
        call = {"name": "job", "arguments": {"gate": str(place / "gate")}}
        started = await modern(both.one, "tools/call", call, "job")
        task = started["result"]["taskId"]
        where = {"taskId": task}

        async def look() -> Any:
            return (await modern(both.two, "tasks/get", where, task))["result"]

        while (found := await look())["status"] != "input_required":
            assert found["status"] == "working"
        [key] = found["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Ann"}}}
        assert "result" in await modern(both.two, "tasks/update", {**where, "inputResponses": answers}, task)
        (place / "gate").touch()
        while (found := await look())["status"] != "completed":
            assert found["status"] == "working"
        assert found["result"]["content"][0]["text"].startswith("Ann, by ")


async def test_a_task_is_cancelled_through_the_other_server(both: Pair) -> None:
    started = await modern(both.one, "tools/call", {"name": "job", "arguments": {"gate": "/nowhere"}}, "job")
    where = {"taskId": started["result"]["taskId"]}
    assert "result" in await modern(both.two, "tasks/cancel", where, where["taskId"])
    for server in (both.one, both.two):
        assert (await modern(server, "tasks/get", where, where["taskId"]))["result"]["status"] == "cancelled"


# -- HTTP with SSE -----------------------------------------------------------------------------------------------------


async def at(server: HttpChild, verb: str, target: str, body: bytes = b"") -> Response:
    line = Line(*await asyncio.open_connection("127.0.0.1", server.port))
    head = f"{verb} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream, application/json\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    await line.say(head.encode() + body, verb)
    return await Response(line).begin()


async def test_a_client_of_http_with_sse_posts_to_the_other_server(both: Pair) -> None:
    stream = await at(both.one, "GET", "/sse")
    place = (await stream.read_event()).data
    hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    posts = [
        await at(both.two, "POST", place, request("initialize", hello, 1)),
        await at(both.two, "POST", place, notification("notifications/initialized", {})),
        await at(both.one, "POST", place, request("tools/call", {"name": "pid", "arguments": {}}, 2)),
        await at(both.two, "POST", place, request("tools/call", {"name": "pid", "arguments": {}}, 3)),
    ]
    assert [post.status for post in posts] == [202] * 4
    answers = [json.loads((await stream.read_event()).data) for _ in range(3)]
    assert [answer["id"] for answer in answers] == [1, 2, 3]
    assert answers[1]["result"] == answers[2]["result"]
    # What it cannot take is said by the server that was asked.
    refused = await at(both.two, "POST", place, b"{")
    await refused.rest()
    assert (refused.status, refused.json["error"]["code"]) == (400, -32700)
    made_up = await at(both.two, "POST", place.rpartition(".")[0] + "." + "0" * 32, request("ping", None, 4))
    nobody = await at(both.two, "POST", "/messages?sessionId=nobody." + "0" * 32, request("ping", None, 4))
    assert [made_up.status, nobody.status] == [404, 404]
    for response in (stream, refused, made_up, nobody, *posts):
        response.line.hang_up()


# -- death -----------------------------------------------------------------------------------------------------------


async def test_a_call_and_a_task_whose_process_is_killed_end_with_an_error(store: str) -> None:
    with pair(store) as both:
        async with guest(both.one) as client:
            response = await client.start("steps", "mine", count=2, gate="/nowhere")
            await response.read(1)
            started = await modern(both.one, "tools/call", {"name": "job", "arguments": {"gate": "/nowhere"}}, "job")
            resumed = await client.at(both.two).come_back(response.last_id)
            both.one.process.kill()
            [message] = await resumed.rest()
            assert (message["id"], message["error"]["code"]) == ("mine", -32603)
            # Whoever comes later is told the same, once.
            again = await client.at(both.two).come_back(response.last_id)
            assert await again.rest() == [message]
            assert again.last_id == resumed.last_id
            task = {"taskId": started["result"]["taskId"]}
            found = (await modern(both.two, "tasks/get", task, task["taskId"]))["result"]
            assert (found["status"], found["error"]["code"]) == ("failed", -32603)
            # The session is not.
            assert await client.at(both.two).text("pid")


async def test_a_process_that_was_only_frozen_finds_its_call_ended_and_gives_it_up(store: str) -> None:
    with folder() as place, pair(store) as both:
        async with guest(both.one) as client:
            gate = place / "gate"
            response = await client.start("steps", count=30, gate=str(gate))
            await response.read(1)
            both.one.signal(signal.SIGSTOP)
            resumed = await client.at(both.two).come_back(response.last_id)
            [message] = await resumed.rest()
            assert message["error"]["code"] == -32603
            gate.touch()
            both.one.signal(signal.SIGCONT)
            again = await client.at(both.one).come_back(response.last_id)
            assert await again.rest() == [message]


async def test_a_task_of_a_process_that_was_only_frozen_stays_as_it_was_ended(store: str) -> None:
    with folder() as place, pair(store) as both:
        gate = place / "gate"
        call = {"name": "work", "arguments": {"gate": str(gate)}}
        task = {"taskId": (await modern(both.one, "tools/call", call, "work"))["result"]["taskId"]}
        both.one.signal(signal.SIGSTOP)

        async def look(server: HttpChild) -> Any:
            return (await modern(server, "tasks/get", task, task["taskId"]))["result"]

        while (found := await look(both.two))["status"] == "working":
            pass
        assert (found["status"], found["error"]["code"]) == ("failed", -32603)
        gate.touch()
        both.one.signal(signal.SIGCONT)
        await until((place / "gate.done").exists)
        assert await look(both.two) == found
        assert (await look(both.one))["status"] == "failed"


async def test_a_process_that_was_frozen_while_a_session_ended_does_not_serve_it(store: str) -> None:
    with pair(store) as both:
        async with guest(both.one) as client:
            other = client.at(both.two)
            await other.text("pid")
            both.one.signal(signal.SIGSTOP)
            await asyncio.sleep(LEASE + 0.5)
            assert await other.end() == 204
            both.one.signal(signal.SIGCONT)
            statuses = [(await client.ask("tools/list")).status for _ in range(2)]
            assert statuses[-1] == 404


async def test_sessions_events_and_changes_survive_a_restart_of_the_whole_server() -> None:
    with folder() as place:
        store = f"sqlite:{place}/store.db"
        with serve(store) as server:
            async with guest(server) as client:
                response = await client.start("pace", count=5, seconds=0)
                await response.rest()
                cut = response.events[2].id
                assert cut is not None
                await client.ask("resources/subscribe", {"uri": "notes://mine"})
                listening = await client.send("GET", accept="text/event-stream")
                await client.text("grow", name="more")
                await listening.read(1)
                session, heard = client.session, listening.last_id
            server.signal()
            assert server.wait() == 0
        with serve(store) as server:
            async with guest(server) as client:
                client.session = session
                resumed = await client.come_back(cut)
                await resumed.rest()
                assert [event.id for event in resumed.events if event.data] == [
                    event.id for event in response.events[3:] if event.data
                ]
                await client.text("touch", uri="notes://mine")
                again = await client.come_back(heard)
                [message] = await again.read(1)
                assert message["params"] == {"uri": "notes://mine"}
                assert "pid" in json.dumps((await client.ask("tools/list")).json)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_store_that_cannot_be_opened_is_said_before_anything_is_served(tmp_path: Path, workers: str) -> None:
    store = f"sqlite:{tmp_path}"
    command = (*PEGBOARD, "run", BOARD, "--http", "--port", "0", "--workers", workers, "--store", store)
    with Child(*command, stdin=subprocess.DEVNULL) as child:
        assert child.wait() == 2
        assert str(tmp_path) in child.said()
        assert "Traceback" not in child.said()
