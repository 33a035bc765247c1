"""Servers that lie, answer late, twice, never, to somebody else, with far too much or with no text: through a whole gateway.

What each does to one downstream is tried in test_downstream.py. Here: the caller is told by the contract, nothing else
is lost, and the other servers do not notice.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import Client, Gateway
from pegboard.call import Json
from pegboard.config.gateway_config import ServerConfig
from pegboard.errors import Refusal
from tests.client.process_leftovers import nothing_left
from tests.gateway.one_server import bad
from tests.gateway.test_gateway import calculator, configured, server
from tests.loops import skip
from tests.server.stream_client import serve
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here
from tests.waiting import until

pytestmark = pytest.mark.process

ERAS = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])


@asynccontextmanager
async def beside(
    how: str = "well", version: str | None = None, **options: Any
) -> AsyncIterator[tuple[Gateway, Client]]:
    """A gateway over a bad server and a good one, and a client of it over HTTP."""
    made = Gateway(configured(bad(how, **options), server("calc")), boards={"calc": calculator()})
    async with nothing_left():
        await made.start()
        try:
            async with await serve(made) as house:
                url = f"http://127.0.0.1:{house.server.port}/mcp"
                async with Client(url, version=version) as client:
                    yield made, client
        finally:
            await made.stop()


async def is_well(client: Client) -> None:
    """The server beside it answers as ever."""
    assert (await client.call("dev__calc__add", {"a": 1, "b": 1})).text == "2"


@ERAS
@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("never", "did not answer in time"),
        ("stranger", "did not answer in time"),
        ("huge", "sent a response that is too large"),
        ("garbled", ""),
        ("null", ""),
        ("die", ""),
    ],
)
async def test_an_invalid_answer_fails_only_its_own_call_with_the_documented_error(
    tool: str, why: str, version: str
) -> None:
    async with beside("well", version, timeout=30) as (made, client):
        failing = asyncio.ensure_future(client.call(f"dev__bad__{tool}", {}))
        # While it fails, and after.
        await is_well(client)
        if tool in ("never", "stranger", "garbled"):
            await until(lambda: made.downstreams[0].in_flight == 1)
            await skip(40)
        result = await failing
        assert result.is_error
        assert result.text.startswith(f"[dev/bad/{tool}] Error: "), result.text
        assert why in result.text
        assert "bad_server" not in result.text
        assert len(result.text) < 500
        await is_well(client)
        assert (await client.call("dev__bad__echo", {"text": "here again"})).text == "here again"


@ERAS
async def test_a_second_response_is_ignored(version: str) -> None:
    async with beside("well", version) as (_, client):
        assert [(await client.call("dev__bad__twice", {})).text for _ in range(5)] == ["first"] * 5
        said = await asyncio.gather(*(client.call("dev__bad__echo", {"text": str(n)}) for n in range(32)))
        assert [result.text for result in said] == [str(n) for n in range(32)]


@ERAS
async def test_a_late_response_is_ignored_and_a_timely_one_is_awaited(version: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with beside("well", version, timeout=30) as (made, client):
        calling = asyncio.ensure_future(client.call("dev__bad__late", {"file": str(go)}))
        await until(lambda: made.downstreams[0].in_flight == 1)
        await skip(40)
        late = await calling
        assert late.text.startswith("[dev/bad/late] Error: ")
        timely = [asyncio.ensure_future(client.call("dev__bad__late", {"file": str(go)})) for _ in range(3)]
        await until(lambda: made.downstreams[0].in_flight == 3)
        go.touch()
        assert [(await call).text for call in timely] == ["late"] * 3
        await is_well(client)


async def test_a_flood_of_invalid_messages_does_not_lose_any_response() -> None:
    async with beside() as (_, client):
        flooded = asyncio.ensure_future(client.call("dev__bad__flood", {}))
        await is_well(client)
        assert (await flooded).text == "flooded"


async def test_definitions_that_are_none_are_left_out_and_their_siblings_stay(caplog: pytest.LogCaptureFixture) -> None:
    async with beside("lies") as (_, client):
        names = [tool["name"] for tool in await client.list_tools()]
        assert "dev__bad__echo" in names
        assert {"dev__bad__no_schema", "dev__bad__an_array", "dev__bad__a_string"}.isdisjoint(names)
        assert len(names) == len(set(names))
        await is_well(client)
    assert "no_schema" in caplog.text


async def test_invalid_schemas_are_reported_and_output_schemas_are_enforced(caplog: pytest.LogCaptureFixture) -> None:
    async with beside("crooked") as (_, client):
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        assert {"dev__bad__no_such_type", "dev__bad__no_such_pattern"}.isdisjoint(tools)
        assert "no_such_type" in caplog.text
        # What a server says of its output is checked; what is no schema is not passed on.
        broken = await client.call("dev__bad__promise", {})
        assert broken.is_error
        # As a tool of our own that breaks its promise.
        assert broken.text.startswith("dev__bad__promise failed, error id ")
        assert "secret" not in broken.text
        assert "outputSchema" in tools["dev__bad__promise"]
        assert "outputSchema" not in tools["dev__bad__vague"]
        assert (await client.call("dev__bad__vague", {})).structured == {"any": 1}
        assert (await client.call("dev__bad__untyped", {})).text.startswith("[dev/bad/untyped] Error: ")
        await is_well(client)


async def test_a_schema_whose_references_multiply_is_left_out_and_its_siblings_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with beside("crooked") as (_, client):
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        assert "dev__bad__doubling" not in tools
        assert "outputSchema" not in tools["dev__bad__doubled"]
        assert (await client.call("dev__bad__doubled", {})).structured == {"a": "x"}
        await is_well(client)
    assert (
        "dev/bad: dev__bad__doubling: schema at its root: checking one value takes up to 1,073,741,823" in caplog.text
    )
    assert "the outputSchema of 'dev__bad__doubled' is invalid and was removed" in caplog.text


@ERAS
@pytest.mark.parametrize("how", ["dies", "silent", "never_lists"])
async def test_a_server_that_does_not_start_delays_no_other_server_and_is_reported(how: str, version: str) -> None:
    async with beside(how, version, connect_timeout=0.5, timeout=0.5) as (made, client):
        listed = await client.request("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["dev__calc__add", "dev__calc__say"]
        await is_well(client)
        await until(lambda: made.downstreams[0].state == "failed")
        down: Json = (await client.request("tools/list"))["_meta"]["dev.pegboard/servers"]
        assert list(down) == ["dev/bad"]
        assert "bad_server" not in str(down)


async def test_a_server_is_started_once_for_all_calls() -> None:
    async with beside() as (made, client):
        pids = {(await client.call("dev__bad__pid", {})).text for _ in range(5)}
        assert len(pids) == 1
        assert made.downstreams[0].spawns == 1


async def test_a_program_that_echoes_its_input_is_not_accepted_as_a_server(caplog: pytest.LogCaptureFixture) -> None:
    echo = ServerConfig(name="cat", kind="stdio", command=("cat",), connect_timeout=1.0)
    made = Gateway(configured(echo, server("calc")), boards={"calc": calculator()})
    async with nothing_left(), Client(made) as client:
        await until(lambda: made.downstreams[0].state == "failed")
        await is_well(client)
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("tool", ["mute", "deaf"])
async def test_a_process_that_closes_a_pipe_and_lives_on_is_replaced_at_once(tool: str) -> None:
    async with beside() as (made, client):
        await client.list_tools()
        assert (await client.call(f"dev__bad__{tool}", {})).text == f"{tool} from now on"
        await until(lambda: made.downstreams[0].spawns == 2 and made.downstreams[0].state == "ready")
        assert (await client.call("dev__bad__echo", {"text": "a new process"})).text == "a new process"


@ERAS
async def test_a_call_that_was_never_sent_is_not_said_to_be_lost(version: str, tmp_path: Path) -> None:
    well = tmp_path / "well"
    well.touch()
    async with beside("dies", version, well=well) as (_, client):
        await client.list_tools()
        well.unlink()
        lost = await client.call("dev__bad__die", {})
        assert lost.text == (
            "[dev/bad/die] Error: The server 'bad' was lost before it answered; it may have processed the request."
        )
        not_sent = await client.call("dev__bad__echo", {})
        assert not_sent.text == (
            "[dev/bad/echo] Error: The server 'bad' cannot be reached now; the gateway keeps trying."
        )


@ERAS
async def test_a_call_to_a_server_that_never_started_says_that_it_is_unavailable(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    unavailable = "The server 'bad' cannot be reached now; the gateway keeps trying."
    async with beside("dies", version) as (_, client):
        result = await client.call("dev__bad__echo", {"text": "x"})
        assert result.is_error
        assert result.text == f"[dev/bad/echo] Error: {unavailable}"
        used = await client.call("workbench_use_tool", {"tool_name": "dev__bad__echo"})
        assert used.is_error
        assert used.text == f"[dev/bad/echo] Error: {unavailable}"
        await is_well(client)
    assert "I would rather not" in caplog.text


@pytest.mark.parametrize(
    ("how", "tool", "reason"),
    [
        ("lies", "no_schema", "its definition has no inputSchema of type object"),
        ("lies", "described", "its definition has a description of the wrong type"),
        ("lies", "big", "its definition is larger than 1048576 bytes"),
        ("crooked", "no_such_type", "its schema cannot be used"),
        ("crooked", "doubling", "its schema cannot be used: schema at its root: checking one value takes up to"),
    ],
)
async def test_a_tool_that_is_left_out_is_answered_as_withheld_with_the_reason(
    how: str, tool: str, reason: str
) -> None:
    async with beside(how) as (_, client):
        await client.list_tools()
        with pytest.raises(Refusal, match=f"^Tool 'dev__bad__{tool}' is withheld: {reason}"):
            await client.call(f"dev__bad__{tool}", {})
        assert (await client.call("dev__bad__echo", {"text": "the others stay"})).text == "the others stay"


@ERAS
async def test_an_error_that_a_server_returns_names_its_tool(version: str) -> None:
    async with beside("well", version) as (_, client):
        with pytest.raises(Refusal) as refused:
            await client.call("dev__bad__refuse", {})
        assert refused.value.message == "[dev/bad/refuse] Error: the quota is used up"
