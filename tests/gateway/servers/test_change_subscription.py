"""One subscription for all who follow: the new one begins before the old one ends, and what was missed is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from pegboard.call import Json, Notification
from pegboard.client.links.legacy_session import MAX_URI_LENGTH
from pegboard.client.links.link import OutgoingRequest
from pegboard.errors import ConnectionLost, InvalidParams
from pegboard.gateway.servers.change_subscription import ChangeSubscription
from pegboard.gateway.servers.server_catalog import ServerCatalog
from pegboard.gateway.servers.server_connection import ServerConnection
from tests.client.process_leftovers import nothing_left
from tests.gateway.fake_link import FakeLink
from tests.waiting import until

pytestmark = pytest.mark.process

EAGER = ServerCatalog(capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}})
SILENT = ServerCatalog(capabilities={"tools": {}})


class Server(FakeLink):
    """Takes subscriptions; `log` is what was begun and ended, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, tuple[str, ...]]] = []
        self.open_ones: list[OutgoingRequest] = []
        self.refused: set[str] = set()
        self.end = asyncio.Event()
        self.answer = self.listen

    async def listen(self, out: OutgoingRequest) -> Mapping[str, Json]:
        wanted = out.params["notifications"]
        uris = tuple(wanted["resourceSubscriptions"])
        if self.refused & set(uris):
            raise InvalidParams("no such resource")
        self.log.append(("begun", uris))
        self.open_ones.append(out)
        try:
            await out.channel.emit(Notification("notifications/subscriptions/acknowledged", {}))
            await self.end.wait()
        finally:
            self.open_ones.remove(out)
            self.log.append(("ended", uris))
        return {}

    async def tell(self, method: str, **params: Any) -> None:
        for out in self.open_ones:
            await out.channel.emit(Notification(f"notifications/{method}", params))


class Follower:
    def __init__(self) -> None:
        self.changes = 0
        self.updates: list[str] = []
        self.listening = ChangeSubscription(self._change, self.updates.append)

    def _change(self) -> None:
        self.changes += 1


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_only_changes_of_lists_and_subscribed_resources_are_reported() -> None:
    server, follower = Server(), Follower()
    follower.listening.follow(frozenset({"memo://1"}))
    async with nothing_left():
        task = asyncio.create_task(follower.listening.run(server.connection(), EAGER))
        await until(lambda: bool(server.open_ones))
        wanted = server.open_ones[0].params["notifications"]
        assert (wanted["toolsListChanged"], wanted["promptsListChanged"]) == (True, False)
        # The lists were read before the subscription began, so they may have changed since.
        await until(lambda: follower.changes == 1)
        await server.tell("tools/list_changed")
        await server.tell("resources/updated", uri="memo://1")
        await server.tell("resources/updated", uri="memo://1/part")
        # One that nobody follows, one that is none, and one that would fill the log of changes.
        for uri in ("memo://2", 7, "memo://1/" + "x" * MAX_URI_LENGTH):
            await server.tell("resources/updated", uri=uri)
        assert (follower.changes, follower.updates) == (2, ["memo://1", "memo://1/part"])
        await stop(task)


async def test_another_set_begins_before_the_old_one_ends() -> None:
    server, follower = Server(), Follower()
    async with nothing_left():
        task = asyncio.create_task(follower.listening.run(server.connection(), EAGER))
        await until(lambda: bool(server.open_ones))
        follower.listening.follow(frozenset({"memo://1"}))
        await until(lambda: len(server.log) == 3)
        follower.listening.follow(frozenset({"memo://1"}))
        follower.listening.follow(frozenset({"memo://2"}))
        await until(lambda: len(server.log) == 5)
        assert server.log == [
            ("begun", ()),
            ("begun", ("memo://1",)),
            ("ended", ()),
            ("begun", ("memo://2",)),
            ("ended", ("memo://1",)),
        ]
        await stop(task)


async def test_a_server_that_tells_nothing_is_not_subscribed_to_until_that_makes_sense() -> None:
    server, follower = Server(), Follower()
    task = asyncio.create_task(follower.listening.run(server.connection(), SILENT))
    follower.listening.follow(frozenset({"memo://1"}))
    for _ in range(10):
        await asyncio.sleep(0)
    assert server.log == []
    await stop(task)


async def test_one_resource_that_cannot_be_followed_does_not_cost_the_rest() -> None:
    server, follower = Server(), Follower()
    server.refused = {"memo://bad"}
    follower.listening.follow(frozenset({"memo://bad"}))
    task = asyncio.create_task(follower.listening.run(server.connection(), EAGER))
    await until(lambda: bool(server.open_ones) and follower.changes == 1)
    await server.tell("tools/list_changed")
    assert follower.changes == 2
    await stop(task)


async def test_the_end_of_a_subscription_and_the_changes_missed_meanwhile_are_reported() -> None:
    server, follower = Server(), Follower()
    follower.listening.follow(frozenset({"memo://1"}))
    connection: ServerConnection = server.connection()
    task = asyncio.create_task(follower.listening.run(connection, EAGER))
    await until(lambda: bool(server.open_ones))
    assert follower.updates == []
    server.end.set()
    with pytest.raises(ConnectionLost, match="ended the subscription"):
        await task
    server.end.clear()
    task = asyncio.create_task(follower.listening.run(connection, EAGER))
    await until(lambda: bool(server.open_ones))
    assert follower.updates == ["memo://1"]
    await stop(task)
