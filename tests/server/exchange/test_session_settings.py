"""What a legacy client wishes for its session over HTTP: a log level, and news of resources."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Board
from pegboard.limits import Limits
from pegboard.protocol.revisions import LOG_LEVELS
from tests.server.fake_sink import PREFIX, Door, Legacy


def session_of(legacy: Legacy) -> Any:
    return legacy.door.endpoint.sessions.find(legacy.id, "")


async def test_a_session_hears_from_info_on_until_it_says_otherwise() -> None:
    door = Door()
    one, other = await door.open_session(), await door.open_session()
    await one.call("echo").response()
    for level in LOG_LEVELS:
        response = await one.ask("logging/setLevel", {"level": level}).response()
        assert (response.status, response.json["result"]) == (200, {})
        await one.call("echo").response()
    await other.call("echo").response()
    levels = [call.caller.log_level for call in door.probe.calls if call.method == "tools/call"]
    assert levels == ["info", *LOG_LEVELS, "info"]


@pytest.mark.parametrize("params", [{"level": "loud"}, {"level": 3}, {"level": None}, {}, None])
async def test_an_invalid_log_level_is_rejected(params: Any) -> None:
    one = await Door().open_session()
    response = await one.ask("logging/setLevel", params).response()
    assert response.code == -32602
    assert "emergency" in response.error
    assert session_of(one).caller.log_level == "info"


async def test_a_modern_request_with_a_level_that_is_none_is_refused() -> None:
    response = await Door().call("echo", meta={PREFIX + "logLevel": "loud"}).response()
    assert (response.status, response.code) == (400, -32602)
    assert "emergency" in response.error


def make_door(**limits: Any) -> Door:
    board = Board("x")

    @board.resource("test://{name}")
    async def any_one(name: str) -> str:
        return name

    return Door(Limits(**limits), handler=board.handler)


async def test_subscriptions_are_kept_in_the_session_until_they_are_ended() -> None:
    door = make_door()
    one, other = await door.open_session(), await door.open_session()
    for uri in ("test://a", "test://b", "test://a"):
        response = await one.ask("resources/subscribe", {"uri": uri}).response()
        assert (response.status, response.json["result"]) == (200, {})
    assert session_of(one).uris == {"test://a", "test://b"}
    assert session_of(other).uris == set()
    for uri in ("test://a", "test://never"):
        assert (await one.ask("resources/unsubscribe", {"uri": uri}).response()).json["result"] == {}
    assert session_of(one).uris == {"test://b"}


async def test_a_resource_that_does_not_exist_is_not_found_and_not_kept() -> None:
    one = await make_door().open_session()
    response = await one.ask("resources/subscribe", {"uri": "other://a"}).response()
    assert (response.status, response.code) == (200, -32002)
    assert session_of(one).uris == set()


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
async def test_a_subscription_names_a_resource(method: str) -> None:
    one = await make_door().open_session()
    response = await one.ask(method, {}).response()
    assert response.code == -32602
    assert "params.uri" in response.error


@pytest.mark.parametrize("limits", [{"subscribed_uris": 2}, {"subscribed_uri_bytes": 17}])
async def test_a_session_has_so_many_subscriptions(limits: Any) -> None:
    one = await make_door(**limits).open_session()
    for uri in ("test://a", "test://b", "test://b"):
        assert (await one.ask("resources/subscribe", {"uri": uri}).response()).code is None
    response = await one.ask("resources/subscribe", {"uri": "test://c"}).response()
    assert response.code == -32602
    assert "unsubscribe" in response.error
    await one.ask("resources/unsubscribe", {"uri": "test://a"}).response()
    assert (await one.ask("resources/subscribe", {"uri": "test://c"}).response()).code is None
