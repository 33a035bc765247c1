"""Threads for synchronous tools: bounded, apart from the loop, and never mixed up."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
import time
from concurrent.futures import Future

import pytest

from pegboard.errors import ToolError
from pegboard.execution.threads import Threads, waiting_outside
from tests.waiting import SOON, until


class Held:
    """A function that stays in its thread until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.ended = threading.Event()

    def __call__(self, value: object = None) -> object:
        self.begun.set()
        self.go.wait(SOON)
        self.ended.set()
        return value


async def test_a_function_runs_in_another_thread_and_its_value_comes_back() -> None:
    threads = Threads(4, 4)
    assert await threads.run(lambda a, b: (a + b, threading.get_ident()), 1, 2) != (3, threading.get_ident())


async def test_the_loop_goes_on_while_a_function_blocks() -> None:
    threads, held = Threads(1, 4), Held()
    waiting = asyncio.ensure_future(threads.run(held, "late"))
    await until(held.begun.is_set)
    assert await asyncio.sleep(0, "the loop is free") == "the loop is free"
    held.go.set()
    assert await waiting == "late"


async def test_context_variables_flow_in_and_not_back() -> None:
    flavour: contextvars.ContextVar[str] = contextvars.ContextVar("flavour", default="none")
    threads = Threads(1, 4)

    def taste() -> str:
        seen = flavour.get()
        flavour.set("changed in the thread")
        return seen

    flavour.set("sweet")
    assert await threads.run(taste) == "sweet"
    assert flavour.get() == "sweet"
    flavour.set("sour")
    assert await threads.run(taste) == "sour"


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, ToolError])
async def test_whatever_is_raised_reaches_the_caller_and_the_thread_lives_on(kind: type[BaseException]) -> None:
    threads, raised = Threads(1, 4), kind("no")

    def fail() -> None:
        raise raised

    with pytest.raises(kind) as caught:
        await threads.run(fail)
    assert caught.value is raised
    assert await threads.run(lambda: "alive") == "alive"


async def test_stop_iteration_does_not_end_anything_quietly() -> None:
    threads = Threads(1, 4)

    def fail() -> None:
        raise StopIteration("early")

    with pytest.raises(RuntimeError):
        await threads.run(fail)
    assert await threads.run(lambda: "alive") == "alive"


async def test_a_cancelled_caller_leaves_at_once_and_its_thread_keeps_its_place() -> None:
    threads, held = Threads(1, 4), Held()
    left: list[asyncio.Future[None]] = []
    waiting = asyncio.ensure_future(threads.run(held, on_leave=left.append))
    await until(held.begun.is_set)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not held.ended.is_set()
    assert (threads.busy, threads.abandoned) == (1, 1)
    assert not left[0].done()
    held.go.set()
    async with asyncio.timeout(SOON):
        await left[0]
    assert (threads.busy, threads.abandoned) == (0, 0)
    assert await threads.run(lambda: "free again") == "free again"


async def test_a_job_whose_caller_left_while_it_waited_is_never_begun() -> None:
    threads, held, begun = Threads(1, 4), Held(), []
    first = asyncio.ensure_future(threads.run(held))
    await until(held.begun.is_set)
    second = asyncio.ensure_future(threads.run(begun.append, 1))
    await asyncio.sleep(0)
    second.cancel()
    held.go.set()
    await first
    assert await threads.run(lambda: "after it") == "after it"
    assert begun == []
    assert second.cancelled()


async def test_a_full_pool_says_so_and_serves_again_when_there_is_room() -> None:
    threads, held = Threads(1, 1), Held()
    first = asyncio.ensure_future(threads.run(held))
    await until(held.begun.is_set)
    second = asyncio.ensure_future(threads.run(lambda: "second"))
    await asyncio.sleep(0)
    with pytest.raises(ToolError, match="busy: all 1 threads are in use and 1 calls wait"):
        await threads.run(lambda: "third")
    held.go.set()
    await first
    assert await second == "second"
    assert await threads.run(lambda: "third") == "third"


async def test_a_pool_held_by_callers_that_left_is_busy_at_once() -> None:
    threads, held = Threads(2, 512), [Held(), Held()]
    waiting = [asyncio.ensure_future(threads.run(one)) for one in held]
    for one in held:
        await until(one.begun.is_set)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    with pytest.raises(ToolError, match="held by cancelled calls"):
        await threads.run(lambda: "no room")
    held[0].go.set()
    await until(lambda: threads.abandoned == 1)
    assert await threads.run(lambda: "room") == "room"
    held[1].go.set()


class Asking(Held):
    """A function that waits for somebody outside."""

    def __call__(self, value: object = None) -> object:
        with waiting_outside():
            return super().__call__(value)


async def test_a_thread_that_waits_for_somebody_lends_its_place_and_one_goes_when_it_is_back() -> None:
    threads, asking = Threads(1, 8, 2), [Asking(), Asking()]
    # The second waits in the queue until the first lends its place.
    waiting = [asyncio.ensure_future(threads.run(one, number)) for number, one in enumerate(asking)]
    for one in asking:
        await until(one.begun.is_set)
    assert await threads.run(lambda: "meanwhile") == "meanwhile"
    assert threads._started == 3
    for one in asking:
        one.go.set()
    assert await asyncio.gather(*waiting) == [0, 1]
    for _ in range(3):
        assert await threads.run(lambda: "after it") == "after it"
    await until(lambda: threads._started == 1)
    assert threads.busy == 0


