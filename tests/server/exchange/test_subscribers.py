"""Followers: what they are told, at which pace, and what they cost those who publish."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.call import Change, ChangeFilter, Subscribed
from pegboard.errors import Busy
from pegboard.protocol.modern_codec import ModernCodec
from pegboard.server.exchange.change_streams import event_id, read_event_id
from pegboard.server.exchange.subscribers import MIN_INTERVAL_SECONDS, Subscriber, Subscribers
from pegboard.subscriptions.change_log import ChangeLog
from tests.waiting import until

TONGUE = ModernCodec({"name": "t", "version": "1"})
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
URIS = [f"a://{n}" for n in range(4)]
LISTS = ChangeFilter(tools=True, prompts=True, resources=True)


class Recorded:
    """An outlet that keeps what it is sent; its reader lags behind when told."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.closed = False
        self.fails = False
        self.room = asyncio.Event()
        self.room.set()

    def send(self, message: bytes, number: int) -> bool:
        if self.fails:
            self.fails = False
            raise RuntimeError("a fault of ours")
        assert not self.closed
        self.sent.append((number, json.loads(message)))
        return self.room.is_set()

    async def drain(self) -> None:
        await self.room.wait()

    def keep_alive(self) -> None:
        raise AssertionError("nobody sweeps here")

    def close(self) -> None:
        self.closed = True

    @property
    def told(self) -> list[Change]:
        return [
            change_of(message)
            for _, message in self.sent
            if "changed" in message["method"] or "uri" in message["params"]
        ]


def change_of(message: Any) -> Change:
    kinds: dict[str, Any] = {"tools": "tools", "prompts": "prompts", "resources": "resources"}
    kind = message["method"].split("/")[1]
    if message["method"] == "notifications/resources/updated":
        return Change("updated", message["params"]["uri"])
    return Change(kinds[kind])


def follow(
    followers: Subscribers, log: ChangeLog, wanted: ChangeFilter = LISTS, **options: Any
) -> tuple[Subscriber, Recorded]:
    outlet = Recorded()
    subscriber = Subscriber(Subscribed(log, wanted), TONGUE, outlet, followers, subscription=7, **options)
    followers.admit(subscriber)
    followers.begin(subscriber)
    return subscriber, outlet


# -- what one follower is told -----------------------------------------------------------------------------------------

FILTERS = st.builds(
    ChangeFilter,
    tools=st.booleans(),
    prompts=st.booleans(),
    resources=st.booleans(),
    uris=st.frozensets(st.sampled_from(URIS)),
)
STEPS = st.lists(
    st.one_of(
        st.sampled_from([Change("tools"), Change("prompts"), Change("resources")]),
        st.builds(Change, st.just("updated"), st.sampled_from(URIS)),
        st.floats(0.0, 0.15),
        st.sampled_from(["lag", "catch up"]),
    ),
    max_size=60,
)


def wants(wanted: ChangeFilter, change: Change) -> bool:
    return change.uri in wanted.uris if change.kind == "updated" else bool(getattr(wanted, change.kind))


@given(wanted=FILTERS, steps=STEPS, keep=st.integers(2, 12))
async def test_a_follower_hears_of_all_it_wants_and_of_nothing_else_at_its_pace(
    wanted: ChangeFilter, steps: list[Any], keep: int
) -> None:
    log, outlet, now = ChangeLog(keep), Recorded(), 100.0
    subscriber = Subscriber(Subscribed(log, wanted), TONGUE, outlet, Subscribers(1), subscription=7)
    changed: dict[Change, float] = {}
    told: dict[Change, list[float]] = {}

    def look() -> None:
        before = len(outlet.sent)
        subscriber.catch_up(now)
        for _, message in outlet.sent[before:]:
            told.setdefault(change_of(message), []).append(now)

    for step in [*steps, "catch up", *([1.0, "look"] * 60)]:
        if isinstance(step, Change):
            log.publish(step)
            changed[step] = now
            look()
        elif isinstance(step, float):
            now += step
        elif step == "lag":
            outlet.room.clear()
        else:
            outlet.room.set()
            look()
    assert all(wants(wanted, change) for change in told), "told of what it did not ask for"
    for change, when in changed.items():
        if wants(wanted, change):
            assert told.get(change, [0.0])[-1] >= when, f"{change} was missed"
    lost = len(set(changed)) > keep
    for change, times in told.items():
        gaps = [late - early for early, late in itertools.pairwise(times)]
        # Who may have missed anything is told of everything, whatever the pace.
        assert change.kind != "updated" or lost or all(gap >= MIN_INTERVAL_SECONDS - 1e-6 for gap in gaps)
    assert subscriber.after == log.last


