"""A legacy call's own side of its stream, also where the store takes its time, fails, or the reader lags behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.call import Call, Done, Notification, Question, Reply
from pegboard.errors import StoreDown
from pegboard.limits import Limits
from pegboard.protocol.framing.sse import EventReader
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store import LogName, LogPage, Watcher
from tests.server.fake_sink import Door, Legacy, Visit
from tests.server.fake_transport import until

ROOTS = Question("roots/list", {})


class SlowLogs:
    """Logs that take a moment for everything, and may be `down`; those that are `late` with word of what is safe."""

    def __init__(self, limits: Limits) -> None:
        self._logs = MemoryStore(limits).logs
        self.down = False
        self.late = False

    async def _wait(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        if self.down:
            raise StoreDown("the store is down")

    async def open(self, log: LogName, about: bytes = b"") -> bool:
        await self._wait()
        return await self._logs.open(log, about)

    async def append(self, log: LogName, seq: int, data: bytes, *, keep: bool = False, end: bool = False) -> bool:
        await self._wait()
        stored = await self._logs.append(log, seq, data, keep=keep, end=end)
        if self.late:
            await self._wait()
        return stored

    async def release(self, log: LogName, seq: int) -> None:
        await self._wait()
        await self._logs.release(log, seq)

    async def read(self, log: LogName, after: int, limit: int) -> LogPage | None:
        await self._wait()
        return await self._logs.read(log, after, limit)

    async def drop(self, session: str) -> None:
        await self._wait()
        await self._logs.drop(session)

    def watch(self, log: LogName, watcher: Watcher) -> Callable[[], None]:
        return self._logs.watch(log, watcher)


class SlowStore(MemoryStore):
    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.logs: Any = SlowLogs(limits)


class Office:
    """A Handler that runs what a test gives it."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self.release = asyncio.Event()

    async def __call__(self, call: Call) -> Reply:
        if call.method == "server/discover":
            return Done({"capabilities": {}, "supportedVersions": []})
        return Done({"content": [{"type": "text", "text": str(await self._work(call, self))}]})


async def tell(call: Call, number: int, pad: int = 0) -> None:
    params = {"progressToken": 1, "progress": number, "message": "x" * pad}
    await call.channel.emit(Notification("notifications/progress", params))


async def enter(work: Any, slow: bool = True, **limits: Any) -> tuple[Office, Legacy, Any]:
    office, bounds = Office(work), Limits(**limits)
    store = SlowStore(bounds) if slow else MemoryStore(bounds)
    return office, await Door(bounds, handler=office, store=store).open_session(), store


def heard(visit: Visit) -> list[Any]:
    """Progress as its number, the answer as its text."""
    found = []
    for event in EventReader().feed(bytes(visit.sink.written)):
        message = json.loads(event.data) if event.data else {}
        if "result" in message:
            found.append(message["result"]["content"][0]["text"])
        elif "progress" in message.get("params", {}):
            found.append(message["params"]["progress"])
    return found


def ids(visit: Visit) -> list[str]:
    return [event.id for event in EventReader().feed(bytes(visit.sink.written)) if event.id]


def last_id(visit: Visit) -> str:
    return ids(visit)[-1]


def come_back(session: Legacy, last: str) -> Visit:
    return session.send(b"", {"accept": "text/event-stream", "last-event-id": last}, method="GET")


async def test_what_several_tasks_of_a_call_say_at_once_is_one_stream_in_order() -> None:
    async def crowd(call: Call, office: Office) -> str:
        await asyncio.gather(*(tell(call, number) for number in range(1, 6)))
        return "done"

    _, session, _ = await enter(crowd)
    visit = session.call("crowd")
    response = await visit.response()
    assert heard(visit) == [1, 2, 3, 4, 5, "done"]
    stream = response.events[0].id.partition("-")[0]
    assert [event.id for event in response.events] == [f"{stream}-{number}" for number in range(7)]


