"""Rate accounts in a real Valkey: shared by processes, exact, and with a defined outcome when it is gone."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import redis.asyncio

from pegboard.errors import LimitReached, SetupError
from pegboard.middleware import RateLimit, RedisRates
from pegboard.middleware.limits.rate_limit import StoreUnavailable
from pegboard.testing import make_call, run_alone
from tests.middleware.valkey import valkey

pytestmark = pytest.mark.peer

DAY = 86_400_000_000
WORKER = Path(__file__).with_name("rate_worker.py")


def test_two_worker_processes_let_exactly_the_allowed_number_through() -> None:
    limit, calls = 57, 100
    with valkey() as server:
        workers = [
            subprocess.Popen(
                [sys.executable, WORKER, server.url, str(limit), str(calls)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        try:
            for worker in workers:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "ready\n"
            # Both are ready before either begins, so that they contend.
            passed = [int(out) for out in _go(workers)]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    assert sum(passed) == limit


def _go(workers: list[subprocess.Popen[str]]) -> list[str]:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return [worker.communicate(timeout=300)[0] for worker in workers]


async def test_the_shared_store_keeps_the_contract() -> None:
    with valkey() as server:
        store = RedisRates(server.url, timeout=10)
        try:
            assert [await store.take("k", DAY, 3) for _ in range(3)] == [0, 0, 0]
            wait = await store.take("k", DAY, 3)
            assert DAY - 60_000_000 < wait <= DAY
            # Not charged: the wait has not grown by another price.
            assert await store.take("k", DAY, 3) <= wait
            assert await store.take("other", DAY, 3) == 0
            # Prices that one server second pays for: the account is free again by the server's clock.
            assert await store.take("short", 1, 1) == 0
            assert await store.take("short", 1, 1) == 0
        finally:
            await store.close()


async def test_an_account_expires_when_nothing_is_owed_and_long_keys_are_short_in_the_store() -> None:
    with valkey() as server:
        client = redis.asyncio.Redis.from_url(server.url)
        store = RedisRates(client, timeout=10)
        await store.take("k" * 5000, 2_000_000, 5)
        [key] = await client.keys()
        assert len(key) < 200
        assert 0 < await client.pttl(key) <= 2000
        await store.close()
        assert await client.ping(), "a client that was given is not closed"
        await client.aclose()


async def test_limits_with_a_name_share_their_accounts_and_others_do_not() -> None:
    with valkey() as server:
        store = RedisRates(server.url, timeout=10)
        one, same = (RateLimit(1, "day", store=store, name="searches") for _ in range(2))
        other = RateLimit(1, "day", store=store, name="writes")
        assert [(await run_alone(limit)).ran for limit in (one, same, other)] == [1, 0, 1]
        await store.close()


@pytest.mark.parametrize(("fail", "ran"), [("open", 1), ("closed", 0)])
async def test_a_killed_server_has_the_outcome_that_was_set_and_comes_back(
    fail: str, ran: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pegboard.limits")
    with valkey() as server:
        store = RedisRates(server.url, timeout=10, pause=0)
        limit = RateLimit(1000, "day", store=store, fail=fail)  # type: ignore[arg-type]
        assert (await run_alone(limit)).exception is None
        server.kill()
        for _ in range(3):
            run = await run_alone(limit)
            assert run.ran == ran
            assert (run.exception is None) == (fail == "open")
        server.start()
        assert (await run_alone(limit)).exception is None
        await store.close()
    assert limit.unavailable == 3
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


async def test_a_server_that_hangs_is_waited_for_once_and_left_alone_for_a_while() -> None:
    with valkey() as server:
        store = RedisRates(server.url, timeout=1, pause=3600)
        await store.take("k", 1, 1)
        server.freeze()
        with pytest.raises(StoreUnavailable, match="no response in 1 s"):
            await store.take("k", 1, 1)
        # To ask the server each time would take longer than a test may.
        for _ in range(200):
            with pytest.raises(StoreUnavailable):
                await store.take("k", 1, 1)
        server.thaw()
        await store.close()


async def test_a_refusal_over_the_shared_store_reads_like_any_other() -> None:
    with valkey() as server:
        store = RedisRates(server.url, timeout=10)
        limit = RateLimit(1, "hour", store=store)
        await run_alone(limit, call=make_call("search"))
        run = await run_alone(limit, call=make_call("search"))
        await store.close()
    assert isinstance(run.exception, LimitReached)
    assert run.exception.retry_after is not None
    assert 3500 < run.exception.retry_after <= 3600
    assert run.exception.message.startswith("search was not run: the limit of 1 call per hour is reached. Try again")


def test_without_the_extra_the_address_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(SetupError, match=r"pegboard\[redis\]") as raised:
        RedisRates("redis://user:hunter2@example.test/0")
    assert "hunter2" not in str(raised.value)
