"""The file of a store is private, says what it is, and is written in the background."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pegboard.errors import SetupError, StoreDown
from pegboard.limits import Limits
from pegboard.stores.sqlite.sqlite_store import SqliteStore
from tests.server_processes import Child
from tests.stores.backends import folder, started
from tests.waiting import until

LOG = ("session", "stream")


@pytest.fixture
def path() -> Iterator[Path]:
    with folder() as where:
        yield where / "state" / "pegboard" / "store.db"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def lay(path: Path, content: str) -> None:
    """Put something there that was not made by a store."""
    path.parent.mkdir(parents=True)
    if content == "database":
        file = sqlite3.connect(path)
        file.execute("CREATE TABLE precious (value)")
        file.close()
    elif content == "folder":
        path.mkdir()
    else:
        path.write_text("precious\n" * 1000 if content == "text" else "")
        path.chmod(0o644)


def is_laid(path: Path, content: str) -> bool:
    return content != "text" or path.read_text() == "precious\n" * 1000


# -- who may read it -------------------------------------------------------------------------------------------------


async def test_its_files_and_the_folders_made_for_them_are_for_the_user_alone(path: Path) -> None:
    async with started(SqliteStore(path)) as store:
        await store.records.put("a", b"x")
        files = list(path.parent.iterdir())
        assert len(files) == 3
        assert [mode(file) for file in files] == [0o600] * 3
        assert (mode(path.parent), mode(path.parent.parent)) == (0o700, 0o700)


async def test_a_file_that_others_could_read_is_closed_to_them_and_its_folder_is_left_alone(path: Path) -> None:
    lay(path, "nothing")
    path.parent.chmod(0o755)
    async with started(SqliteStore(path)):
        assert (mode(path), mode(path.parent)) == (0o600, 0o755)


async def test_no_session_id_and_no_key_is_in_any_of_its_files(path: Path) -> None:
    session = secrets.token_hex(16)
    async with started(SqliteStore(path)) as store:
        log = session, "stream"
        await store.logs.open(log, b"about")
        await store.logs.append(log, 1, b"the data")
        await store.logs.touch(session)
        await store.records.put(f"session:{session}", b"the value", ttl=10)
        await store.records.add(f"count:{session}", 1)
        store.logs.watch(log, lambda: None)
        await store.records.get("settled")
        written = b"".join(file.read_bytes() for file in path.parent.iterdir())
        assert b"the data" in written
        assert b"the value" in written
        assert session.encode() not in written
        assert bytes.fromhex(session) not in written


# -- what is in it ---------------------------------------------------------------------------------------------------


async def test_what_is_kept_outlives_the_store(path: Path) -> None:
    async with started(SqliteStore(path)) as store:
        await store.logs.open(LOG, b"about")
        await store.logs.append(LOG, 1, b"x", keep=True)
        await store.records.put("a", b"y")
        number = await store.feeds.publish("board", b"z", keep=10)
    async with started(SqliteStore(path)) as store:
        page = await store.logs.read(LOG, 0, 10)
        assert page is not None
        assert (page.last, page.about, page.entries[0].data) == (1, b"about", b"x")
        found = await store.records.get("a")
        assert found is not None
        assert found.value == b"y"
        assert (await store.feeds.read("board", 0, 1)).last == number
        assert await store.logs.append(LOG, 2, b"x")


async def test_its_sums_are_those_of_its_rows(path: Path) -> None:
    limits = Limits(stream_events=5, session_streams=4, ended_streams=2, session_bytes=300, stored_bytes=800)
    async with started(SqliteStore(path, limits)) as store:
        for session in "abcd":
            for stream in "123456":
                log = session, stream
                await store.logs.open(log)
                for seq in range(1, 9):
                    await store.logs.append(log, seq, b"x" * seq * 5, keep=seq == 2, end=seq == 8)
        await store.logs.drop("a")
    with sqlite3.connect(path) as file:
        stored = file.execute("SELECT coalesce(sum(length(data)), 0) FROM entries").fetchone()
        assert 0 < stored[0] <= 800
        assert file.execute("SELECT size FROM total").fetchone() == stored
        assert file.execute("SELECT sum(size) FROM sessions").fetchone() == stored
        rows = file.execute("SELECT id, entries, size FROM logs").fetchall()
        for log, entries, size in rows:
            found = "SELECT count(*), coalesce(sum(length(data)), 0) FROM entries WHERE log = ?"
            assert file.execute(found, (log,)).fetchone() == (entries, size)
        held = file.execute("SELECT count(*) FROM entries WHERE log NOT IN (SELECT id FROM logs)").fetchone()
        assert held == (0,)
    file.close()


async def test_a_file_of_another_schema_is_refused_and_left_as_it_is(path: Path) -> None:
    async with started(SqliteStore(path)):
        pass
    file = sqlite3.connect(path)
    file.execute("PRAGMA user_version = 7")
    file.close()
    with pytest.raises(SetupError, match=r"store\.db: its schema is 7, but this version of Pegboard supports 2"):
        await SqliteStore(path).start()


@pytest.mark.parametrize("content", ["database", "text", "folder"])
async def test_a_path_that_is_not_a_store_is_rejected_with_a_remedy(path: Path, content: str) -> None:
    lay(path, content)
    with pytest.raises(SetupError, match=r"store sqlite:.*store\.db: .*(use|choose) a"):
        await SqliteStore(path).start()
    assert is_laid(path, content)


async def test_a_store_that_is_not_open_says_so(path: Path) -> None:
    store = SqliteStore(path)
    await store.close()
    with pytest.raises(StoreDown, match="not open"):
        await store.records.get("a")
    with pytest.raises(StoreDown, match="not open"):
        await store.records.put("a", b"x")


async def test_many_processes_may_make_it_at_once(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(8)]
    await asyncio.gather(*(store.start() for store in stores))
    try:
        assert sorted([await store.records.add("n", 1) for store in stores]) == list(range(1, 9))
    finally:
        for store in stores:
            await store.close()


async def test_hints_come_from_a_process_of_its_own(path: Path) -> None:
    program = (
        "import asyncio, sys; from pegboard.stores.store_url import open_store\n"
        "async def main():\n"
        "    store = open_store(sys.argv[1]); await store.start(); sys.stdin.readline()\n"
        "    await store.logs.append(('session', 'stream'), 1, b'from afar'); await store.close()\n"
        "asyncio.run(main())"
    )
    async with started(SqliteStore(path)) as store:
        woken = asyncio.Event()
        async with started(SqliteStore(path)) as owner:
            await owner.logs.open(LOG)
        store.logs.watch(LOG, woken.set)
        with Child(sys.executable, "-c", program, f"sqlite:{path}") as child:
            assert child.process.stdin is not None
            child.process.stdin.write(b"go\n")
            await woken.wait()
            assert child.wait() == 0, child.said()
        page = await store.logs.read(LOG, 0, 1)
        assert page is not None
        assert page.entries[0].data == b"from afar"


# -- how it is written -----------------------------------------------------------------------------------------------


async def test_the_store_polls_other_processes_only_while_they_are_watched(path: Path) -> None:
    async with started(SqliteStore(path)) as store:
        hint_poller = store._hint_poller
        await store.logs.open(LOG)
        end = store.logs.watch(LOG, lambda: None)
        assert not hint_poller.is_polling
        foreign = store.logs.watch(("session", "of another"), lambda: None)
        assert hint_poller.is_polling
        foreign()
        foreign()
        await until(lambda: not hint_poller.is_polling)
        store.feeds.watch("topic", lambda: None)
        assert hint_poller.is_polling
        end()


async def test_whatever_waits_is_committed_together(path: Path) -> None:
    async with started(SqliteStore(path)) as store:
        await store.records.put("first", b"x")
        commits: list[str] = []
        gate = threading.Event()

        def hold(transaction: object) -> None:
            transaction.connection.set_trace_callback(  # type: ignore[attr-defined]
                lambda statement: commits.append(statement) if statement == "COMMIT" else None
            )
            gate.wait(20)

        held = asyncio.ensure_future(store._writer.run(hold))
        await asyncio.sleep(0)
        logs = [("session", str(number)) for number in range(50)]
        opening = [asyncio.ensure_future(store.logs.open(log)) for log in logs]
        await asyncio.sleep(0)
        gate.set()
        assert all(await asyncio.gather(*opening))
        await held
        assert len(commits) <= 3


async def test_append_waits_while_too_much_is_unwritten(path: Path) -> None:
    async with started(SqliteStore(path, Limits(unwritten_bytes=1000))) as store:
        await store.logs.open(LOG)
        gate = threading.Event()
        held = asyncio.ensure_future(store._writer.run(lambda _: gate.wait(20)))
        appends = [asyncio.ensure_future(store.logs.append(LOG, seq, b"x" * 400)) for seq in range(1, 6)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert store._writer._weight == 800
        gate.set()
        assert all(await asyncio.gather(*appends))
        assert await held
        assert store._writer._weight == 0


async def test_one_larger_than_the_bound_is_written_when_its_turn_comes(path: Path) -> None:
    async with started(SqliteStore(path, Limits(unwritten_bytes=10))) as store:
        await store.logs.open(LOG)
        assert await store.logs.append(LOG, 1, b"x" * 100, end=True)


async def test_a_write_that_fails_fails_alone(path: Path) -> None:
    async with started(SqliteStore(path)) as store:
        await store.records.put("no number", b"x")
        results = await asyncio.gather(
            store.records.put("before", b"x"),
            store.records.add("no number", 1),
            store.records.put("after", b"x"),
            return_exceptions=True,
        )
        assert results[0] == results[2] == 1
        assert isinstance(results[1], ValueError)


async def test_a_file_that_cannot_be_written_is_said_and_the_store_goes_on_when_it_can(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(SqliteStore(path)) as store:
        await store.logs.open(LOG)

        def full(transaction: object) -> None:
            pages = transaction.connection.execute("PRAGMA page_count").fetchone()[0]  # type: ignore[attr-defined]
            transaction.connection.execute(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]

        await store._writer.run(full)
        with pytest.raises(StoreDown, match="cannot be written; try again later") as raised:
            await store.logs.append(LOG, 1, b"x" * 500_000)
        assert raised.value.status == 503
        assert "full" in caplog.text
        page = await store.logs.read(LOG, 0, 1)
        assert page is not None
        assert page.last == 0
        assert await store.logs.append(LOG, 1, b"x")


async def test_a_write_waits_for_another_process_that_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(SqliteStore(path)) as store:
        await store.logs.open(LOG)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        append = asyncio.ensure_future(store.logs.append(LOG, 1, b"x"))
        assert (await store.logs.read(LOG, 0, 1)) is not None
        assert not append.done()
        other.execute("COMMIT")
        assert await append
        monkeypatch.setattr("pegboard.stores.sqlite.writer_thread.LOCK_WAIT_SECONDS", 0.05)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreDown, match="cannot be written"):
            await store.logs.append(LOG, 2, b"x")
        other.execute("COMMIT")
        other.close()
        assert await store.logs.append(LOG, 2, b"x")


async def test_a_file_that_cannot_be_read_is_said(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with started(SqliteStore(path)) as store:
        with sqlite3.connect(path) as other:
            other.execute("DROP TABLE records")
        other.close()
        with pytest.raises(StoreDown, match="cannot be read; try again later"):
            await store.records.get("a")
        assert "no such table" in caplog.text


async def test_looking_at_others_goes_on_after_a_look_that_failed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(SqliteStore(path)) as store, started(SqliteStore(path)) as other:
        seen: list[int] = []
        store.feeds.watch("topic", lambda: seen.append(1))
        real, failed = store._reader.run, list[int]()

        async def fail_once(reading: object) -> object:
            monkeypatch.setattr(store._reader, "run", real)
            failed.append(1)
            raise StoreDown("for a moment")

        monkeypatch.setattr(store._reader, "run", fail_once)
        await other.feeds.publish("topic", b"x", keep=10)
        await until(lambda: bool(seen))
        assert failed


async def test_hints_that_were_trimmed_unread_are_made_good_by_hinting_at_everything(path: Path) -> None:
    async with started(SqliteStore(path)) as store, started(SqliteStore(path)) as other:
        seen: list[int] = []
        store.feeds.watch("quiet", lambda: seen.append(1))

        def lose(transaction: object) -> None:
            transaction.execute("INSERT INTO hints (topic, sender) VALUES (1, 'x'), (2, 'x')")  # type: ignore[attr-defined]
            transaction.execute("DELETE FROM hints WHERE topic = 1")  # type: ignore[attr-defined]

        await other._writer.run(lose)
        await until(lambda: bool(seen))


async def test_old_hints_do_not_pile_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.stores.sqlite.writer_thread._HINTS_KEPT", 50)
    async with started(SqliteStore(path)) as store:
        await store.logs.open(LOG)
        for seq in range(1, 300):
            await store.logs.append(LOG, seq, b"x")
    file = sqlite3.connect(path)
    assert file.execute("SELECT count(*) FROM hints").fetchone()[0] < 70
    file.close()


async def test_records_whose_time_is_over_leave_the_file(path: Path) -> None:
    now = 1000.0
    async with started(SqliteStore(path, clock=lambda: now)) as store:
        for number in range(200):
            await store.records.put(str(number), b"x", ttl=10)
            now += 1
    file = sqlite3.connect(path)
    assert file.execute("SELECT count(*) FROM records").fetchone()[0] <= 11
    file.close()
