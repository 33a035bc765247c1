"""Connections are cut, workers killed and restarted, and still every event comes once and in order, to its one end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from functools import partial
from pathlib import Path
from typing import Any

import h11
import pytest

from tests.cluster.servers import Guest, folder, guest, serve
from tests.server.http_clients import Response
from tests.server_processes import HttpChild
from tests.waiting import until

pytestmark = pytest.mark.process

BROKEN = (h11.RemoteProtocolError, ConnectionError, OSError, TimeoutError)


class Story:
    """One call as its client sees it, over however many connections."""

    def __init__(self, client: Guest, number: int, seed: int) -> None:
        self.number = number
        self.ids: list[str] = []
        self.messages: list[Any] = []
        self.cuts = 0
        self._client = client
        self._dice = random.Random(seed)

    @property
    def end(self) -> Any:
        """The answer, if it has come."""
        last = self.messages[-1] if self.messages else {}
        return last if last.get("id") == self.number and "method" not in last else None

    async def live(self, count: int, pause: float) -> None:
        """Call, and come back until there is an answer; a call that left nothing to come back for is made again."""
        last = None
        while self.end is None:
            try:
                response = await self._open(last, count, pause)
                assert response.status == 200, response.body
                await self._read(response)
            except BROKEN:
                self.cuts += 1
            except AssertionError as told:
                if "closed without an answer" not in str(told):
                    raise
                self.cuts += 1
            last = self.ids[-1] if self.ids else None
            await asyncio.sleep(self._dice.uniform(0, 0.05))

    async def replay(self) -> tuple[list[str], list[Any]]:
        """What the store has, from the beginning."""
        stream = self.ids[0].partition("-")[0]
        response = await self._client.come_back(f"{stream}-0")
        await response.rest()
        return [event.id for event in response.events if event.id and event.data], response.messages

    async def _open(self, last: str | None, count: int, pause: float) -> Response:
        if last is not None:
            return await self._client.come_back(last)
        return await self._client.start("pace", self.number, count=count, seconds=pause)

    async def _read(self, response: Response) -> None:
        cut_after = self._dice.randint(1, 60)
        while not response.ended and self.end is None:
            before = len(response.events)
            await response._read_part()
            for event in response.events[before:]:
                if event.id:
                    self.ids.append(event.id)
                if event.data:
                    self.messages.append(json.loads(event.data))
            if len(response.events) >= cut_after:
                self.cuts += 1
                response.line.hang_up()
                return


def workers_of(server: HttpChild) -> list[int]:
    listed = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    return [int(pid) for pid in listed.split()]


def _replaced(server: HttpChild, victim: int) -> bool:
    there = workers_of(server)
    return victim not in there and len(there) == 2


async def kill_workers(server: HttpChild, times: int, after: float, dice: random.Random) -> None:
    """Kill one worker after the other, each once the last has been replaced."""
    for _ in range(times):
        await asyncio.sleep(after)
        victim = dice.choice(workers_of(server))
        os.kill(victim, signal.SIGKILL)
        await until(partial(_replaced, server, victim))


async def cause_chaos(store: str, sessions: int, events: int, pause: float, kills: int) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    with serve(store, "--workers", "2") as server:
        clients = [Guest(server.port) for _ in range(sessions)]
        try:
            for client in clients:
                await client.initialize()
            stories = [Story(client, number, dice.randrange(2**32)) for number, client in enumerate(clients)]
            async with asyncio.TaskGroup() as tasks:
                for story in stories:
                    tasks.create_task(story.live(events, pause))
                tasks.create_task(kill_workers(server, kills, events * pause / (kills + 1), dice))
            lost = 0
            for story in stories:
                about = f"seed {seed}, story {story.number}, {story.cuts} cuts"
                ids, messages = await story.replay()
                told = [one for one in story.ids if not one.endswith("-0")]
                assert told == ids, about
                assert story.messages == messages, about
                assert [int(one.partition("-")[2]) for one in ids] == list(range(1, len(ids) + 1)), about
                steps = [message["params"]["progress"] for message in messages[:-1]]
                assert steps == list(range(1, len(steps) + 1)), about
                if "error" in story.end:
                    lost += 1
                    assert story.end["error"]["code"] == -32603, about
                else:
                    assert len(steps) == events, about
            assert lost > 0, f"seed {seed}: no call died with its worker"
            assert lost < sessions or kills > 1, f"seed {seed}: no call survived"
            assert sum(story.cuts for story in stories) > sessions
        finally:
            for client in clients:
                client.close()
        server.signal()
        assert server.wait() == 0


async def test_a_few_clients_miss_nothing_though_a_worker_dies(store: str) -> None:
    await cause_chaos(store, sessions=12, events=80, pause=0.02, kills=1)


@pytest.mark.slow
async def test_fifty_clients_miss_nothing_though_workers_die(store: str) -> None:
    await cause_chaos(store, sessions=50, events=200, pause=0.05, kills=3)


async def test_the_next_process_on_a_file_ends_what_one_that_was_killed_had_begun() -> None:
    with folder() as place:
        store = f"sqlite:{place}/store.db"
        with serve(store) as server:
            async with guest(server) as client:
                response = await client.start("pace", 1, count=500, seconds=0.01)
                await response.read(20)
                server.process.kill()
                with pytest.raises(BROKEN):
                    await response.rest()
        with serve(store) as server:
            async with guest(server) as other:
                other.session = client.session
                resumed = await other.come_back(response.last_id)
                messages = response.messages + await resumed.rest()
        assert messages[-1]["error"]["code"] == -32603
        steps = [message["params"]["progress"] for message in messages[:-1]]
        assert steps == list(range(1, len(steps) + 1))
