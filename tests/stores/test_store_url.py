"""An address names a store, or is refused with the way out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pegboard.errors import SetupError
from pegboard.limits import Limits
from pegboard.stores.memory import MemoryStore
from pegboard.stores.redis.redis_store import RedisStore
from pegboard.stores.sqlite.sqlite_store import SqliteStore
from pegboard.stores.store_url import open_store
from tests.server_processes import Child
from tests.stores.backends import folder, started


@pytest.mark.parametrize("address", ["memory", "MEMORY", " memory ", "memory:"])
def test_memory_is_named_by_its_word(address: str) -> None:
    assert isinstance(open_store(address), MemoryStore)


@pytest.mark.parametrize("form", ["sqlite:{}", "sqlite://{}", "sqlite:{}?sync=full", "sqlite:{}?sync=normal"])
async def test_a_file_is_named_by_its_path(form: str) -> None:
    with folder() as where:
        store = open_store(form.format(where / "a.db"), Limits())
        assert isinstance(store, SqliteStore)
        async with started(store):
            assert await store.records.put("a", b"x") == 1
        assert (where / "a.db").is_file()


def test_a_path_may_begin_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = open_store("sqlite:~/store.db")
    assert isinstance(store, SqliteStore)
    assert store._path == tmp_path / "store.db"


async def test_only_a_full_sync_waits_for_the_disk() -> None:
    for option, synchronous in (("", 1), ("?sync=full", 2)):
        with folder() as where:
            store = open_store(f"sqlite:{where}/a.db{option}")
            assert isinstance(store, SqliteStore)
            async with started(store):
                found = await store._writer.run(lambda tx: tx.execute("PRAGMA synchronous").fetchone()[0])
                assert found == synchronous


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_a_server_is_named_by_its_address(scheme: str) -> None:
    store = open_store(f"{scheme}://user:secret@example.com:6380/2?prefix=mine")
    assert isinstance(store, RedisStore)
    assert store._shared.key("a") == "mine:a"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("", "use one of memory, sqlite:PATH"),
        ("postgres://user:secret@host/", "'postgres' is not a supported store; use one of memory"),
        ("sqlite", "'sqlite' is not a supported store"),
        ("sqlite:", "the file is missing; use sqlite:PATH"),
        ("sqlite::memory:", "or memory to store nothing on disk"),
        ("sqlite:a.db?sync=often", r"the only option is \?sync=normal or \?sync=full"),
        ("sqlite:a.db?mode=ro", "the only option is"),
        ("redis:host", "use one of memory"),
        ("redis://host?prefix=", "prefix"),
        ("redis://host?prefix={a}", "without braces"),
        ("redis://host?nonsense=1", "nonsense"),
        ("redis://user:secret@host:port/0", "redis://host:port/0: .*use redis://host:6379/0"),
    ],
)
def test_what_names_no_store_is_refused_with_the_way_out(address: str, told: str) -> None:
    with pytest.raises(SetupError, match=told) as raised:
        open_store(address)
    assert "store" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_the_memory_store_loads_no_database_module() -> None:
    program = (
        "import sys; before = set(sys.modules); from pegboard.stores.store_url import open_store; open_store('memory');"
        "sys.exit(not {'sqlite3', 'redis'}.isdisjoint(sys.modules.keys() - before))"
    )
    with Child(sys.executable, "-c", program) as child:
        assert child.wait() == 0, child.said()


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(SetupError, match=r"store redis://host:1: install the extra `pegboard\[redis\]`"):
        open_store("redis://:secret@host:1")
