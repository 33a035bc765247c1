"""Quotas over HTTP: rejected before a call is accepted, per caller, over all replicas, and fair to the others."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from pegboard import Board, Gateway, Limits, Principal, Quota, Quotas
from pegboard.testing import fixed_tokens
from tests.auth.serving import HELLO, Site, bearer, legacy_message, modern_call, serving, write_request
from tests.middleware.valkey import Valkey, valkey
from tests.stores.store_urls import address
from tests.waiting import SOON, until

GREETING: dict[str, Any] = HELLO

TOKENS = {
    "ann": Principal("ann"),
    "bob": Principal("bob"),
    "lead": Principal("lee", roles=frozenset({"lead"})),
    "flood": Principal("flood"),
}


def echo_board(limits: Limits | None = None, **quotas: Any) -> Board:
    board = Board("quotas", auth=fixed_tokens(TOKENS), limits=limits, quotas=Quotas(**quotas))

    @board.tool
    async def echo(text: str = "hello") -> str:
        return text

    return board


async def statuses(site: Site, token: str | None, count: int, **headers: str) -> list[int]:
    body, own = modern_call("echo", token)
    return [(await site.ask("POST", "/mcp", body, {**own, **headers})).status for _ in range(count)]


async def test_a_caller_beyond_its_rate_is_told_when_to_retry_and_others_are_served() -> None:
    async with serving(echo_board(everyone=Quota(rate="3/hour"), roles={"lead": Quota(rate=None)})) as site:
        assert await statuses(site, "ann", 4) == [200, 200, 200, 429]
        refused = await site.call("echo", "ann")
        assert 1000 < int(refused.headers["retry-after"]) <= 1200
        assert refused.headers["ratelimit-policy"] == '"rate";q=3;w=3600'
        assert refused.headers["ratelimit"].startswith('"rate";r=0;t=')
        assert refused.json["id"] == 1
        assert refused.json["error"]["data"]["reason"] == "rate"
        assert "3 requests per hour" in refused.json["error"]["message"]
        assert await statuses(site, "bob", 3) == [200] * 3
        assert await statuses(site, "lead", 9) == [200] * 9


async def test_a_response_says_how_much_is_left_once_it_is_little() -> None:
    async with serving(echo_board(everyone=Quota(rate="4/hour"))) as site:
        said = [(await site.call("echo", "ann")).headers.get("ratelimit") for _ in range(4)]
        assert said[:3] == [None] * 3
        assert said[3] is not None
        assert re.fullmatch(r'"rate";r=0;t=3[56]\d\d', said[3])


async def test_the_rate_holds_at_every_endpoint_together() -> None:
    async with serving(echo_board(everyone=Quota(rate="5/hour"))) as site:
        opened = await site.ask("POST", "/mcp", *legacy_message("initialize", "ann", **GREETING))
        session = opened.headers["mcp-session-id"]
        legacy = legacy_message("tools/call", "ann", session, name="echo", arguments={})
        assert (await site.ask("POST", "/mcp", *legacy)).status == 200
        body, headers = modern_call("echo", "ann")
        batch = b"[" + body + b"," + body.replace(b'"id": 1', b'"id": 2') + b"]"
        answers = await site.ask("POST", "/rpc", batch, {"Authorization": headers["Authorization"]})
        assert ["result" in answer for answer in answers.json] == [True, True]
        assert (await site.call("echo", "ann")).status == 200
        for path, sent in (("/mcp", legacy), ("/mcp", (body, headers))):
            assert (await site.ask("POST", path, *sent)).status == 429
        async with connect(f"ws://127.0.0.1:{site.port}/ws", additional_headers=bearer("ann")) as socket:
            await socket.send(body.decode())
            error = json.loads(await asyncio.wait_for(socket.recv(), SOON))["error"]
        assert error["data"]["reason"] == "rate"
        assert (await site.ask("POST", "/mcp", *legacy_message("initialize", "ann", **GREETING))).status == 429


async def test_bytes_and_tokens_have_quotas_too() -> None:
    async with serving(echo_board(everyone=Quota(bytes="10KB/hour"))) as site:
        assert (await site.call("echo", "ann", text="x" * 9_000)).status == 200
        refused = await site.call("echo", "ann", text="x" * 9_000)
        assert (refused.status, refused.json["error"]["data"]["reason"]) == (429, "bytes")
    async with serving(echo_board(everyone=Quota(tokens="50/hour"))) as site:
        assert (await site.call("echo", "ann", text="word " * 200)).status == 200
        refused = await site.call("echo", "ann", text="more")
        assert (refused.status, refused.json["error"]["data"]["reason"]) == (429, "tokens")
        assert (await site.call("echo", "bob", text="more")).status == 200


async def test_a_caller_that_cancels_and_repeats_pays_for_each_request() -> None:
    board, begun = echo_board(everyone=Quota(rate="5/hour")), 0

    @board.tool
    async def wait() -> str:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()
        return "never"

    async with serving(board) as site:
        body, headers = modern_call("wait", "ann")
        for number in range(1, 6):
            line = await site.connect()
            await line.say(write_request("POST", "/mcp", body, headers))
            await until(lambda number=number: begun == number)  # type: ignore[misc]  # the number of this turn
            line.hang_up()
        account = board.accounts.find("ann")
        assert account is not None
        await until(lambda: account.held["calls"] == 0)
        assert await statuses(site, "ann", 1) == [429]


async def test_sessions_of_a_caller_beyond_its_quota_replace_its_own_idle_ones() -> None:
    async with serving(echo_board(everyone=Quota(sessions=2))) as site:

        async def opened(token: str) -> str:
            reply = await site.ask("POST", "/mcp", *legacy_message("initialize", token, **GREETING))
            assert reply.status == 200
            return reply.headers["mcp-session-id"]

        bobs = await opened("bob")
        sessions = [await opened("ann") for _ in range(4)]
        pings = [(await site.ask("POST", "/mcp", *legacy_message("ping", "ann", one))).status for one in sessions]
        assert pings == [404, 404, 200, 200]
        assert (await site.ask("POST", "/mcp", *legacy_message("ping", "bob", bobs))).status == 200


async def test_streams_that_are_kept_open_are_limited() -> None:
    async with serving(echo_board(everyone=Quota(streams=2))) as site:
        url, headers = f"ws://127.0.0.1:{site.port}/ws", bearer("ann")
        async with connect(url, additional_headers=headers), connect(url, additional_headers=headers):
            with pytest.raises(InvalidStatus) as refused:
                await connect(url, additional_headers=headers)
            assert refused.value.response.status_code == 429
            assert refused.value.response.headers["retry-after"] == "30"
            async with connect(url, additional_headers=bearer("bob")):
                pass
        async with connect(url, additional_headers=headers):
            pass


async def test_rejections_that_are_held_back_take_no_room_from_others() -> None:
    board = echo_board(Limits(calls=3), everyone=Quota(rate="30/hour"))
    async with serving(board) as site:
        assert await statuses(site, "flood", 30) == [200] * 30
        assert await statuses(site, "flood", 20) == [429] * 20
        body, headers = modern_call("echo", "flood")
        lines = [await site.connect() for _ in range(20)]
        for line in lines:
            await line.say(write_request("POST", "/mcp", body, headers))
        assert await statuses(site, "ann", 10) == [200] * 10
        assert [(await line.on_message()).status for line in lines] == [429] * 20
        for line in lines:
            line.hang_up()


# -- anonymous callers -------------------------------------------------------------------------------------------------


def anonymous_board(**quotas: Any) -> Board:
    board = Board("anonymous", quotas=Quotas(**quotas))

    @board.tool
    async def echo(text: str = "hello") -> str:
        return text

    return board


async def test_anonymous_callers_are_counted_by_the_address_that_a_trusted_proxy_states() -> None:
    board = anonymous_board(everyone=Quota(rate="2/hour"))
    async with serving(board, trusted_proxy=["127.0.0.1"]) as site:
        one, two = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "10.9.9.9, 192.0.2.2"}
        assert await statuses(site, None, 3, **one) == [200, 200, 429]
        assert await statuses(site, None, 3, **two) == [200, 200, 429]
        # A client cannot have a new account by stating an address itself.
        forged = {"X-Forwarded-For": "198.51.100.7, 192.0.2.2"}
        assert await statuses(site, None, 1, **forged) == [429]
        assert await statuses(site, None, 5) == [200] * 5, "requests of this machine are not counted"


async def test_without_a_proxy_the_header_means_nothing_and_this_machine_is_not_counted() -> None:
    async with serving(anonymous_board(everyone=Quota(rate="1/hour"))) as site:
        assert await statuses(site, None, 5, **{"X-Forwarded-For": "192.0.2.1"}) == [200] * 5


async def test_a_server_beyond_this_machine_has_generous_defaults_and_one_on_loopback_has_none() -> None:
    public, private = echo_board(), echo_board()
    async with serving(public, host="0.0.0.0", public=True) as site:
        assert await statuses(site, "ann", 1) == [200]
        account = public.accounts.find("ann")
        assert account is not None
        assert account.meters["rate"].limit.per_second >= 100
        assert public.accounts.by_address
    async with serving(private) as site:
        assert await statuses(site, "ann", 1) == [200]
        account = private.accounts.find("ann")
        assert account is not None
        assert account.meters == {}
        assert not private.accounts.by_address


# -- several processes -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


@asynccontextmanager
async def replicas(kind: str, server: Valkey, **quotas: Any) -> AsyncIterator[tuple[Site, Site]]:
    with address(kind, server) as store:
        async with (
            serving(echo_board(**quotas), store=store) as one,
            serving(echo_board(**quotas), store=store) as two,
        ):
            yield one, two


@pytest.mark.process
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_quota_holds_over_two_replicas(kind: str, server: Valkey) -> None:
    async with replicas(kind, server, everyone=Quota(rate="20/hour", calls=4)) as (one, two):
        served = [0, 0]
        for _ in range(15):
            for index, site in enumerate((one, two)):
                served[index] += (await statuses(site, "ann", 1)) == [200]
        assert 18 <= sum(served) <= 20
        assert min(served) > 0
        assert await statuses(one, "bob", 5) == [200] * 5


@pytest.mark.process
async def test_workers_without_a_store_divide_the_quota() -> None:
    board = echo_board(everyone=Quota(rate="20/hour"))
    async with serving(board, workers=4) as site:
        assert (await statuses(site, "ann", 8)).count(200) == 5


# -- fairness ----------------------------------------------------------------------------------------------------------


async def test_a_flood_of_one_principal_delays_another_by_one_turn() -> None:
    """Order of service, not time: the flood has 60 calls in the queue of the only thread when the other one comes."""
    board, order, go = echo_board(Limits(threads=1)), list[str](), threading.Event()

    @board.tool
    def work(name: str) -> str:
        order.append(name)
        go.wait(SOON)
        return name

    async with serving(board) as site:
        calls = [asyncio.create_task(site.call("work", "flood", name="flood")) for _ in range(60)]
        waiting = board._threads._slots
        await until(lambda: waiting.waiting == 59)
        calls.append(asyncio.create_task(site.call("work", "ann", name="ann")))
        calls.append(asyncio.create_task(site.call("work", "bob", name="bob")))
        await until(lambda: waiting.waiting == 61)
        go.set()
        assert {reply.status for reply in await asyncio.gather(*calls)} == {200}
    assert order.index("ann") <= 2
    assert order.index("bob") <= 3
    assert len(order) == 62


# -- a gateway ---------------------------------------------------------------------------------------------------------


async def test_the_file_of_a_gateway_sets_quotas_and_an_edit_applies_at_once(tmp_path: Path) -> None:
    config = tmp_path / "gateway.json"
    file: dict[str, Any] = {
        "toolboxes": {"box": {"description": "d", "names": "plain", "mcpServers": {"here": {"board": "(board 1)"}}}},
        "lock": "off",
        "quotas": {"everyone": {"rate": "2/hour"}, "principals": {"bob": {"rate": None, "tasks": 3}}},
    }
    config.write_text(json.dumps(file))
    gateway = Gateway(config, boards={"(board 1)": anonymous_board()}, auth=fixed_tokens(TOKENS))
    async with serving(gateway) as site:
        await gateway.wait_connected()
        assert await statuses(site, "ann", 3) == [200, 200, 429]
        assert await statuses(site, "bob", 5) == [200] * 5
        body, headers = modern_call("echo", "ann")
        toolbox = await site.ask("POST", "/toolboxes/box/mcp", body, headers)
        assert toolbox.status == 429, "one account for all endpoints"
        file["quotas"] = {"everyone": {"rate": "100/hour"}}
        config.write_text(json.dumps(file))
        gateway.reload_file()
        account = gateway.accounts.find("ann")
        assert account is not None
        await until(lambda: account.quota.rate == "100/hour")
        assert await statuses(site, "ann", 3) == [429] * 3, "what was used stays used"


@pytest.mark.parametrize(
    ("quotas", "problem"),
    [
        ({"everyone": {"rate": "fast"}}, r'quotas.everyone.rate.*"600/minute"'),
        ({"everyone": {"rate": -5}}, "quotas.everyone.rate"),
        ({"everyone": {"calls": -1}}, "quotas.everyone.calls"),
        ({"everyone": {"speed": 3}}, "has no key 'speed'"),
        ({"evryone": {}}, "did you mean 'everyone'"),
        ({"roles": {"batch": 7}}, "quotas.roles.batch"),
    ],
)
def test_a_mistake_in_the_quotas_of_a_file_names_the_key_and_what_is_expected(quotas: Any, problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        Gateway({"toolboxes": {}, "quotas": quotas})