async def test_an_answer_waits_for_what_was_said_before() -> None:
    async def leave_behind(call: Call, office: Office) -> str:
        office.late = asyncio.ensure_future(tell(call, 1))
        await asyncio.sleep(0)
        return "done"

    office, session, _ = await enter(leave_behind)
    visit = session.call("x")
    await visit.response()
    await office.late
    assert heard(visit) == [1, "done"]


@pytest.mark.parametrize("turns", range(8))
async def test_what_a_call_gives_up_saying_half_way_makes_no_gap(turns: int) -> None:
    async def hesitate(call: Call, office: Office) -> str:
        await tell(call, 1)
        saying = asyncio.ensure_future(tell(call, 2))
        for _ in range(turns):
            await asyncio.sleep(0)
        saying.cancel()
        await asyncio.wait({saying})
        await tell(call, 3)
        return "done"

    _, session, store = await enter(hesitate)
    store.logs.late = True
    visit = session.call("x")
    response = await visit.response()
    stream = response.events[0].id.partition("-")[0]
    assert [event.id for event in response.events] == [f"{stream}-{n}" for n in range(len(response.events))]
    assert heard(visit) in ([1, 2, 3, "done"], [1, 3, "done"])


async def test_nothing_is_said_after_the_answer() -> None:
    async def outlive(call: Call, office: Office) -> str:
        async def later() -> None:
            await office.release.wait()
            await tell(call, 2)
            await call.channel.close_stream(10)

        await tell(call, 1)
        office.late = asyncio.ensure_future(later())
        return "done"

    office, session, _ = await enter(outlive)
    visit = session.call("x")
    await visit.response()
    office.release.set()
    await office.late
    assert heard(visit) == [1, "done"]
    again = come_back(session, last_id(visit))
    await again.response()
    assert heard(again) == []


async def test_a_connection_that_reads_too_slowly_holds_the_call_up_only_until_its_client_comes_back() -> None:
    async def talk(call: Call, office: Office) -> str:
        for number in range(1, 4):
            await tell(call, number)
        return "done"

    async def begin(call: Call, office: Office) -> str:
        await tell(call, 0)
        await office.release.wait()
        return await talk(call, office)

    office, session, _ = await enter(begin, slow=False)
    visit = session.call("x")
    await until(lambda: heard(visit) == [0])
    visit.sink.clog()
    office.release.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert heard(visit) == [0, 1], "the call waits for its reader"
    back = come_back(session, last_id(visit).partition("-")[0] + "-1")
    await back.response()
    assert heard(back) == [1, 2, 3, "done"]
    assert visit.sink.ended


async def test_a_client_that_leaves_before_the_call_has_spoken_is_not_spoken_to() -> None:
    async def wait(call: Call, office: Office) -> str:
        await office.release.wait()
        await tell(call, 1)
        with pytest.raises(Exception, match="cannot be asked"):
            await call.channel.ask({"roots": ROOTS})
        return "done"

    office, session, _ = await enter(wait)
    visit = session.call("x")
    await asyncio.sleep(0)
    visit.sink.leave()
    office.release.set()
    await visit.settled()
    assert not visit.sink.started.is_set()


async def test_a_question_outlives_what_is_said_around_it_until_it_is_answered() -> None:
    async def ask_and_talk(call: Call, office: Office) -> str:
        asking = asyncio.ensure_future(call.channel.ask({"roots": ROOTS}))
        await office.release.wait()
        for number in range(1, 6):
            await tell(call, number)
        await asking
        for number in range(6, 9):
            await tell(call, number)
        await finish.wait()
        return "done"

    finish = asyncio.Event()
    office, session, _ = await enter(ask_and_talk, stream_events=3)
    visit = session.call("x")
    await until(lambda: b"roots/list" in visit.sink.written)
    [primed, _] = ids(visit)
    visit.sink.leave()
    office.release.set()
    for _ in range(100):
        await asyncio.sleep(0)
    back = come_back(session, primed)
    await until(lambda: heard(back) == [4, 5])
    messages = [json.loads(event.data) for event in EventReader().feed(bytes(back.sink.written))]
    assert messages[0]["method"] == "roots/list"
    answer = json.dumps({"jsonrpc": "2.0", "id": messages[0]["id"], "result": {}}).encode()
    assert (await session.send(answer).response()).status == 202
    await until(lambda: heard(back)[-1] == 8)
    again = come_back(session, primed)
    await until(lambda: heard(again) == [6, 7, 8])
    assert b"roots/list" not in again.sink.written
    finish.set()
    await again.response()
    assert heard(again) == [6, 7, 8, "done"]