async def test_where_too_many_wait_for_somebody_the_next_keeps_its_place() -> None:
    threads, asking = Threads(1, 8, 1), [Asking(), Asking()]
    waiting = [asyncio.ensure_future(threads.run(one, number)) for number, one in enumerate(asking)]
    for one in asking:
        await until(one.begun.is_set)
    late = asyncio.ensure_future(threads.run(lambda: "late"))
    await asyncio.sleep(0)
    assert threads._started == 2
    asking[1].go.set()
    assert await late == "late"
    assert not asking[0].ended.is_set()
    asking[0].go.set()
    assert await asyncio.gather(*waiting) == [0, 1]


async def test_another_thread_than_the_pools_lends_nothing() -> None:
    def wait() -> str:
        with waiting_outside():
            return "waited"

    assert await asyncio.to_thread(wait) == "waited"


async def test_no_more_threads_are_started_than_are_needed() -> None:
    threads = Threads(32, 512)
    for number in range(50):
        assert await threads.run(lambda number=number: number) == number
    assert threads._started == 1


def test_one_pool_serves_one_loop_after_the_other() -> None:
    threads = Threads(2, 4)
    for number in range(3):
        assert asyncio.run(asyncio.wait_for(threads.run(lambda number=number: number), SOON)) == number


def test_one_pool_serves_two_loops_at_once() -> None:
    threads, answers = Threads(4, 512), {}

    async def many(name: str) -> list[str]:
        return await asyncio.gather(*(threads.run(lambda n=n: f"{name}{n}") for n in range(200)))

    def serve(name: str) -> None:
        answers[name] = asyncio.run(asyncio.wait_for(many(name), SOON))

    loops = [threading.Thread(target=serve, args=(name,)) for name in "ab"]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(SOON)
    assert answers == {name: [f"{name}{n}" for n in range(200)] for name in "ab"}


def test_a_function_that_returns_after_its_loop_closed_does_no_harm() -> None:
    threads, held = Threads(1, 4), Held()

    async def begin_and_go() -> None:
        running = asyncio.ensure_future(threads.run(held))
        await until(held.begun.is_set)
        assert not running.done()

    asyncio.run(begin_and_go())
    held.go.set()
    assert held.ended.wait(SOON)
    assert asyncio.run(asyncio.wait_for(threads.run(lambda: "next"), SOON)) == "next"


async def test_thousands_of_calls_with_random_cancels_balance_and_mix_nothing_up() -> None:
    threads = Threads(8, 5000)
    dice = random.Random(7)

    def work(number: int, pause: float) -> int:
        if pause:
            time.sleep(pause)
        if number % 13 == 0:
            raise ValueError(number)
        return number

    async def call(number: int) -> str:
        try:
            value = await threads.run(work, number, dice.choice((0, 0, 0, 0.0005)))
        except ValueError as error:
            return f"raised {error}"
        return f"returned {value}"

    tasks = [asyncio.ensure_future(call(number)) for number in range(4000)]
    cancelled = set(dice.sample(range(4000), 1000))
    for number in sorted(cancelled):
        if number % 7 == 0:
            await asyncio.sleep(0)
        tasks[number].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for number, outcome in enumerate(outcomes):
        if number not in cancelled:
            assert outcome == f"{'raised' if number % 13 == 0 else 'returned'} {number}"
        else:
            assert isinstance(outcome, asyncio.CancelledError) or str(outcome).endswith(f" {number}")
    await until(lambda: threads._unfinished == 0)
    assert (threads.busy, threads.abandoned) == (0, 0)
    assert threads._started <= 8


async def test_a_thread_that_never_returns_does_not_keep_the_process() -> None:
    assert await Threads(1, 1).run(lambda: threading.current_thread().daemon)


async def test_a_future_of_another_kind_is_only_a_value() -> None:
    made: Future[int] = Future()
    assert await Threads(1, 1).run(lambda: made) is made


async def test_principals_get_a_thread_in_turn() -> None:
    threads, held, order = Threads(1, 200), Held(), list[str]()
    first = asyncio.ensure_future(threads.run(held))
    await until(held.begun.is_set)
    flood = [asyncio.ensure_future(threads.run(order.append, "flood", owner="flood")) for _ in range(100)]
    ada = asyncio.ensure_future(threads.run(order.append, "ada", owner="ada"))
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(first, ada, *flood)
    assert order.index("ada") == 1
    assert order.count("flood") == 100


async def test_a_principal_that_waits_with_many_calls_makes_room_for_another() -> None:
    threads, held = Threads(1, 2), Held()
    first = asyncio.ensure_future(threads.run(held))
    await until(held.begun.is_set)
    flood = [asyncio.ensure_future(threads.run(str, owner="flood")) for _ in range(2)]
    await asyncio.sleep(0)
    ada = asyncio.ensure_future(threads.run(str, "ada", owner="ada"))
    with pytest.raises(ToolError, match="busy"):
        await flood[1]
    held.go.set()
    assert await ada == "ada"
    await asyncio.gather(first, flood[0])


async def test_calls_that_are_cancelled_while_they_wait_leave_the_queue() -> None:
    threads, held = Threads(1, 2), Held()
    first = asyncio.ensure_future(threads.run(held))
    await until(held.begun.is_set)
    for _ in range(10):
        waiting = [asyncio.ensure_future(threads.run(str, owner="flood")) for _ in range(2)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    ada = asyncio.ensure_future(threads.run(str, "ada", owner="ada"))
    await asyncio.sleep(0)
    held.go.set()
    assert await ada == "ada"
    await first