async def test_a_change_waits_no_longer_than_the_pace_behind_an_update_that_has_to() -> None:
    log, outlet = ChangeLog(), Recorded()
    subscriber = Subscriber(
        Subscribed(log, ChangeFilter(tools=True, uris=frozenset(URIS))), TONGUE, outlet, Subscribers(1)
    )
    log.publish(Change("updated", URIS[0]))
    assert subscriber.catch_up(10.0) is None
    log.publish(Change("updated", URIS[0]))
    log.publish(Change("tools"))
    assert subscriber.catch_up(10.02) == pytest.approx(10.1)
    assert outlet.told == [Change("updated", URIS[0])]
    assert subscriber.catch_up(10.11) is None
    assert outlet.told[1:] == [Change("updated", URIS[0]), Change("tools")]


async def test_a_subscriber_that_may_have_missed_changes_is_notified_of_every_list_and_uri_it_follows() -> None:
    log, outlet = ChangeLog(2), Recorded()
    wanted = ChangeFilter(prompts=True, uris=frozenset({"x://1", "x://2"}))
    subscriber = Subscriber(Subscribed(log, wanted), TONGUE, outlet, Subscribers(1))
    for number in range(5):
        log.publish(Change("updated", f"a://{number}"))
    subscriber.catch_up(0.0)
    assert set(outlet.told) == {Change("prompts"), Change("updated", "x://1"), Change("updated", "x://2")}
    assert len(outlet.told) == 3


async def test_the_uris_of_a_session_are_looked_at_when_something_changes() -> None:
    log, outlet, uris = ChangeLog(), Recorded(), set[str]()
    subscriber = Subscriber(Subscribed(log, ChangeFilter()), TONGUE, outlet, Subscribers(1), uris=uris)
    log.publish(Change("updated", "a://1"))
    subscriber.catch_up(0.0)
    uris.add("a://1")
    log.publish(Change("updated", "a://1"))
    subscriber.catch_up(1.0)
    uris.remove("a://1")
    log.publish(Change("updated", "a://1"))
    subscriber.catch_up(2.0)
    assert [number for number, _ in outlet.sent] == [2]


# -- all of them -------------------------------------------------------------------------------------------------------


async def test_the_acknowledgement_is_the_first_message_and_says_what_is_granted() -> None:
    log, followers = ChangeLog(), Subscribers(10)
    log.publish(Change("tools"))
    _, outlet = follow(followers, log, ChangeFilter(tools=True, uris=frozenset({"a://2", "a://1"})), after=0)
    first, second = outlet.sent
    assert first[1]["method"] == "notifications/subscriptions/acknowledged"
    assert first[1]["params"] == {
        "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a://1", "a://2"]},
        "_meta": {SUBSCRIPTION: 7},
    }
    assert second[1]["method"] == "notifications/tools/list_changed"


async def test_a_thousand_followers_hear_of_one_change_and_others_have_the_loop_meanwhile() -> None:
    log, followers = ChangeLog(), Subscribers(2000)
    outlets = [follow(followers, log)[1] for _ in range(1000)]
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not outlets[-1].told:
            asyncio.get_running_loop().call_soon(turn)

    log.publish(Change("tools"))
    turn()
    await until(lambda: bool(outlets[-1].told))
    assert all(outlet.told == [Change("tools")] for outlet in outlets)
    assert turns >= 4