async def test_a_stream_whose_log_is_gone_ends_its_call() -> None:
    ended: list[str] = []

    async def go_on(call: Call, office: Office) -> str:
        await tell(call, 1)
        await office.release.wait()
        try:
            await tell(call, 2)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "never"

    office, session, store = await enter(go_on)
    visit = session.call("x")
    await until(lambda: heard(visit) == [1])
    await store.logs.drop(session.id)
    office.release.set()
    await until(lambda: bool(ended))
    await visit.settled()
    assert (heard(visit), visit.sink.ended) == ([1], True)


async def test_if_the_store_fails_the_answer_is_still_sent_but_cannot_be_resumed() -> None:
    async def go_on(call: Call, office: Office) -> str:
        await tell(call, 1)
        await office.release.wait()
        return "done"

    office, session, store = await enter(go_on)
    visit = session.call("x")
    await until(lambda: heard(visit) == [1])
    before = last_id(visit)
    store.logs.down = True
    office.release.set()
    await visit.response()
    assert heard(visit) == [1, "done"]
    assert last_id(visit) == before


async def test_a_question_that_the_store_does_not_take_is_refused() -> None:
    async def ask(call: Call, office: Office) -> str:
        return str(await call.channel.ask({"roots": ROOTS}))

    _, session, store = await enter(ask)
    store.logs.down = True
    response = await session.call("x").response()
    assert (response.status, response.code) == (503, -32603)


async def talk_on(call: Call, office: Office) -> str:
    """Says 1, and on release 2, 3 and 4."""
    await tell(call, 1)
    await office.release.wait()
    for number in (2, 3, 4):
        await tell(call, number)
    return "done"


def keep_alive(session: Legacy) -> None:
    """What the sweep does after a while."""
    for one in tuple(session.door.endpoint.calls):
        one.keep_alive()


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_silent_call_is_kept_alive_on_a_resumable_stream(version: str) -> None:
    async def wait(call: Call, office: Office) -> str:
        await office.release.wait()
        return "done"

    office, bounds = Office(wait), Limits()
    session = await Door(bounds, handler=office, store=SlowStore(bounds)).open_session(version)
    visit = session.call("x")
    await asyncio.sleep(0)
    keep_alive(session)
    keep_alive(session)
    await until(lambda: b"keep-alive" in visit.sink.written)
    assert (b"id: " in visit.sink.written) == (version == "2025-11-25")
    keep_alive(session)
    assert visit.sink.written.count(b"keep-alive") == 2
    office.release.set()
    await visit.response()
    assert heard(visit) == ["done"]
    assert len({name.partition("-")[0] for name in ids(visit)}) == 1
    keep_alive(session)


async def test_a_silent_call_whose_store_is_down_stays_silent() -> None:
    async def wait(call: Call, office: Office) -> str:
        await office.release.wait()
        return "done"

    office, session, store = await enter(wait)
    visit = session.call("x")
    store.logs.down = True
    await asyncio.sleep(0)
    keep_alive(session)
    for _ in range(10):
        await asyncio.sleep(0)
    office.release.set()
    response = await visit.response()
    assert (response.status, response.content_type) == (200, "application/json")


