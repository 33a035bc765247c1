"""Several workers behind one port: who serves, who is restarted, and how all of it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import h11
import pytest

from tests.cluster.servers import BOARD, Guest, folder, guest, serve, steps_of
from tests.server_processes import PEGBOARD, PLAIN_PEGBOARD, Child, HttpChild, StdioChild, finish
from tests.waiting import wait_until

pytestmark = pytest.mark.process


@contextmanager
def workers(count: int = 2, *more: str, command: tuple[str, ...] = PEGBOARD, **env: str) -> Iterator[HttpChild]:
    with (
        folder() as place,
        serve(f"sqlite:{place}/s.db", "--workers", str(count), *more, command=command, **env) as one,
    ):
        yield one


def children(server: HttpChild) -> set[int]:
    tasks = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return {int(pid) for pid in tasks.read_text().split()}


def seen(server: HttpChild, count: int = 2) -> set[int]:
    """The workers that answer, once it is so many."""
    pids: set[int] = set()

    def look() -> bool:
        # One that was killed takes the connections with it that it had accepted.
        with contextlib.suppress(OSError, AssertionError):
            pids.add(int(server.text("pid")))
        return len(pids) >= count

    wait_until(look)
    return pids


@pytest.mark.parametrize("command", [PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
def test_all_workers_serve_at_one_address_which_is_printed_once(command: tuple[str, ...]) -> None:
    with workers(3, command=command) as server:
        assert seen(server, 3) == children(server)
        assert len(re.findall("MCP +http", server.said())) == 1
        server.signal()
        assert server.wait() == 0


def test_workers_without_a_store_are_warned_about_once() -> None:
    with HttpChild("--workers", "2") as server:
        wait_until(lambda: "2 workers without a store: clients before 2026-07-28 are rejected" in server.said())
        assert server.said().count("without a store") == 1


def test_a_worker_that_is_killed_is_replaced_and_the_port_stays_open() -> None:
    with workers() as server:
        before = seen(server)
        killed = before.pop()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: len(children(server) - {killed}) == 2)
        [newcomer] = children(server) - before - {killed}
        wait_until(lambda: newcomer in seen(server))
        assert f"worker {killed} ended by signal 9" in server.said()
        server.signal()
        assert server.wait() == 0


def _replaced(server: HttpChild, victim: int) -> bool:
    there = children(server)
    return victim not in there and len(there) == 2


def test_a_worker_that_dies_again_and_again_is_started_later_and_later() -> None:
    with workers() as server:
        for _ in range(3):
            victims = children(server)
            victim = max(victims)
            os.kill(victim, signal.SIGKILL)
            wait_until(partial(_replaced, server, victim))
        waits = [float(wait) for wait in re.findall(r"another starts in ([\d.]+) s", server.said())]
        assert waits[0] == 0
        assert max(waits) > 0
        server.signal()
        assert server.wait() == 0


def test_connections_that_come_together_are_spread() -> None:
    with contextlib.ExitStack() as held, workers() as server:
        connections = [held.enter_context(contextlib.closing(server.start_call("pid"))) for _ in range(64)]
        answers = [json.loads(one.getresponse().read()) for one in connections]
        found = Counter(answer["result"]["content"][0]["text"] for answer in answers)
        assert len(found) == 2
        assert min(found.values()) > 12


@pytest.mark.parametrize("count", ["1", "2"])
def test_an_address_that_another_server_has_is_an_error(count: str) -> None:
    with workers() as server:
        command = (*PEGBOARD, "run", BOARD, "--http", "--port", str(server.port), "--workers", count)
        with Child(*command, stdin=subprocess.DEVNULL) as child:
            assert child.wait() == 2
            assert "choose another port" in child.said()


def test_who_waits_where_a_worker_was_killed_is_served_by_the_next_there() -> None:
    with workers() as server:
        pids = children(server)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        waiting = [server.start_call("pid") for _ in range(16)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        served = {int(finish(one)[1]["result"]["content"][0]["text"]) for one in waiting}
        assert served
        assert not served & pids


def test_workers_end_when_their_overseer_is_killed() -> None:
    with workers() as server:
        pids = children(server)
        server.process.kill()
        server.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_calls_in_all_workers_finish(number: int) -> None:
    with folder() as place, workers() as server:
        gate = place / "gate"
        held = [server.start_call("steps", count=2, gate=str(gate)) for _ in range(16)]
        wait_until(lambda: len(list(place.glob("gate.*"))) == 16)
        server.signal(number)
        wait_until(lambda: server.get("/ready")[0] == 503)
        gate.touch()
        texts = {finish(one)[1]["result"]["content"][0]["text"] for one in held}
        assert all(text.startswith("2 steps by") for text in texts)
        assert server.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_counts_once_and_a_second_one_hurries(number: int) -> None:
    with folder() as place, workers(CREW_DRAIN="600") as server:
        group = [server.process.pid, *children(server)]
        held = server.start_call("steps", count=2, gate=f"{place}/never")
        wait_until(lambda: bool(list(place.glob("never.*"))))
        # The overseer first, which tells the others: signals are not queued, and the second must not be its first.
        os.kill(server.process.pid, number)
        wait_until(lambda: server.get("/ready")[0] == 503)
        for pid in group[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        assert children(server)
        for pid in group:
            # One that has nothing to wait for has ended.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        assert "shutting down" in finish(held)[1]["error"]["message"]
        assert server.wait() == 0


def test_a_worker_that_does_not_listen_is_ended_after_the_drain() -> None:
    with folder() as place, workers(CREW_DRAIN="0.3") as server:
        held = server.start_call("steps", count=2, gate=f"{place}/never")
        victim = max(children(server))
        os.kill(victim, signal.SIGSTOP)
        server.signal()
        assert server.wait() == 0
        assert not Path(f"/proc/{victim}").exists()
        held.close()


def test_a_unix_socket_is_shared_and_removed_at_the_end() -> None:
    with folder() as place:
        path = place / "s"
        command = (
            *PEGBOARD,
            "run",
            BOARD,
            "--http",
            "--uds",
            path,
            "--workers",
            "2",
            "--store",
            f"sqlite:{place}/s.db",
        )
        with Child(*command, stdin=subprocess.DEVNULL) as child:
            wait_until(lambda: "unix:" in child.said())
            assert path.is_socket()
            child.signal()
            assert child.wait() == 0
            assert not path.exists()


# -- without a store that is shared ----------------------------------------------------------------------------------


async def test_without_a_shared_store_a_client_that_needs_sessions_receives_the_reason_and_the_remedy() -> None:
    with HttpChild("--workers", "2", target=BOARD) as server:
        with pytest.raises(AssertionError) as caught:
            async with guest(server):
                pass
        assert "-32022" in str(caught.value)
        assert "--store sqlite:PATH" in str(caught.value)
        assert '["2026-07-28"]' in str(caught.value)
        # Others are served.
        assert len(seen(server)) == 2


async def test_without_sessions_clients_of_the_older_revisions_are_served_all_the_same() -> None:
    with HttpChild("--workers", "2", "--sessions", "off", target=BOARD) as server:
        client = Guest(server.port)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = await client.ask("initialize", hello)
        assert answer.json["result"]["protocolVersion"] == "2025-06-18"
        assert "mcp-session-id" not in answer.headers
        assert await client.notify("notifications/initialized", {}) == 202
        assert {await client.text("pid") for _ in range(8)}
        assert await client.end() == 501
        client.close()


def test_workers_are_no_matter_of_stdio() -> None:
    with Child(*PEGBOARD, "run", BOARD, "--stdio", "--workers", "2") as child:
        assert child.wait() == 2
        assert "--workers is for HTTP" in child.said()


def test_a_store_serves_stdio_too() -> None:
    with folder() as place:
        command = (*PEGBOARD, "run", BOARD, "--stdio", "--store", f"sqlite:{place}/s.db")
        with StdioChild(*command) as child:
            child.initialize()
            assert child.request("tools/call", {"name": "pid", "arguments": {}})["result"]["content"]
            child.hang_up()
            assert child.wait() == 0
        assert (place / "s.db").exists()


@pytest.mark.parametrize("count", ["0", "-1"])
def test_somebody_has_to_serve(count: str) -> None:
    with Child(*PEGBOARD, "run", BOARD, "--http", "--workers", count, stdin=subprocess.DEVNULL) as child:
        assert child.wait() == 2
        assert "use at least 1" in child.said()


# -- with one --------------------------------------------------------------------------------------------------------


async def test_a_client_whose_worker_is_killed_comes_back_to_another_and_misses_nothing() -> None:
    with workers() as server:
        async with guest(server) as client:
            response = await client.start("pace", "x", count=200, seconds=0.02)
            await response.read(3)
            os.kill(int(response.messages[0]["params"]["message"]), signal.SIGKILL)
            with pytest.raises(h11.RemoteProtocolError):
                await response.rest()
            resumed = await client.come_back(response.last_id)
            messages = await resumed.rest()
            assert (messages[-1]["id"], messages[-1]["error"]["code"]) == ("x", -32603)
            told = steps_of(response) + steps_of(resumed)
            assert told == list(range(1, len(told) + 1))


async def test_a_question_is_answered_through_any_worker_while_all_end() -> None:
    with workers() as server:
        async with guest(server, {"elicitation": {}}) as client:
            asked = [await client.start("ask", number) for number in range(8)]
            server.signal()
            for response in asked:
                [question] = await response.read(1)
                said = {"action": "accept", "content": {"name": "Ann"}}
                assert (await client.answer(question["id"], result=said)).status == 202
            for response in asked:
                assert (await response.rest())[-1]["result"]["content"][0]["text"] == "Ann is there"
        assert server.wait() == 0
