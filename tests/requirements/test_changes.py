"""Who follows the changes of a board hears of what was asked for, in the order and form that 2026-07-28 demands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from pegboard import Board, Context
from tests.requirements.clients import PREFIX, Client, connect
from tests.server.fake_sink import EventReader, Visit
from tests.server.fake_transport import until
from tests.waiting import SOON

EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["x://a"],
}
KINDS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
    "resourceSubscriptions": "notifications/resources/updated",
}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def make_board() -> Board:
    board = Board("changes", version="1")

    @board.tool
    async def touch(ctx: Context) -> str:
        """Changes a resource, and says so in every way there is."""
        await ctx.resource_changed("x://a")
        await ctx.log("error", "touched")
        await ctx.progress(1)
        return "touched"

    board.resource("x://a")(lambda: "a")
    board.resource("x://b")(lambda: "b")
    board.prompt("p")(lambda: "p")
    return board


def change_everything(board: Board) -> None:
    board.add(lambda: "more", name="more")
    board.resource("x://c")(lambda: "c")
    board.prompt("q")(lambda: "q")
    board.resource_changed("x://a")
    board.resource_changed("x://b")


class Listener:
    """A client that listens, and what it has heard."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit

    @property
    def heard(self) -> list[Any]:
        return [json.loads(event.data) for event in EventReader().feed(bytes(self.visit.sink.written)) if event.data]

    @property
    def methods(self) -> list[str]:
        return [message.get("method", "result") for message in self.heard]

    async def hears(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(SOON):
            await until(what)


async def listen(client: Client, notifications: dict[str, Any], request_id: Any = 1) -> Listener:
    meta = {PREFIX + "clientCapabilities": {}}
    visit = client.door.modern(
        "subscriptions/listen", {"notifications": notifications}, meta=meta, request_id=request_id
    )
    listener = Listener(visit)
    await listener.hears(lambda: listener.heard)
    return listener


@pytest.mark.requirement(
    "modern/subscriptions/acknowledged-first", "modern/subscriptions/nothing-before", "modern/base/subscription-id"
)
@pytest.mark.parametrize("request_id", [1, "one", 0])
async def test_the_first_word_is_the_acknowledgement_and_every_word_names_its_subscription(request_id: Any) -> None:
    board = make_board()
    client = await connect(board, "modern")
    change_everything(board)
    listener = await listen(client, EVERYTHING, request_id)
    board.remove("more")
    board.resource_changed("x://a")
    await listener.hears(lambda: len(listener.heard) >= 3)
    assert listener.methods[0] == ACKNOWLEDGED
    assert set(listener.methods[1:]) == {KINDS["toolsListChanged"], KINDS["resourceSubscriptions"]}
    for message in listener.heard:
        assert message["params"]["_meta"][PREFIX + "subscriptionId"] == request_id
        assert type(message["params"]["_meta"][PREFIX + "subscriptionId"]) is type(request_id)


@pytest.mark.requirement("modern/subscriptions/only-requested")
@pytest.mark.parametrize("wanted", KINDS)
async def test_a_subscription_hears_of_what_it_named_and_of_nothing_else(wanted: str) -> None:
    board = make_board()
    client = await connect(board, "modern")
    narrow, wide = await listen(client, {wanted: EVERYTHING[wanted]}), await listen(client, EVERYTHING, 2)
    assert narrow.heard[0]["params"]["notifications"] == {wanted: EVERYTHING[wanted]}
    change_everything(board)
    await wide.hears(lambda: set(KINDS.values()) <= set(wide.methods))
    await narrow.hears(lambda: KINDS[wanted] in narrow.methods)
    assert set(narrow.methods) == {ACKNOWLEDGED, KINDS[wanted]}
    assert {one["params"]["uri"] for one in wide.heard if one["method"].endswith("updated")} == {"x://a"}


@pytest.mark.requirement("modern/subscriptions/only-requested")
async def test_a_subscription_to_nothing_hears_nothing() -> None:
    board = make_board()
    client = await connect(board, "modern")
    silent, wide = await listen(client, {}), await listen(client, EVERYTHING, 2)
    change_everything(board)
    await wide.hears(lambda: set(KINDS.values()) <= set(wide.methods))
    assert silent.methods == [ACKNOWLEDGED]


@pytest.mark.requirement("modern/logging/own-stream", "modern/logging/level-required")
async def test_what_a_call_says_goes_to_its_caller_and_to_no_listener() -> None:
    board = make_board()
    client = await connect(board, "modern")
    listener = await listen(client, EVERYTHING, 9)
    quiet, asked = await connect(board, "modern"), await connect(board, "modern")
    await quiet.result("tools/call", {"name": "touch"}, token="t")
    await asked.result("tools/call", {"name": "touch", "_meta": {PREFIX + "logLevel": "info"}}, token="t")
    assert [message.get("method") for message in quiet.heard] == ["notifications/progress", None]
    assert [message.get("method") for message in asked.heard] == [
        "notifications/message",
        "notifications/progress",
        None,
    ]
    await listener.hears(lambda: KINDS["resourceSubscriptions"] in listener.methods)
    assert set(listener.methods) == {ACKNOWLEDGED, KINDS["resourceSubscriptions"]}


@pytest.mark.requirement("modern/logging/level-required")
@pytest.mark.parametrize(
    ("level", "heard"), [("debug", True), ("error", True), ("critical", False), ("emergency", False)]
)
async def test_a_log_message_reaches_those_who_asked_for_its_level(level: str, heard: bool) -> None:
    client = await connect(make_board(), "modern")
    await client.result("tools/call", {"name": "touch", "_meta": {PREFIX + "logLevel": level}})
    assert ("notifications/message" in [message.get("method") for message in client.heard]) is heard


@pytest.mark.requirement("modern/logging/capability")
async def test_a_server_whose_tools_may_log_declares_it() -> None:
    assert (await (await connect(make_board(), "modern")).capabilities())["logging"] == {}


@pytest.mark.requirement("modern/http/notices-of-the-request")
async def test_changes_are_sent_to_listeners_and_not_on_call_streams() -> None:
    client = await connect(make_board(), "modern")
    await client.result("tools/call", {"name": "touch"}, token="t")
    assert {message["method"] for message in client.heard if "method" in message} == {"notifications/progress"}


@pytest.mark.requirement("modern/cancellation/only-listen")
async def test_a_subscription_that_ends_in_good_order_ends_with_its_result() -> None:
    client = await connect(make_board(), "modern")
    listener = await listen(client, EVERYTHING, 7)
    await client.door.endpoint.drain(1, asyncio.Event())
    last = listener.heard[-1]
    assert (last["id"], last["result"]["resultType"]) == (7, "complete")
    assert last["result"]["_meta"][PREFIX + "subscriptionId"] == 7
    assert listener.visit.sink.ended
    assert "notifications/cancelled" not in listener.methods


@pytest.mark.requirement("modern/cancellation/listen-told", "modern/cancellation/only-listen")
async def test_a_subscription_that_we_cannot_go_on_with_is_cancelled_by_its_id() -> None:
    board = make_board()
    client = await connect(board, "modern")
    broken, whole = await listen(client, EVERYTHING, "broken"), await listen(client, EVERYTHING, "whole")
    sink = broken.visit.sink
    write = sink.write

    def fail(chunk: bytes) -> bool:
        if b"list_changed" in chunk:
            raise RuntimeError("no more")
        return write(chunk)

    sink.write = fail  # type: ignore[method-assign]
    change_everything(board)
    await broken.hears(lambda: sink.ended)
    await whole.hears(lambda: set(KINDS.values()) <= set(whole.methods))
    assert broken.methods == [ACKNOWLEDGED, "notifications/cancelled"]
    assert broken.heard[-1]["params"]["requestId"] == "broken"
    assert "notifications/cancelled" not in whole.methods