async def test_a_change_published_during_delivery_of_another_reaches_all_subscribers() -> None:
    log, followers = ChangeLog(), Subscribers(2000)
    outlets = [follow(followers, log)[1] for _ in range(500)]
    log.publish(Change("tools"))
    while not outlets[0].told:  # noqa: ASYNC110 — it is about single turns of the loop
        await asyncio.sleep(0)
    assert not outlets[-1].told
    log.publish(Change("prompts"))
    await until(lambda: all(len(outlet.told) == 2 for outlet in outlets))


async def test_a_slow_reader_hears_of_each_thing_once_when_it_has_caught_up() -> None:
    log, followers = ChangeLog(), Subscribers(10)
    _, slow = follow(followers, log, ChangeFilter(tools=True, uris=frozenset(URIS)))
    _, quick = follow(followers, log, ChangeFilter(tools=True))
    slow.room.clear()
    log.publish(Change("tools"))
    await until(lambda: bool(slow.told))
    for number in range(5000):
        log.publish(Change("updated", URIS[number % 4]))
        if number % 100 == 0:
            log.publish(Change("tools"))
            await asyncio.sleep(0)
    assert len(slow.told) == 1
    assert len(quick.told) > 20
    slow.room.set()
    await until(lambda: len(slow.told) > 5)
    assert sorted(slow.told[1:], key=lambda change: change.uri) == [
        Change("tools"),
        *(Change("updated", uri) for uri in URIS),
    ]


class Late:
    """A copy of a log that has not come so far as the others."""

    def __init__(self) -> None:
        self.log = ChangeLog()
        self.log.take(7, Change("tools"))
        self.elsewhere: list[tuple[int, Change]] = []
        self.go_on = asyncio.Event()
        self.log.redirect_to(lambda change: None, self.catch_up)

    async def catch_up(self) -> None:
        await self.go_on.wait()
        while self.elsewhere:
            self.log.take(*self.elsewhere.pop(0))


async def test_a_subscriber_that_was_advanced_elsewhere_beyond_the_log_is_not_notified_twice() -> None:
    followers, late = Subscribers(10), Late()
    late.elsewhere += [(8, Change("prompts")), (9, Change("resources"))]
    subscriber, outlet = follow(followers, late.log, after=7)
    _, idle = follow(followers, late.log, after=7)
    # As when the newest stream of a session ends elsewhere and this one goes on.
    subscriber.after = 8
    followers.wake()
    late.go_on.set()
    await until(lambda: len(idle.told) == 2)
    assert outlet.told == [Change("resources")]
    assert subscriber.after == late.log.last == 9


async def test_a_subscriber_at_a_position_unknown_to_the_log_is_notified_that_anything_may_have_changed() -> None:
    followers, late = Subscribers(10), Late()
    late.go_on.set()
    _, outlet = follow(followers, late.log, after=1000)
    assert outlet.told == []
    await until(lambda: len(outlet.told) == 3)
    late.log.take(8, Change("tools"))
    await until(lambda: outlet.told[3:] == [Change("tools")])


async def test_a_change_from_a_thread_reaches_the_followers() -> None:
    log, followers = ChangeLog(), Subscribers(10)
    _, outlet = follow(followers, log)
    thread = threading.Thread(target=log.publish, args=(Change("resources"),))
    thread.start()
    await until(lambda: bool(outlet.told))
    thread.join()
    assert outlet.told == [Change("resources")]


