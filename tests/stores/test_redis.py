"""A store on a server comes through whatever becomes of the connection, and says clearly what it cannot use."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import redis

from pegboard.errors import SetupError, StoreDown
from pegboard.limits import Limits
from pegboard.stores.redis.redis_connection import RedisConnection
from pegboard.stores.redis.redis_store import RedisStore
from tests.middleware.valkey import Valkey, valkey
from tests.stores.backends import started
from tests.waiting import until

LOG = ("session", "stream")


@pytest.fixture
def own() -> Iterator[Valkey]:
    """A server that a test may kill or freeze."""
    with valkey() as running:
        yield running


@pytest.fixture
def client(server: Valkey) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as found:
        yield found


@asynccontextmanager
async def opened(server: Valkey, limits: Limits | None = None) -> AsyncIterator[RedisStore]:
    store = RedisStore(server.url, limits, prefix=f"test-{secrets.token_hex(4)}")
    async with started(store):
        yield store


def keys(client: redis.Redis, store: RedisStore) -> list[bytes]:
    found: list[bytes] = client.keys(store._shared.key("*"))
    return sorted(found)


# -- what is on the server -------------------------------------------------------------------------------------------


async def test_no_session_id_and_no_key_is_on_the_server(server: Valkey, client: redis.Redis) -> None:
    session = secrets.token_hex(16)
    async with opened(server) as store:
        log = session, "stream"
        heard: list[int] = []
        store.logs.watch(log, lambda: heard.append(1))
        await store.logs.open(log, b"about")
        await store.logs.append(log, 1, b"the data")
        await store.records.put(f"session:{session}", b"the value")
        await until(lambda: len(heard) >= 2)
        names = [*keys(client, store), *client.pubsub_channels(store._shared.key("*"))]
        assert len(names) == 4
        assert not any(session.encode() in name for name in names)
        assert not any(session.encode() in client.dump(name) for name in keys(client, store))


async def test_all_keys_of_a_session_share_its_hash_tag(server: Valkey, client: redis.Redis) -> None:
    async with opened(server) as store:
        for stream in "ab":
            await store.logs.open(("session", stream))
            await store.logs.append(("session", stream), 1, b"x")
        names = keys(client, store)
        assert len(names) == 3
        tags = {name[name.index(b"{") : name.index(b"}") + 1] for name in names}
        assert len(tags) == 1


async def test_whatever_it_writes_ends_by_itself_and_no_log_before_its_session(
    server: Valkey, client: redis.Redis
) -> None:
    limits = Limits(session_seconds=100, ended_seconds=10)
    async with opened(server, limits) as store:
        await store.logs.open(LOG)
        await store.logs.append(LOG, 1, b"x")
        await store.records.put("a", b"x", ttl=100)
        await store.leases.renew("holder", 5)
        await store.feeds.publish("feed", b"x", keep=10)
        for name in keys(client, store):
            assert client.pttl(name) > 0, name
        logs = [name for name in keys(client, store) if name.endswith((b"}", b"}:stream")) and b"feed" not in name]
        assert len(logs) == 2
        assert all(client.pttl(name) > 200_000 for name in logs)
        for name in logs:
            client.pexpire(name, 5_000)
        await store.logs.touch("session")
        assert all(client.pttl(name) > 200_000 for name in logs)
        await store.logs.append(LOG, 2, b"x", end=True)
        stream = next(name for name in logs if name.endswith(b"stream"))
        assert 0 < client.pttl(stream) <= 70_000


async def test_a_log_whose_entries_were_evicted_goes_on_counting(server: Valkey, client: redis.Redis) -> None:
    async with opened(server) as store:
        await store.logs.open(LOG)
        for seq in (1, 2):
            await store.logs.append(LOG, seq, b"x")
        client.delete(next(name for name in keys(client, store) if name.endswith(b"stream")))
        assert not await store.logs.append(LOG, 1, b"again")
        assert await store.logs.append(LOG, 3, b"x")
        page = await store.logs.read(LOG, 0, 10)
        assert page is not None
        assert ([entry.seq for entry in page.entries], page.last) == ([3], 3)


async def test_by_the_servers_own_clock_things_end_too(server: Valkey) -> None:
    async with opened(server, Limits(ended_seconds=0.05)) as store:
        await store.records.put("a", b"x", ttl=0.05)
        await store.records.put("b", b"x", ttl=50)
        await store.logs.open(LOG)
        await store.logs.append(LOG, 1, b"x", end=True)
        await store.leases.renew("holder", 0.05)
        for look in (
            lambda: store.records.get("a"),
            lambda: store.logs.read(LOG, 0, 1),
            store.leases.holders,
        ):
            async with asyncio.timeout(10):
                while await look():
                    pass
        assert await store.records.get("b")


async def test_a_process_has_two_connections_however_much_it_watches(own: Valkey) -> None:
    async with opened(own) as store:
        seen: list[int] = []
        for number in range(200):
            store.logs.watch(("session", str(number)), lambda: seen.append(1))
        await asyncio.gather(*(store.records.put(str(number), b"x") for number in range(200)))
        await until(lambda: len(seen) >= 200)
        with redis.Redis.from_url(own.url) as client:
            assert len(client.client_list()) - 1 == 2


async def test_what_is_asked_for_at_once_travels_together(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline: list[int] = []
    real = RedisConnection.exchange

    async def counted(self: RedisConnection, commands: list[object], within: float | None = None) -> list[object]:
        pipeline.append(len(commands))
        return await real(self, commands, within)  # type: ignore[arg-type]

    async with opened(server) as store:
        await store.records.put("first", b"x")
        monkeypatch.setattr(RedisConnection, "exchange", counted)
        await asyncio.gather(*(store.records.put(str(number), b"x") for number in range(100)))
        assert sum(pipeline) == 100
        assert len(pipeline) <= 3


async def test_append_waits_while_too_much_is_unsent(own: Valkey) -> None:
    async with opened(own, Limits(unwritten_bytes=1000)) as store:
        await store.logs.open(LOG)
        own.freeze()
        appends = [asyncio.ensure_future(store.logs.append(LOG, seq, b"x" * 400)) for seq in range(1, 6)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert store._pipeline._weight == 800
        own.thaw()
        assert all(await asyncio.gather(*appends))
        assert store._pipeline._weight == 0


# -- trouble ---------------------------------------------------------------------------------------------------------


class Cut:
    """Breaks a connection at the next exchange, before or after the server has carried it out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._when: str | None = None
        real = RedisConnection.exchange

        async def exchange(line: RedisConnection, commands: list[object], within: float | None = None) -> list[object]:
            when, self._when = self._when, None
            if when == "before":
                raise ConnectionResetError("cut")
            answers = await real(line, commands, within)  # type: ignore[arg-type]
            if when == "after":
                raise ConnectionResetError("cut")
            return answers

        monkeypatch.setattr(RedisConnection, "exchange", exchange)

    def __call__(self, when: str) -> None:
        self._when = when


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_was_sent_before_the_connection_broke_is_done_once(
    server: Valkey, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    async with opened(server) as store:
        await store.leases.renew("holder", 60)
        cut = Cut(monkeypatch)
        cut(when)
        assert await store.logs.open(LOG)
        for seq in (1, 2):
            cut(when)
            assert await store.logs.append(LOG, seq, b"x", end=seq == 2)
        cut(when)
        assert not await store.logs.append(LOG, 3, b"x")
        cut(when)
        assert await store.records.put("a", b"x", if_version=0) == 1
        cut(when)
        assert await store.records.add("n", 2) == 2
        cut(when)
        assert await store.records.add("n", 2) == 4
        start = await store.feeds.publish("feed", b"a", keep=10)
        assert start is not None
        cut(when)
        assert await store.feeds.publish("feed", b"b", keep=10) == start + 1
        cut(when)
        assert await store.feeds.publish("feed", b"c", keep=10, holder="holder") == start + 2
        page = await store.logs.read(LOG, 0, 10)
        assert page is not None
        assert [entry.seq for entry in page.entries] == [1, 2]
        entries = (await store.feeds.read("feed", start - 1, 10)).entries
        assert [(entry.seq, entry.data) for entry in entries] == [(start, b"a"), (start + 1, b"b"), (start + 2, b"c")]


async def test_a_number_another_took_meanwhile_is_refused_though_it_is_sent_again(
    server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server) as store:
        other = RedisStore(server.url, prefix=store._shared.prefix)
        async with started(other):
            await store.logs.open(LOG)
            assert await other.logs.append(LOG, 1, b"another's")
            Cut(monkeypatch)("before")
            assert not await store.logs.append(LOG, 1, b"ours")


async def test_a_server_that_comes_back_is_used_again_and_watchers_are_woken(own: Valkey) -> None:
    async with opened(own) as store, started(RedisStore(own.url, prefix=store._shared.prefix)) as other:
        seen: list[int] = []
        store.feeds.watch("topic", lambda: seen.append(1))
        await until(lambda: bool(seen))
        own.kill()
        waiting = asyncio.ensure_future(store.records.put("a", b"x"))
        await asyncio.sleep(0)
        seen.clear()
        own.start()
        assert await waiting == 1
        # The server has lost everything, including scripts and subscriptions.
        await until(lambda: bool(seen))
        seen.clear()
        assert await other.feeds.publish("topic", b"x", keep=10)
        await until(lambda: bool(seen))


async def test_hints_are_heard_again_from_a_server_that_had_fallen_silent(
    own: Valkey, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pegboard.stores.redis.hint_subscriber._PING_SECONDS", 0.05)
    async with opened(own) as store:
        seen: list[int] = []
        end = store.feeds.watch("topic", lambda: seen.append(1))
        await until(lambda: bool(seen))
        own.freeze()
        await until(lambda: "stopped responding" in caplog.text)
        seen.clear()
        own.thaw()
        await until(lambda: bool(seen))
        end()
        # Subscribed to nothing, it still hears whether the server is there.
        store.feeds.watch("another", lambda: seen.append(2))
        await until(lambda: 2 in seen)


async def test_a_server_that_stays_away_is_said_after_a_while(
    own: Valkey, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pegboard.stores.redis.command_pipeline._COMMAND_SECONDS", 0.2)
    async with opened(own) as store:
        own.kill()
        with pytest.raises(StoreDown, match="does not respond; try again later") as raised:
            await store.records.get("a")
        assert (raised.value.status, raised.value.retry_after) == (503, 5)
    assert "does not respond" in caplog.text


async def test_a_server_that_is_full_refuses_and_takes_again_when_it_is_not(
    own: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    with redis.Redis.from_url(own.url) as client:
        async with opened(own) as store:
            await store.logs.open(LOG)
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "1")
            with pytest.raises(StoreDown, match="cannot be written"):
                await store.logs.append(LOG, 1, b"x")
            assert "maxmemory" in caplog.text
            client.config_set("maxmemory", "0")
            assert await store.logs.append(LOG, 1, b"x")


# -- what cannot be used ---------------------------------------------------------------------------------------------


async def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    store = RedisStore("redis://:secret@127.0.0.1:1/0")
    with pytest.raises(SetupError, match=r"store redis://127\.0\.0\.1:1/0: .*start the server") as raised:
        await store.start()
    assert "secret" not in str(raised.value)
    await store.close()
    with pytest.raises(StoreDown, match="not open"):
        await store.records.get("a")


async def test_a_server_that_refuses_us_says_why(own: Valkey) -> None:
    with redis.Redis.from_url(own.url) as client:
        client.config_set("requirepass", "secret")
    store = RedisStore(own.url)
    with pytest.raises(SetupError, match=r"Authentication required.*password"):
        await store.start()
    await store.close()
    store = RedisStore(own.url + "?password=wrong")
    with pytest.raises(SetupError, match=r"invalid username-password pair") as raised:
        await store.start()
    assert "wrong" not in str(raised.value).replace("WRONGPASS", "")
    await store.close()


@pytest.mark.parametrize(
    ("server_info", "cluster_info", "told"),
    [
        (b"redis_version:6.2.1\r\n", b"cluster_enabled:0\r\n", r"Redis 6\.2\.1 is too old; use Redis 7, Valkey 8"),
        (b"redis_version:7.2.4\r\n", b"cluster_enabled:1\r\n", "one node of a cluster"),
        (b"something else", b"", "too old"),
    ],
)
async def test_a_server_we_cannot_use_is_refused(
    server: Valkey, monkeypatch: pytest.MonkeyPatch, server_info: bytes, cluster_info: bytes, told: str
) -> None:
    async def exchange(line: RedisConnection, commands: list[object], within: float | None = None) -> list[object]:
        return [server_info, cluster_info]

    monkeypatch.setattr(RedisConnection, "exchange", exchange)
    with pytest.raises(SetupError, match=told):
        await RedisStore(server.url).start()
