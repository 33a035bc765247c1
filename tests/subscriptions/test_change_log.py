"""The log of a board's changes, and the request to hear of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from pegboard import Board, Limits
from pegboard.call import NULL_CHANNEL, Call, Caller, Change, ChangeFilter, Subscribed
from pegboard.errors import InvalidParams
from pegboard.protocol.revisions import MODERN
from pegboard.subscriptions.change_log import ANYTHING, ChangeLog
from tests.waiting import until

CHANGES = st.one_of(
    st.sampled_from([Change("tools"), Change("prompts"), Change("resources")]),
    st.builds(Change, st.just("updated"), st.sampled_from([f"a://{n}" for n in range(8)])),
)


# -- the log -----------------------------------------------------------------------------------------------------------


@given(published=st.lists(CHANGES, max_size=60), after=st.integers(0, 60), keep=st.integers(1, 12))
def test_a_reader_of_the_log_misses_no_change_and_receives_none_twice(
    published: list[Change], after: int, keep: int
) -> None:
    log = ChangeLog(keep)
    numbers = [log.publish(change) for change in published]
    assert numbers == list(range(1, len(published) + 1))
    assert log.last == len(published)
    after = min(after, log.last)
    read = log.read(after)
    told = [change for _, change in read]
    missed = set(published[after:])
    assert len(told) == len(set(told)), "told twice"
    assert [number for number, _ in read] == sorted(number for number, _ in read)
    if Change("updated") in told:
        # Whatever is not told by itself is told by the change that stands for all of its kind.
        assert len(set(published)) > keep, "nothing was lost yet"
        assert set(ANYTHING) <= set(told)
    else:
        assert set(told) == missed
        newest = {change: number for number, change in enumerate(published, 1)}
        assert all(number == newest[change] for number, change in read)
    assert len(read) <= keep + len(ANYTHING)


@given(
    published=st.lists(CHANGES, max_size=60),
    stops=st.lists(st.integers(0, 60), max_size=6),
    keep=st.integers(1, 12),
)
def test_a_follower_that_stops_at_any_change_hears_of_each_thing_after_it_last_changed(
    published: list[Change], stops: list[int], keep: int
) -> None:
    log, after, looked = ChangeLog(keep), 0, dict[Change, int]()
    stopping = set(stops)
    for number, change in enumerate(published, 1):
        log.publish(change)
        if number in stopping:
            # It is cut off after the first one it takes, and comes back with that number later.
            for reached, told in log.read(after)[:1]:
                looked[told] = number
                after = reached
    for _, told in log.read(after):
        looked[told] = len(published)
    for change, number in {change: number for number, change in enumerate(published, 1)}.items():
        general = Change(change.kind)
        assert max(looked.get(change, 0), looked.get(general, 0)) >= number, f"{change} was missed"


def test_reading_after_a_discarded_number_reports_that_anything_may_have_changed() -> None:
    log = ChangeLog(3)
    for number in range(10):
        log.publish(Change("updated", f"a://{number}"))
    assert log.read(7) == [(number, Change("updated", f"a://{number - 1}")) for number in (8, 9, 10)]
    anything = [(6, change) for change in ANYTHING[:-1]]
    assert log.read(6) == [*anything, (7, ANYTHING[-1]), *log.read(7)]
    assert log.read(10) == []


def test_reading_after_a_number_from_another_log_reports_that_anything_may_have_changed() -> None:
    log = ChangeLog()
    log.publish(Change("tools"))
    assert {change for _, change in log.read(500)} == set(ANYTHING)
    assert {change for _, change in log.read(-1)} == set(ANYTHING)


def test_one_thing_that_changes_often_takes_one_place() -> None:
    log = ChangeLog(3)
    log.publish(Change("tools"))
    for _ in range(1000):
        log.publish(Change("updated", "a://busy"))
    assert log.read(0) == [(1, Change("tools")), (1001, Change("updated", "a://busy"))]


def test_changes_from_many_threads_are_all_numbered_once() -> None:
    log = ChangeLog()
    numbers: list[list[int]] = [[] for _ in range(8)]
    ready = threading.Barrier(8)

    def publish(which: int) -> None:
        ready.wait()
        for step in range(500):
            numbers[which].append(log.publish(Change("updated", f"a://{which}/{step % 50}")))

    threads = [threading.Thread(target=publish, args=(which,)) for which in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        read = [number for number, _ in log.read(0)]
        assert read == sorted(read)
    for thread in threads:
        thread.join()
    assert sorted(number for some in numbers for number in some) == list(range(1, 4001))
    assert len(log.read(0)) == 400


# -- watching ----------------------------------------------------------------------------------------------------------


async def test_a_watcher_is_called_soon_and_once_for_what_changes_in_one_turn() -> None:
    log = ChangeLog()
    seen: list[int] = []
    end = log.watch(lambda: seen.append(log.last))
    for _ in range(5):
        log.publish(Change("tools"))
    assert seen == []
    await until(lambda: bool(seen))
    assert seen == [5]
    log.publish(Change("tools"))
    end()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    log.publish(Change("tools"))
    await asyncio.sleep(0)
    assert seen == [5]


async def test_a_watcher_is_called_on_its_own_loop_whichever_thread_publishes() -> None:
    log = ChangeLog()
    loop, called = asyncio.get_running_loop(), asyncio.Event()
    where: list[object] = []

    def watcher() -> None:
        where.append(asyncio.get_running_loop())
        called.set()

    log.watch(watcher)
    thread = threading.Thread(target=log.publish, args=(Change("prompts"),))
    thread.start()
    await called.wait()
    thread.join()
    assert where == [loop]


async def test_no_change_from_another_thread_is_slept_through() -> None:
    log = ChangeLog()
    after = 0
    done = asyncio.Event()

    def look() -> None:
        nonlocal after
        for number, _ in log.read(after):
            after = number
        if after == 3000:
            done.set()

    log.watch(look)
    threads = [
        threading.Thread(target=lambda: [log.publish(Change("updated", "a://1")) for _ in range(1000)])
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(20):
        await done.wait()
    for thread in threads:
        thread.join()


def test_a_closed_event_loop_is_no_longer_notified() -> None:
    log = ChangeLog()
    seen: list[int] = []

    async def watch() -> None:
        log.watch(lambda: seen.append(log.last))

    asyncio.run(watch())
    log.publish(Change("tools"))
    log.publish(Change("tools"))
    assert seen == []
    assert log._watches == ()


# -- what is published -------------------------------------------------------------------------------------------------


def kinds(board: Board, after: int) -> set[str]:
    return {change.kind for _, change in board.changes.read(after)}


def test_registrations_and_removals_are_published() -> None:
    board = Board()

    def steps() -> Any:
        yield "tools", lambda: board.tool("one")(lambda: 1)
        yield "tools", lambda: board.remove("one")
        yield "resources", lambda: board.resource("a://b")(lambda: "x")
        yield "resources", lambda: board.resources.remove("a://b")
        yield "resources", lambda: board.resource("a://{name}")(lambda name: name)
        yield "resources", lambda: board.resources.remove("a://{name}")
        yield "prompts", lambda: board.prompt("p")(lambda: "x")
        yield "prompts", lambda: board.prompts.remove("p")
        yield "updated", lambda: board.resource_changed("a://b")

    for kind, step in steps():
        before = board.changes.last
        step()
        assert kinds(board, before) == {kind}, kind


async def test_a_notified_change_is_already_in_the_list() -> None:
    board = Board()
    board.resource("a://0")(lambda: "x")
    found: list[int] = []
    heard = asyncio.Event()

    async def look() -> None:
        reply = await board.handler(Call(method="resources/list", caller=CALLER, channel=NULL_CHANNEL))
        found.append(len(reply.result.value["resources"]))  # type: ignore[union-attr]  # lists are Kept
        if found[-1] == 41:
            heard.set()

    looking: set[asyncio.Task[None]] = set()
    board.changes.watch(lambda: looking.add(asyncio.ensure_future(look())))

    def hang() -> None:
        for number in range(1, 41):
            board.resource(f"a://{number}")(lambda: "x")

    thread = threading.Thread(target=hang)
    thread.start()
    async with asyncio.timeout(20):
        await heard.wait()
    thread.join()
    await asyncio.gather(*looking)
    assert found[-1] == 41


# -- subscriptions/listen ----------------------------------------------------------------------------------------------

CALLER = Caller(version=MODERN, transport="test")


async def listen(board: Board, params: Any) -> ChangeFilter:
    call = Call(
        method="subscriptions/listen", caller=CALLER, channel=NULL_CHANNEL, params=Raw(msgspec.json.encode(params))
    )
    reply = await board.handler(call)
    assert isinstance(reply, Subscribed)
    assert reply.changes is board.changes
    return reply.filter


EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["a://b", "a://c", "a://b"],
}


async def test_what_the_board_has_is_honoured_and_nothing_else() -> None:
    board = Board()
    assert await listen(board, {"notifications": EVERYTHING}) == ChangeFilter(tools=True)
    board.prompt("p")(lambda: "x")
    assert await listen(board, {"notifications": EVERYTHING}) == ChangeFilter(tools=True, prompts=True)
    board.resource("a://b")(lambda: "x")
    assert await listen(board, {"notifications": EVERYTHING}) == ChangeFilter(
        tools=True, prompts=True, resources=True, uris=frozenset({"a://b", "a://c"})
    )


async def test_what_is_not_asked_for_is_not_followed() -> None:
    board = Board()
    board.prompt("p")(lambda: "x")
    board.resource("a://b")(lambda: "x")
    assert await listen(board, {"notifications": {}}) == ChangeFilter()
    assert await listen(board, {"notifications": {"promptsListChanged": True, "other": 1}}) == ChangeFilter(
        prompts=True
    )
    assert await listen(board, {"notifications": {"toolsListChanged": False}}) == ChangeFilter()
    assert await listen(board, {"notifications": {"resourceSubscriptions": ["a://b"]}}) == ChangeFilter(
        uris=frozenset({"a://b"})
    )


@pytest.mark.parametrize(
    ("params", "about"),
    [
        ({}, "params.notifications"),
        ({"notifications": None}, "params.notifications"),
        ({"notifications": []}, "params.notifications"),
        ({"notifications": {"toolsListChanged": 1}}, "true or false"),
        ({"notifications": {"promptsListChanged": "yes"}}, "true or false"),
        ({"notifications": {"resourcesListChanged": None}}, "true or false"),
        ({"notifications": {"resourceSubscriptions": "a://b"}}, "list of URIs"),
        ({"notifications": {"resourceSubscriptions": ["a://b", 1]}}, "list of URIs"),
    ],
)
async def test_a_filter_of_the_wrong_types_is_refused(params: Any, about: str) -> None:
    with pytest.raises(InvalidParams, match=about):
        await listen(Board(), params)


@settings(max_examples=20)
@given(sizes=st.lists(st.integers(1, 60), max_size=30))
async def test_as_many_uris_are_followed_as_fit_the_limits(sizes: list[int]) -> None:
    board = Board(limits=Limits(subscribed_uris=5, subscribed_uri_bytes=100))
    board.resource("a://b")(lambda: "x")
    uris = [str(number % 10) * size for number, size in enumerate(sizes)]
    followed = (await listen(board, {"notifications": {"resourceSubscriptions": uris}})).uris
    assert len(followed) <= 5
    assert sum(map(len, followed)) <= 100
    assert followed <= set(uris)
    if len(set(uris)) <= 5 and sum(map(len, set(uris))) <= 100:
        assert followed == set(uris)