async def test_an_update_within_the_minimum_interval_is_delivered_after_the_interval() -> None:
    log, followers = ChangeLog(), Subscribers(10)
    _, outlet = follow(followers, log, ChangeFilter(uris=frozenset(URIS)))
    for _ in range(2):
        log.publish(Change("updated", URIS[0]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(outlet.told) == 1
    await until(lambda: len(outlet.told) == 2)


async def test_who_has_left_hears_nothing_and_the_last_one_ends_the_watch() -> None:
    log, followers = ChangeLog(), Subscribers(10)
    gone: list[Subscriber] = []
    (first, early), (second, late) = (follow(followers, log, left=gone.append) for _ in range(2))
    first.leave()
    first.leave()
    log.publish(Change("tools"))
    await until(lambda: bool(late.told))
    assert early.told == []
    assert (len(followers), gone) == (1, [first])
    second.leave()
    assert log._watches == ()
    log.publish(Change("tools"))
    await asyncio.sleep(0)
    assert len(late.told) == 1
    assert not early.closed


async def test_all_subscriptions_end_with_the_result_of_their_request_and_new_ones_are_rejected() -> None:
    log, followers = ChangeLog(), Subscribers(10)
    _, outlet = follow(followers, log)
    followers.end()
    last = outlet.sent[-1][1]
    assert last["id"] == 7
    assert last["result"]["resultType"] == "complete"
    assert last["result"]["_meta"][SUBSCRIPTION] == 7
    assert outlet.closed
    assert len(followers) == 0
    with pytest.raises(Busy, match="shutting down"):
        follow(followers, log)


async def test_one_that_fails_is_cut_off_with_a_word_and_the_others_follow_on(caplog: pytest.LogCaptureFixture) -> None:
    log, followers = ChangeLog(), Subscribers(10)
    _, broken = follow(followers, log)
    _, sound = follow(followers, log)
    broken.fails = True
    with caplog.at_level(logging.ERROR):
        log.publish(Change("tools"))
        await until(lambda: bool(sound.told))
    assert "could not be sent to a subscriber" in caplog.text
    last = broken.sent[-1][1]
    assert last["method"] == "notifications/cancelled"
    assert last["params"]["requestId"] == 7
    assert last["params"]["_meta"] == {SUBSCRIPTION: 7}
    assert broken.closed
    assert len(followers) == 1


async def test_there_is_room_for_so_many_and_no_more() -> None:
    log, followers = ChangeLog(), Subscribers(2)
    first, _ = follow(followers, log)
    follow(followers, log)
    with pytest.raises(Busy, match="2 clients are already subscribed"):
        follow(followers, log)
    first.leave()
    follow(followers, log)


async def test_all_together_follow_so_many_uris_and_no_more() -> None:
    log = ChangeLog()
    followers = Subscribers(100, uri_bytes=1000)
    many, none = ChangeFilter(uris=frozenset(URIS)), ChangeFilter(tools=True)
    first, _ = follow(followers, log, many)
    follow(followers, log, many)
    with pytest.raises(Busy, match="URIs"):
        follow(followers, log, many)
    # What a session may subscribe to is bounded there, and others follow none.
    follow(followers, log, none, uris=set(URIS))
    follow(followers, log, none)
    first.leave()
    follow(followers, log, many)


def test_followers_of_a_loop_that_has_ended_are_forgotten() -> None:
    log, followers = ChangeLog(), Subscribers(10)
    told: list[Callable[[], list[Change]]] = []

    async def one_loop() -> None:
        _, outlet = follow(followers, log)
        log.publish(Change("tools"))
        await until(lambda: bool(outlet.told))
        told.append(lambda: outlet.told)

    asyncio.run(one_loop())
    asyncio.run(one_loop())
    assert [len(one()) for one in told] == [1, 1]
    assert len(followers) == 1


@given(number=st.integers(0, 10**18 - 1), text=st.text(max_size=30))
def test_an_event_id_names_a_place_in_the_log_or_none(number: int, text: str) -> None:
    assert read_event_id(event_id(number)) == number
    assert read_event_id("g-" + text) >= -1