async def test_a_connection_that_came_back_is_kept_alive_and_read_at_its_own_pace() -> None:
    office, session, _ = await enter(talk_on)
    visit = session.call("x")
    await until(lambda: heard(visit) == [1])
    back = come_back(session, last_id(visit))
    await until(lambda: visit.sink.ended)
    keep_alive(session)
    assert b"keep-alive" in back.sink.written
    back.sink.clog()
    office.release.set()
    await visit.settled()
    assert heard(back) == [2], "the call has ended, this reader is behind"
    back.sink.unclog()
    await back.response()
    assert heard(back) == [2, 3, 4, "done"]
    keep_alive(session)


async def test_a_connection_that_came_back_and_reads_too_slowly_is_let_go() -> None:
    office, session, _ = await enter(talk_on)
    visit = session.call("x")
    await until(lambda: heard(visit) == [1])
    back = come_back(session, last_id(visit))
    await until(lambda: visit.sink.ended)
    back.sink.clog()
    office.release.set()
    await until(lambda: heard(back) == [2])
    back.sink.leave()
    await back.settled()
    again = come_back(session, last_id(back))
    await again.response()
    assert heard(again) == [3, 4, "done"]


async def test_an_older_client_s_stream_is_not_closed_early() -> None:
    async def close(call: Call, office: Office) -> str:
        await tell(call, 1)
        await call.channel.close_stream(10)
        return "done"

    office, bounds = Office(close), Limits()
    session = await Door(bounds, handler=office).open_session("2025-03-26")
    visit = session.call("x")
    await visit.response()
    assert heard(visit) == [1, "done"]


async def test_what_the_revision_does_not_have_opens_no_stream() -> None:
    async def strange(call: Call, office: Office) -> str:
        await call.channel.emit(Notification("notifications/subscriptions/acknowledged", {}))
        return "done"

    _, session, _ = await enter(strange)
    assert (await session.call("x").response()).content_type == "application/json"


class Wanderer:
    """A client that loses its connections, and remembers what it has heard and where that was."""

    def __init__(self, session: Legacy, visit: Visit) -> None:
        self.session = session
        self.visit = visit
        self.heard: list[Any] = []
        self._place = last_id(visit)

    def cut(self) -> None:
        if b"id: " in self.visit.sink.written:
            self.heard.extend(heard(self.visit))
            self._place = last_id(self.visit)
            self.visit.sink.written.clear()
        self.visit.sink.leave()

    def come_back(self) -> None:
        self.cut()
        self.visit = come_back(self.session, self._place)


STEPS = st.lists(st.sampled_from(["tell", "hang up", "cut", "come back", "wait"]), max_size=25)


@given(steps=STEPS, slow=st.booleans(), end=st.sampled_from(["done", "cancelled"]))
async def test_whatever_happens_to_its_connections_a_client_hears_all_of_a_call_once(
    steps: list[str], slow: bool, end: str
) -> None:
    told: list[Any] = []
    orders: asyncio.Queue[str] = asyncio.Queue()

    async def obey(call: Call, office: Office) -> str:
        while (order := await orders.get()) != "end":
            if order == "tell":
                told.append(len(told) + 1)
                await tell(call, len(told))
            else:
                await call.channel.close_stream(10)
        return "done"

    _, session, _ = await enter(obey, slow)
    call = session.call("x")
    orders.put_nowait("tell")
    await until(lambda: heard(call) == [1])
    client = Wanderer(session, call)
    for step in steps:
        if step in ("tell", "hang up"):
            orders.put_nowait(step)
        elif step == "wait":
            for _ in range(15):
                await asyncio.sleep(0)
        else:
            client.cut() if step == "cut" else client.come_back()
    if end == "done":
        orders.put_nowait("end")
    else:
        await session.notify("notifications/cancelled", {"requestId": 1})
    await call.settled()
    client.come_back()
    await client.visit.settled()
    client.cut()
    if end == "done":
        assert client.heard == [*told, "done"]
    else:
        # What a call was saying when it was cancelled may be said or not.
        assert client.heard == told[: len(client.heard)]
        assert len(client.heard) >= len(told) - 1
