"""A server behind the gateway: kept, called for others, and let go; however well or badly it behaves."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
import sys
import tracemalloc
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Context
from pegboard.auth.principal import Principal
from pegboard.call import NULL_CHANNEL, Caller, Json, Notification, Question
from pegboard.config.gateway_config import ServerConfig, read_config
from pegboard.errors import (
    Busy,
    ConnectionLost,
    MalformedMessage,
    MessageTooLong,
    ResponseTimeout,
    ServerFault,
    Unauthorized,
    Unreachable,
)
from pegboard.gateway.servers import supervisor
from pegboard.gateway.servers.server_logins import Logins
from tests.client.fakes import Asked, faking, reply
from tests.client.process_leftovers import children, nothing_left
from tests.gateway.minimal_gateway import LEGACY, MODERN, served
from tests.gateway.one_server import BATTERY, Person, Watched, bad, battery, behind, both, call, kept
from tests.loops import skip
from tests.server_processes import HttpChild
from tests.waiting import until

pytestmark = pytest.mark.process

ANN = Caller(version=MODERN, transport="http", principal=Principal("ann"), capabilities={"elicitation": {"form": {}}})
BOB = Caller(version=MODERN, transport="http", principal=Principal("bob"))


# -- calls ------------------------------------------------------------------------------------------------------------


async def test_a_thousand_calls_over_two_servers_start_two_children() -> None:
    async with both(battery(name="one"), battery(name="two")) as (one, two):
        said = await asyncio.gather(
            *(call((one, two)[n % 2], "add", {"a": n, "b": 0}) for n in range(1000)), return_exceptions=True
        )
        refused = [problem for problem in said if isinstance(problem, BaseException)]
        assert all(isinstance(problem, Busy) for problem in refused)
        for n in range(1000 - len(refused)):
            await call((one, two)[n % 2], "add", {"a": n, "b": 0})
        assert (one.spawns, two.spawns) == (1, 1)
        assert one.in_flight == two.in_flight == 0


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_server_behind_a_url_is_called_in_either_era(version: str) -> None:
    board = Board("far")
    board.tool("double")(lambda number: number * 2)
    async with served(board) as url, behind(ServerConfig(name="far", kind="http", url=url, version=version)) as far:
        assert (far.state, far.tools, far.asks_midway) == ("ready", ["double"], version == LEGACY)
        assert await call(far, "double", {"number": 21}) == "42"
        assert far.spawns == 0


async def test_a_board_in_this_process_receives_the_identity_of_the_caller() -> None:
    board = Board("near")

    @board.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.principal.id} {ctx.caller.capabilities}"

    async with behind(ServerConfig(name="near", kind="board", board="x.py:board"), board=board) as near:
        assert near.tools == ["who"]
        assert await call(near, "who", caller=ANN) == "ann {'elicitation': {'form': {}}}"


async def test_a_modern_server_receives_the_capabilities_of_each_caller_but_not_its_identity() -> None:
    board = Board("far")
    seen: list[Any] = []

    @board.tool
    async def look(ctx: Context) -> str:
        seen.append((ctx.client["name"], dict(ctx.caller.capabilities), ctx.principal.id))
        return "looked"

    async with served(board) as url, behind(ServerConfig(name="far", kind="http", url=url)) as far:
        for caller in (ANN, BOB, ANN):
            await call(far, "look", caller=caller)
    ann = ("pegboard", {"elicitation": {"form": {}}}, "")
    assert seen == [ann, ("pegboard", {}, ""), ann]


async def test_metadata_of_the_caller_passes_and_ours_goes_before_it() -> None:
    board = Board("far")
    seen: list[Any] = []

    async def note(call: Any, follow: Any) -> Any:
        if call.method == "tools/call":
            seen.append(json.loads(bytes(call.params))["_meta"])
        return await follow(call)

    board.tool("act")(lambda: "acted")
    board.use(note)
    async with served(board) as url, behind(ServerConfig(name="far", kind="http", url=url)) as far:
        meta = {
            "traceparent": "00-1",
            "x/y": [1],
            "io.modelcontextprotocol/clientInfo": {"name": "evil", "version": "1"},
        }
        params = {"name": "act", "arguments": {}, "_meta": meta}
        await far.send("tools/call", params, NULL_CHANNEL, ANN)
    assert seen[0]["traceparent"] == "00-1"
    assert seen[0]["x/y"] == [1]
    assert seen[0]["io.modelcontextprotocol/clientInfo"]["name"] == "pegboard"


async def test_arguments_are_repeated_in_headers_where_a_tool_wants_that() -> None:
    async with serving_battery() as url, behind(ServerConfig(name="far", kind="http", url=url)) as far:
        assert await call(far, "route", {"region": "EU", "size": 3}) == "EU 3"


async def test_a_child_sees_what_it_is_given_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED_ON", "yes")
    monkeypatch.setenv("KEPT_BACK", "secret")
    async with behind(bad(env={"GIVEN": "1"}, inherit=("PASSED_ON", "NOT_THERE"))) as server:
        env = json.loads(await call(server, "seen"))["env"]
    assert (env["GIVEN"], env["PASSED_ON"]) == ("1", "yes")
    assert not {"KEPT_BACK", "NOT_THERE"} & env.keys()


NETWORK = {
    "NODE_EXTRA_CA_CERTS": "/ca.pem", "SSL_CERT_FILE": "/ca.pem", "SSL_CERT_DIR": "/certs", "REQUESTS_CA_BUNDLE": "/ca.pem",
    "CURL_CA_BUNDLE": "/ca.pem", "HTTPS_PROXY": "http://proxy:3128", "no_proxy": "localhost", "NPM_CONFIG_REGISTRY": "https://npm",
    "UV_INDEX_URL": "https://pypi", "PIP_EXTRA_INDEX_URL": "https://me:hunter2hunter2@pypi",
}  # fmt: skip


async def test_a_child_learns_how_to_reach_the_network_but_no_secret_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in NETWORK.items():
        monkeypatch.setenv(name, value)
    for name in ("UV_PUBLISH_TOKEN", "NPM_CONFIG__AUTH", "UV_INDEX_MINE_PASSWORD", "KEPT_BACK"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("FOR_ALL", "yes")
    file = tmp_path / "mcp.json"
    program, *args = bad().command
    file.write_text(json.dumps({"inherit": ["FOR_ALL"], "mcpServers": {"bad": {"command": program, "args": args}}}))
    config = read_config(file)
    assert config.secrets >= {"hunter2hunter2"}
    async with behind(config.toolboxes["main"].servers["bad"]) as server:
        env = json.loads(await call(server, "seen"))["env"]
    assert env.items() >= NETWORK.items()
    assert env["FOR_ALL"] == "yes"
    assert not {"UV_PUBLISH_TOKEN", "NPM_CONFIG__AUTH", "UV_INDEX_MINE_PASSWORD", "KEPT_BACK"} & env.keys()


async def test_a_legacy_server_receives_all_capabilities_a_gateway_can_forward() -> None:
    async with behind(bad()) as server:
        [told] = json.loads(await call(server, "seen"))["told"]
    assert told["clientInfo"]["name"] == "pegboard"
    assert told["capabilities"] == {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


# -- sharing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "processes"), [("all", 1), ("principal", 2), ("session", 3)])
async def test_a_process_is_shared_as_it_is_said(share: Any, processes: int) -> None:
    callers = [
        Caller(version=LEGACY, transport="http", principal=Principal(principal), session=session)
        for principal, session in (("ann", "1"), ("ann", "2"), ("bob", "3"), ("ann", "1"))
    ]
    async with behind(bad(share=share)) as server:
        said = [await call(server, "pid", caller=caller) for caller in callers]
        assert len(set(said)) == processes
        assert said[0] == said[3]
        assert server.spawns == (1 if share == "all" else processes + 1)


# -- questions --------------------------------------------------------------------------------------------------------


async def test_the_question_of_a_single_call_goes_to_its_caller() -> None:
    ann = Person({"action": "accept", "content": {}})
    async with behind(bad()) as server:
        # Lists and pings beside it are nobody's calls.
        said, _ = await asyncio.gather(
            call(server, "ask", channel=ann, caller=ANN),
            server.send("tools/list", {}, NULL_CHANNEL, BOB),
        )
    assert json.loads(said) == {"action": "accept", "content": {}}
    assert [question.method for question in ann.asked] == ["elicitation/create"]


async def test_an_ambiguous_question_is_cancelled_and_later_calls_are_serialized(tmp_path: Path) -> None:
    ann, bob = Person({"action": "accept"}), Person({"action": "accept"})
    async with behind(bad()) as server:
        waiting = asyncio.create_task(call(server, "never", channel=bob, caller=BOB, timeout=20))
        await until(lambda: server.in_flight == 1)
        assert json.loads(await call(server, "ask", channel=ann, caller=ANN)) == {"action": "cancel"}
        assert not ann.asked
        assert not bob.asked
        waiting.cancel()
        await asyncio.wait([waiting])
        # From now on the second waits for the first.
        go = tmp_path / "go"
        first = asyncio.create_task(call(server, "late", {"file": str(go)}, caller=ANN))
        await until(lambda: server.in_flight == 1)
        second = asyncio.create_task(call(server, "echo", {"text": "second"}, caller=BOB))
        await asyncio.sleep(0)
        go.touch()
        done, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        assert done == {first}
        assert await second == "second"


async def test_what_a_gateway_knows_it_answers_itself_and_the_rest_it_refuses() -> None:
    async with behind(bad(roots=("file:///work",))) as server:
        waiting = asyncio.create_task(call(server, "never", caller=BOB, timeout=20))
        await until(lambda: server.in_flight == 1)
        roots, sampled = await asyncio.gather(
            call(server, "roots", channel=Person(), caller=ANN), call(server, "sample", channel=Person(), caller=ANN)
        )
        waiting.cancel()
        await asyncio.wait([waiting])
    assert json.loads(roots) == {"roots": [{"uri": "file:///work"}]}
    assert json.loads(sampled)["error"]["code"] == -32600


async def test_a_log_of_several_calls_goes_to_our_own_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    ann = Person()
    async with behind(bad()) as server:
        await call(server, "log", channel=ann, caller=ANN)
        assert [notice.params["data"] for notice in ann.heard] == ["mind the\ngap"]
        waiting = asyncio.create_task(call(server, "never", caller=BOB, timeout=20))
        await until(lambda: server.in_flight == 1)
        await call(server, "log", channel=ann, caller=ANN)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert len(ann.heard) == 1
    assert "bad logged: mind the\\ngap" in caplog.text


# -- deadlines --------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_not_answered_in_time_is_cancelled_at_the_server() -> None:
    async with behind(bad(timeout=0.2)) as server:
        with pytest.raises(ResponseTimeout, match=r"tools/call within 0\.2 s"):
            await call(server, "never")
        assert len(json.loads(await call(server, "seen", timeout=5))["cancelled"]) == 1
        assert server.in_flight == 0


async def test_progress_is_news_but_not_for_ever() -> None:
    class Waiting(Person):
        async def emit(self, notice: Notification) -> None:
            await super().emit(notice)
            await skip(20)

    async with behind(bad(timeout=30, max_timeout=70)) as server:
        steps = {"steps": 3, "seconds": 0}
        assert await call(server, "climb", steps, channel=Waiting(), wants_progress=True) == "up"
        with pytest.raises(ResponseTimeout):
            await call(server, "climb", {"steps": 20, "seconds": 0.1}, channel=Waiting(), wants_progress=True)


async def test_the_clock_stands_and_the_slot_is_lent_while_somebody_is_asked() -> None:
    class Slow(Person):
        async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
            await skip(50)
            taken.append(server.in_flight)
            return await super().ask(asks)

    taken: list[int] = []
    async with behind(bad(timeout=30, concurrency=1)) as server:
        assert "accept" in await call(server, "ask", channel=Slow({"action": "accept"}))
        assert taken == [0]
        assert server.in_flight == 0


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server() -> None:
    async with behind(bad()) as server:
        waiting = asyncio.create_task(call(server, "never"))
        await until(lambda: server.in_flight == 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert len(json.loads(await call(server, "seen"))["cancelled"]) == 1


async def test_too_many_who_wait_are_sent_away() -> None:
    async with behind(bad(concurrency=2)) as server:
        calls = [asyncio.create_task(call(server, "never")) for _ in range(2 + 256)]
        await until(lambda: server.in_flight == 2)
        with pytest.raises(Busy, match="'bad' is busy, and 256 calls wait"):
            await call(server, "echo")
        for one in calls:
            one.cancel()
        await asyncio.wait(calls)
        assert server.in_flight == 0
        assert await call(server, "echo", {"text": "x"}) == "x"


# -- servers that misbehave -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "state", "problem"),
    [
        ("silent", "failed", r"no response to initialize within 2 s"),
        ("never_lists", "failed", r"no response to tools/list within 2 s"),
        ("dies", "failed", "ended with exit code 1, saying: I would rather not"),
    ],
)
async def test_a_server_that_does_not_begin_is_shown_and_comes_back(
    how: str, state: str, problem: str, tmp_path: Path
) -> None:
    well = tmp_path / "well"
    async with both(bad(), bad(how, well, connect_timeout=2.0)) as (neighbour, server):
        assert (server.state, server.catalog, server.pending) == (state, None, False)
        assert re.search(problem, server.problem), server.problem
        assert await call(neighbour, "echo", {"text": "unharmed"}) == "unharmed"
        well.touch()
        await until(lambda: server.state == "ready")
        assert "echo" in server.tools
        assert server.problem == server.describe_problem == ""
        assert await call(server, "echo", {"text": "back"}) == "back"


async def test_a_process_is_logged_when_it_is_started_and_not_when_the_attempt_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "pegboard")
    downstream = Watched(bad("silent", connect_timeout=600.0))
    async with nothing_left():
        downstream.start()
        try:
            await until(lambda: "was started; variables:" in caplog.text)
            assert downstream.pending
        finally:
            await downstream.stop()


async def test_only_a_server_that_was_there_is_said_to_be_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pegboard")
    well = tmp_path / "well"
    async with behind(bad("dies", well)) as downstream:
        well.touch()
        await until(lambda: downstream.state == "ready")
        assert "bad: is ready" in caplog.text
        assert "bad: is back" not in caplog.text
        with pytest.raises(ConnectionLost):
            await call(downstream, "die")
        await until(lambda: "bad: is back" in caplog.text)


async def test_a_problem_is_logged_once_though_its_text_has_another_number_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.0)
    well, code = tmp_path / "well", "import os, sys; sys.exit(f'see the log {os.getpid()}')"
    async with behind(bad(command=(sys.executable, "-S", "-c", code))) as downstream:
        await until(lambda: downstream.spawns > 5)
    assert caplog.text.count("saying: see the log") == 1
    caplog.clear()
    async with behind(bad("dies", well)) as downstream:
        well.touch()
        await until(lambda: downstream.state == "ready")
        well.unlink()
        with pytest.raises(ConnectionLost):
            await call(downstream, "die")
        # It was there in between: this is news.
        await until(lambda: caplog.text.count("ended with exit code") >= 2)


async def test_a_server_that_needs_longer_to_start_is_given_more_time_until_it_is_there() -> None:
    async with behind(bad("slow", connect_timeout=0.2)) as server:
        assert server.state == "failed"
        # It may have tried again by now.
        assert re.search(
            r"; next attempt with a connectTimeout of (0\.4|0\.8|1\.6) s; set more if it needs longer to start$",
            server.problem,
        )
        with pytest.raises(ServerFault) as refused:
            await call(server, "echo", {"text": "x"}, timeout=0.1)
        assert "connectTimeout" not in server.explain(refused.value)
        await until(lambda: server.state == "ready")
        assert server.spawns > 2
        assert await call(server, "echo", {"text": "there"}) == "there"


async def test_a_server_that_never_starts_is_given_a_minute_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert supervisor.MAX_START_SECONDS == 60
    monkeypatch.setattr(supervisor, "MAX_START_SECONDS", 0.15)
    async with behind(bad("silent", connect_timeout=0.05)) as server:
        await until(lambda: "with a connectTimeout of 0.15 s" in server.problem)
        await until(lambda: server.spawns > 4)
        assert "with a connectTimeout of 0.15 s" in server.problem
    async with behind(bad("silent", connect_timeout=0.2)) as server:
        assert "with a connectTimeout of 0.2 s" in server.problem


async def test_a_long_start_attempt_does_not_count_as_stable_uptime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STEADY_SECONDS", 0.01)
    counted: list[int] = []
    pause = supervisor.Supervisor._pause

    async def note(self: supervisor.Supervisor, failures: int, problem: Any) -> None:
        counted.append(failures)
        await pause(self, failures, problem)

    monkeypatch.setattr(supervisor.Supervisor, "_pause", note)
    async with behind(bad("silent", connect_timeout=0.05)):
        await until(lambda: len(counted) == 3)
    assert counted == [1, 2, 3]


async def test_a_problem_is_logged_in_the_letters_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    script = "import sys; print('─' * 80, file=sys.stderr); sys.exit('Kein Schlüssel\\x1b[2J')"
    async with behind(ServerConfig(name="x", kind="stdio", command=(sys.executable, "-c", script))):
        logged = [record.getMessage() for record in caplog.records if record.name == "pegboard.gateway"]
    assert logged[0].endswith("ended with exit code 1, saying: Kein Schlüssel")


async def test_a_program_that_is_not_there_is_named() -> None:
    async with behind(ServerConfig(name="x", kind="stdio", command=("no-such-program",))) as server:
        assert server.state == "failed"
        assert "there is no program 'no-such-program'" in server.problem
        with pytest.raises(Unreachable):
            await call(server, "echo")
        assert server.spawns == 0


async def test_malformed_tools_are_left_out_and_their_siblings_stay() -> None:
    async with behind(bad("lies")) as server:
        assert server.catalog is not None
        assert server.tools[:2] == ["echo", "never"]
        assert len(server.catalog.dropped) == 12
        assert await call(server, "echo", {"text": "well"}) == "well"


async def test_a_list_without_end_is_cut_and_that_is_said() -> None:
    async with behind(bad("floods")) as server:
        assert server.catalog is not None
        assert len(server.tools) == 10_000
        assert any("10000" in told for told in server.catalog.dropped)


async def test_answers_that_no_server_should_give_cost_their_call_alone(tmp_path: Path) -> None:
    async with behind(bad(timeout=0.5)) as server:
        pid = await call(server, "pid", timeout=5)
        assert await call(server, "twice", timeout=5) == "first"
        with pytest.raises(MessageTooLong):
            await call(server, "huge", timeout=30)
        with pytest.raises(MalformedMessage):
            await call(server, "null", timeout=5)
        assert await call(server, "flood", timeout=30) == "flooded"
        for name in ("never", "stranger", "garbled"):
            with pytest.raises(ResponseTimeout):
                await call(server, name)
        go = tmp_path / "go"
        with pytest.raises(ResponseTimeout):
            await call(server, "late", {"file": str(go)})
        go.touch()
        assert await call(server, "pid", timeout=5) == pid
        assert (server.spawns, server.state) == (1, "ready")


async def test_a_flood_is_not_kept() -> None:
    async with behind(bad()) as server:
        tracemalloc.start()
        try:
            await call(server, "flood")
            with pytest.raises(MessageTooLong):
                await call(server, "huge")
            kept, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # Of a line of 50 MiB no more than 16 are held, and they are counted once more while they are put together.
    assert most < 40 * 2**20
    assert kept < 4 * 2**20


async def test_a_server_that_dies_in_a_call_is_back_without_being_called() -> None:
    async with behind(bad()) as server:
        before = server.catalog
        waiting = asyncio.create_task(call(server, "never"))
        # A request that the dead process never got would be sent to the next one.
        await until(lambda: server.in_flight == 1)
        with pytest.raises(ConnectionLost, match="exit code 3"):
            await call(server, "die")
        with pytest.raises(ConnectionLost):
            await waiting
        await until(lambda: server.spawns == 2 and server.state == "ready")
        assert server.catalog is before
        assert await call(server, "echo", {"text": "x"}) == "x"
        assert server.spawns == 2


async def test_a_killed_server_serves_the_next_call_at_once() -> None:
    async with behind(bad()) as server:
        os.kill(int(await call(server, "pid")), signal.SIGKILL)
        await until(lambda: server.state != "ready" or server.spawns == 2)
        assert await call(server, "echo", {"text": "x"}) == "x"
        assert server.spawns == 2


async def test_a_hanging_server_is_detected_and_restarted() -> None:
    async with behind(bad(timeout=0.2, connect_timeout=2.0)) as server:
        with pytest.raises(ResponseTimeout):
            await call(server, "sulk")
        await until(lambda: server.spawns >= 2 and server.state == "ready")
        assert await call(server, "echo", {"text": "x"}, timeout=5) == "x"


async def test_a_server_that_is_down_fails_at_once_and_not_once_a_process() -> None:
    async with behind(bad("dies", Path("/nowhere"))) as server:
        spawned = server.spawns
        said = await asyncio.gather(*(call(server, "echo") for _ in range(50)), return_exceptions=True)
        assert {type(problem) for problem in said} <= {Unreachable, ConnectionLost}
        assert server.spawns <= spawned + 2


# -- changes ----------------------------------------------------------------------------------------------------------


async def test_simultaneous_changes_cause_one_listing_and_are_reported_only_if_the_list_differs() -> None:
    async with behind(bad()) as server:
        assert len(server.digests) == 1
        await call(server, "grow", {"name": "new", "times": 50})
        await until(lambda: "new" in server.tools)
        assert len(server.digests) == 2
        changes = len(server.changes)
        await call(server, "grow", {"name": "new"})
        # The same tool twice: the list is another, and what is shown is not, but for what was left out.
        await until(lambda: len(server.digests) == 3)
        assert len(server.changes) == changes + 1


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_only_subscribed_resources_are_reported(version: str) -> None:
    async with serving_battery() as url, behind(ServerConfig(name="far", kind="http", url=url, version=version)) as far:
        far.follow(frozenset({"memo://today"}))
        await heard(far, "memo://today")
        far.follow(frozenset({"memo://days/monday"}))
        await heard(far, "memo://days/monday")
        far.updates.clear()
        await call(far, "touch", {"uri": "memo://today"})
        await heard(far, "memo://days/monday")
        assert set(far.updates) == {"memo://days/monday"}
        far.follow(frozenset())


async def test_subscribed_resources_are_reported_again_after_a_restart() -> None:
    others = children()
    async with behind(battery()) as server:
        server.follow(frozenset({"memo://today"}))
        await heard(server, "memo://today")
        server.updates.clear()
        [pid] = children() - others
        os.kill(int(pid), signal.SIGKILL)
        await until(lambda: server.updates == ["memo://today"])
        server.updates.clear()
        await heard(server, "memo://today")


# -- lazy and idle ----------------------------------------------------------------------------------------------------


async def test_a_lazy_server_waits_until_it_is_needed() -> None:
    async with behind(bad(lazy=True)) as server:
        assert (server.state, server.spawns, server.pending) == ("idle", 0, True)
        assert await call(server, "echo", {"text": "x"}) == "x"
        assert server.spawns == 1
        await server.wait_connected()
        assert (server.state, server.pending) == ("ready", False)


async def test_an_idle_server_is_stopped_and_started_at_the_next_need() -> None:
    others = children()
    async with behind(bad(idle_seconds=600)) as server:
        first = await call(server, "pid")
        await skip(601)
        await until(lambda: server.state == "idle")
        await until(lambda: children() <= others)
        assert "echo" in server.tools
        assert await call(server, "pid") != first
        assert server.spawns == 2


# -- logging in -------------------------------------------------------------------------------------------------------


async def test_a_server_that_wants_a_login_says_so_and_opens_no_browser() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.target.startswith("/.well-known"):
            reply(writer, {}, "404 Not Found")
        else:
            reply(writer, {}, "401 Unauthorized", WWW_Authenticate="Bearer")

    async with faking(answer) as fake:
        config = ServerConfig(name="locked", kind="http", url=fake.url)
        async with behind(config) as server:
            assert server.state == "needs_login"
        async with behind(config, login=Logins().auth) as server:
            assert server.state == "needs_login"
            with pytest.raises(Unauthorized) as refused:
                await call(server, "x")
            assert "needs a login" in server.explain(refused.value)
            assert "127.0.0.1" not in server.explain(refused.value)


# -- telling and ending -----------------------------------------------------------------------------------------------


async def test_a_board_that_cannot_start_is_shown_by_the_kind_of_its_fault_alone() -> None:
    class Broken(Board):
        async def start(self) -> None:
            raise ValueError("hunter2")

    async with behind(ServerConfig(name="near", kind="board", board="x"), board=Broken("b")) as near:
        assert near.state == "failed"
        assert "cannot be started, ValueError" in near.problem
        assert "hunter2" not in near.problem


@pytest.mark.parametrize("kind", [Unreachable, ConnectionLost, ResponseTimeout, MalformedMessage, ServerFault])
def test_a_fault_is_explained_without_what_is_ours(kind: type[ServerFault]) -> None:
    secret = "npx -y server --token hunter2: http://10.0.0.7/mcp /home/me"
    told = Watched(bad()).explain(kind(secret))
    assert told.startswith("The server 'bad' ")
    assert not any(part in told for part in ("hunter2", "10.0.0.7", "/home", "npx"))


@pytest.mark.parametrize("how", ["well", "silent", "never_lists", "dies"])
async def test_a_server_is_let_go_whatever_it_does(how: str) -> None:
    others = children()
    async with nothing_left():
        server = Watched(bad(how))
        server.start()
        calls = [asyncio.create_task(call(server, "never")) for _ in range(3)]
        await until(lambda: server.spawns > 0 or bool(children() - others))
        await server.stop()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(problem, ServerFault) for problem in done), done
        with pytest.raises(Unreachable):
            await call(server, "echo")
        assert server.state == "stopped"


def serving_battery() -> Any:
    """The battery on a port, with tools that change it."""
    spec = importlib.util.spec_from_file_location("battery_behind", BATTERY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return served(module.board)


async def heard(server: Watched, uri: str) -> None:
    """Touch a resource until that is told: a subscription begins in its own time."""
    before = len(server.updates)
    while len(server.updates) == before:
        await call(server, "touch", {"uri": uri})
        for _ in range(20):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("kind", "url", "version"),
    [
        ("http", "http://127.0.0.1:{}/mcp", MODERN),
        ("http", "http://127.0.0.1:{}/mcp", LEGACY),
        ("websocket", "ws://127.0.0.1:{}/ws", None),
    ],
)
async def test_a_server_elsewhere_that_was_killed_is_used_again_when_it_is_back(
    kind: Any, url: str, version: str | None
) -> None:
    def start(port: int) -> HttpChild:
        return processes.enter_context(HttpChild("--port", str(port), target=BATTERY))

    async with nothing_left():
        with ExitStack() as processes:
            far = await asyncio.to_thread(start, 0)
            config = ServerConfig(name="far", kind=kind, url=url.format(far.port), version=version)
            async with kept(config) as server:
                before = server.catalog
                assert await call(server, "add", {"a": 1, "b": 1}) == "2"
                far.process.kill()
                await asyncio.to_thread(far.wait)
                with pytest.raises(ServerFault):
                    await call(server, "add", {"a": 1, "b": 1})
                assert server.catalog is before
                await asyncio.to_thread(start, far.port)
                await until(lambda: server.state == "ready")
                said: list[str] = []
                while not said:
                    # A call may meet the old connection, or the pause after its failure.
                    with suppress(ServerFault):
                        said.append(await call(server, "add", {"a": 1, "b": 1}))
                    await asyncio.sleep(0.02)
                assert said == ["2"]
                assert server.catalog is before
