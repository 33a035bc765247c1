"""Services: values and factories by type, two lifetimes, clean-up in order."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from examples import services

from pegboard import Board, Client, Context
from pegboard.client.client import CallResult
from pegboard.errors import DeclarationError, ToolError
from tests.waiting import SOON, until


class Settings:
    def __init__(self, name: str = "set") -> None:
        self.name = name


class Store:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings


class Unit:
    """A unit of work upon a store."""

    def __init__(self, store: Store) -> None:
        self.store = store


class Plain:
    """Made by a plain factory."""


class Opened:
    """Made by an async factory."""


class Session:
    """Made by a generator."""


class Late:
    """Made by a plain function that returns a coroutine."""


async def call(board: Board, name: str) -> CallResult:
    async with Client(board) as client:
        return await client.call(name)


async def test_a_value_is_supplied_as_it_is_and_is_not_in_the_schema() -> None:
    board, settings = Board(), Settings("mine")
    board.services.value(Settings, settings)

    @board.tool
    def which(wanted: Settings) -> str:
        return f"{wanted.name} {wanted is settings}"

    assert (await call(board, "which")).text == "mine True"
    async with Client(board) as client:
        (definition,) = await client.list_tools()
    assert definition["inputSchema"].get("properties", {}) == {}


async def test_a_plain_factory_makes_one_for_each_call() -> None:
    board, made = Board(), []
    board.services.factory(Settings, lambda: made.append(Settings()) or made[-1])

    @board.tool
    def twice(one: Settings, other: Settings) -> bool:
        return one is other

    async with Client(board) as client:
        assert (await client.call("twice")).text == "true"
        assert (await client.call("twice")).text == "true"
    assert len(made) == 2


async def test_async_factories_and_generators_are_waited_for_and_cleaned_up_after_the_call() -> None:
    board, events = Board(), []

    async def open_settings() -> Settings:
        await asyncio.sleep(0)
        return Settings("async")

    def open_store(settings: Settings) -> Iterator[Store]:
        events.append("store opened")
        yield Store(settings)
        events.append("store closed")

    async def open_unit(store: Store) -> AsyncIterator[Unit]:
        events.append("unit opened")
        yield Unit(store)
        await asyncio.sleep(0)
        events.append("unit closed")

    board.services.factory(Settings, open_settings)
    board.services.factory(Store, open_store)
    board.services.factory(Unit, open_unit)

    @board.tool
    def work(unit: Unit) -> str:
        events.append("worked")
        return unit.store.settings.name

    assert (await call(board, "work")).text == "async"
    assert events == ["store opened", "unit opened", "worked", "unit closed", "store closed"]


async def test_a_generator_sees_the_failure_of_its_call_and_the_call_still_fails() -> None:
    board, seen = Board(), []

    def open_store() -> Iterator[Store]:
        try:
            yield Store(Settings())
            seen.append("committed")
        except ToolError as error:
            seen.append(f"rolled back: {error}")
            raise

    board.services.factory(Store, open_store)

    @board.tool
    def work(store: Store) -> None:
        raise ToolError("no such row")

    result = await call(board, "work")
    assert (result.is_error, result.text) == (True, "no such row")
    assert seen == ["rolled back: no such row"]


async def test_a_clean_up_that_fails_fails_the_call_and_the_rest_is_cleaned_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    board, events = Board(), []

    def outer() -> Iterator[Settings]:
        yield Settings()
        events.append("outer closed")

    def inner(settings: Settings) -> Iterator[Store]:
        yield Store(settings)
        raise OSError("cannot commit")

    board.services.factory(Settings, outer)
    board.services.factory(Store, inner)

    @board.tool
    def work(store: Store, settings: Settings) -> str:
        return "done"

    result = await call(board, "work")
    assert result.is_error
    assert "cannot commit" not in result.text
    assert "cannot commit" in caplog.text
    # contextlib throws the failure of the inner into the outer, which does not catch it.
    assert events == []


async def test_a_factory_that_fails_ends_the_call_after_cleaning_up_what_it_needed() -> None:
    board, events = Board(), []

    def outer() -> Iterator[Settings]:
        try:
            yield Settings()
        finally:
            events.append("outer closed")

    def inner(settings: Settings) -> Store:
        raise ToolError("the store is down, try again later")

    board.services.factory(Settings, outer)
    board.services.factory(Store, inner)

    @board.tool
    def work(store: Store) -> str:
        return "never"

    result = await call(board, "work")
    assert (result.is_error, result.text) == (True, "the store is down, try again later")
    assert events == ["outer closed"]


async def test_what_lives_with_the_application_is_made_once_even_by_calls_at_the_same_time() -> None:
    board, events, gate = Board(), [], asyncio.Event()

    async def open_store() -> AsyncIterator[Store]:
        events.append("opened")
        await gate.wait()
        yield Store(Settings())
        events.append("closed")

    board.services.factory(Store, open_store, lifetime="app")

    @board.tool
    async def which(store: Store) -> str:
        return str(id(store))

    async with Client(board) as client:
        calls = [asyncio.ensure_future(client.call("which")) for _ in range(5)]
        await asyncio.sleep(0)
        gate.set()
        assert len({(await one).text for one in calls}) == 1
        assert events == ["opened"]
    assert events == ["opened", "closed"]


async def test_app_services_are_closed_in_reverse_order_and_recreated_at_the_next_start() -> None:
    board, events = Board(), []

    def opener(kind: type, name: str) -> Callable[[], Iterator[object]]:
        def open_it() -> Iterator[object]:
            events.append(f"{name} opened")
            yield kind.__new__(kind)
            events.append(f"{name} closed")

        return open_it

    board.services.factory(Store, opener(Store, "store"), lifetime="app")
    board.services.factory(Unit, opener(Unit, "unit"), lifetime="app")

    @board.tool
    def work(store: Store, unit: Unit) -> str:
        return "done"

    for _ in range(2):
        events.clear()
        assert (await call(board, "work")).text == "done"
        assert events == ["store opened", "unit opened", "unit closed", "store closed"]


def test_a_board_with_shared_services_serves_one_loop_after_the_other() -> None:
    board = Board()

    async def open_store() -> Store:
        await asyncio.sleep(0)
        return Store(Settings())

    board.services.factory(Store, open_store, lifetime="app")

    @board.tool
    async def which(store: Store) -> str:
        return "there"

    async def crowd() -> list[str]:
        async with Client(board) as client:
            return [result.text for result in await asyncio.gather(*(client.call("which") for _ in range(3)))]

    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(crowd(), SOON)) == ["there"] * 3


async def test_an_override_holds_for_its_block_and_no_longer() -> None:
    board = Board()
    board.services.value(Settings, Settings("real"))
    board.services.factory(Store, lambda: Store(Settings("made")), lifetime="app")

    @board.tool
    def which(settings: Settings, store: Store) -> str:
        return f"{settings.name} {store.settings.name}"

    async with Client(board) as client:
        assert (await client.call("which")).text == "real made"
        with (
            board.services.override(Settings, Settings("fake")),
            board.services.override(Store, Store(Settings("false"))),
        ):
            assert (await client.call("which")).text == "fake false"
        assert (await client.call("which")).text == "real made"


async def test_a_logger_can_be_asked_for() -> None:
    board = Board()

    @board.tool
    def log(logger: logging.Logger) -> str:
        return logger.name

    assert (await call(board, "log")).text == "pegboard.tools"


def test_a_factory_whose_parameter_nothing_explains_is_refused_with_the_fix() -> None:
    with pytest.raises(DeclarationError, match="'dsn' that cannot be supplied"):
        Board().services.factory(Store, lambda dsn: Store(dsn))


def test_a_factory_that_takes_what_belongs_to_a_call_is_refused_where_it_is_registered() -> None:
    def settings_of(ctx: Context) -> Settings:
        return Settings(str(ctx.client["name"]))

    with pytest.raises(DeclarationError, match="takes a Context, which only tools receive"):
        Board().services.factory(Settings, settings_of)


def test_a_factory_must_be_callable_and_live_with_the_call_or_the_application() -> None:
    services = Board().services
    with pytest.raises(DeclarationError, match="must be callable"):
        services.factory(Store, "store")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="'call' or 'app'"):
        services.factory(Store, lambda: None, lifetime="session")  # type: ignore[arg-type]


@pytest.mark.parametrize("lifetime", ["call", "app"])
def test_factories_that_need_each_other_are_refused(lifetime: str) -> None:
    services = Board().services

    def store(unit: Unit) -> Store: ...

    def unit(store: Store) -> Unit: ...

    services.factory(Store, store, lifetime=lifetime)
    with pytest.raises(DeclarationError, match="Unit → Store → Unit"):
        services.factory(Unit, unit, lifetime=lifetime)


async def test_a_factory_with_an_unavailable_dependency_logs_the_missing_type(caplog: pytest.LogCaptureFixture) -> None:
    board = Board()

    def store(settings: Settings) -> Store: ...

    board.services.factory(Store, store)

    @board.tool
    def work(store: Store) -> str:
        return "never"

    assert (await call(board, "work")).is_error
    assert "Nothing supplies Settings" in caplog.text


async def test_a_service_in_use_by_an_abandoned_thread_is_cleaned_up_after_the_thread() -> None:
    board, events = Board(), []
    begun, go = threading.Event(), threading.Event()

    def open_store() -> Iterator[Store]:
        try:
            yield Store(Settings())
        finally:
            events.append("closed")

    board.services.factory(Store, open_store)

    @board.tool
    def work(store: Store) -> str:
        begun.set()
        go.wait(SOON)
        events.append("used to the end")
        return store.settings.name

    async with Client(board) as client:
        calling = asyncio.ensure_future(client.call("work"))
        await asyncio.to_thread(begun.wait, SOON)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert events == []
        go.set()
        await until(lambda: len(events) == 2)
    assert events == ["used to the end", "closed"]


async def test_a_service_of_a_cancelled_coroutine_is_cleaned_up_before_its_caller_goes_on() -> None:
    board, events, begun = Board(), [], asyncio.Event()

    async def open_store() -> AsyncIterator[Store]:
        try:
            yield Store(Settings())
        finally:
            events.append("closed")

    board.services.factory(Store, open_store)

    @board.tool
    async def work(store: Store) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with Client(board) as client:
        calling = asyncio.ensure_future(client.call("work"))
        await begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert events == ["closed"]


@pytest.mark.parametrize("style", ["function", "generator"])
async def test_a_plain_factory_runs_in_the_thread_of_a_plain_tool(style: str) -> None:
    board = Board("threads")
    closed: list[int] = []

    def connect() -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(":memory:")
        try:
            yield connection
        finally:
            # SQLite rejects this, too, in any other thread.
            connection.close()
            closed.append(threading.get_ident())

    def cursor_of(connection: sqlite3.Connection) -> sqlite3.Cursor:
        return connection.cursor()

    board.services.factory(sqlite3.Connection, connect)
    board.services.factory(sqlite3.Cursor, cursor_of)

    if style == "function":

        @board.tool
        def count(cursor: sqlite3.Cursor, connection: sqlite3.Connection, fail: bool = False) -> int:
            if fail:
                raise ToolError("as asked")
            assert cursor.connection is connection
            return int(cursor.execute("select 41 + 1").fetchone()[0])
    else:

        @board.tool(name="count")
        def stream(cursor: sqlite3.Cursor, connection: sqlite3.Connection, fail: bool = False) -> Iterator[int]:
            if fail:
                raise ToolError("as asked")
            assert cursor.connection is connection
            yield int(cursor.execute("select 41 + 1").fetchone()[0])

    async with Client(board) as client:
        assert (await client.call("count")).text in ("42", "[42]")
        assert (await client.call("count", {"fail": True})).text == "as asked"
    assert len(closed) == 2
    assert threading.get_ident() not in closed


async def test_a_plain_tool_takes_services_of_async_factories_and_what_they_need() -> None:
    board = Board("mixed")
    order: list[str] = []

    def plain() -> Plain:
        order.append("plain")
        return Plain()

    async def opened(plain: Plain) -> AsyncIterator[Opened]:
        assert asyncio.get_running_loop()
        order.append("opened")
        yield Opened()
        order.append("closed")

    def session(opened: Opened, plain: Plain) -> Iterator[Session]:
        yield Session()
        order.append("session ended")

    async def make_late() -> Late:
        return Late()

    board.services.factory(Plain, plain)
    board.services.factory(Opened, opened)
    board.services.factory(Session, session)
    board.services.factory(Late, lambda: make_late())

    @board.tool
    def work(session: Session, plain: Plain, late: Late) -> str:
        return type(late).__name__

    async with Client(board) as client:
        assert (await client.call("work")).text == "Late"
    assert order == ["plain", "opened", "session ended", "closed"]


async def test_the_example_of_the_documentation_closes_its_connection_after_a_failure() -> None:
    made = []
    board = services.board

    async def connect(settings: services.Settings) -> AsyncIterator[services.Connection]:
        async with asynccontextmanager(services.connect)(settings) as connection:
            made.append(connection)
            yield connection

    board.services.factory(services.Connection, connect)
    try:
        async with Client(board) as client:
            assert (await client.call("fetch", {"key": -1})).text == "there are no negative rows"
    finally:
        board.services.factory(services.Connection, services.connect)
    assert [one.is_open for one in made] == [False]
