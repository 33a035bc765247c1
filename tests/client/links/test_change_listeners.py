"""Listeners of a legacy server: each hears what it asked for, and a URI is subscribed to once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pegboard.call import Notification, NullChannel
from pegboard.client.links.legacy_session import MAX_URI_LENGTH, ChangeListeners, FollowedUris

TOOLS = Notification("notifications/tools/list_changed", {})


class Heard(NullChannel):
    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    async def emit(self, notice: Notification) -> None:
        self.heard.append((notice.method.rpartition("notifications/")[2], notice.params.get("uri")))


def updated(uri: str) -> Notification:
    return Notification("notifications/resources/updated", {"uri": uri})


def on(*uris: str, **kinds: bool) -> Mapping[str, Any]:
    return {**kinds, "resourceSubscriptions": list(uris)}


async def test_each_hears_what_it_asked_for() -> None:
    listeners, one, two = ChangeListeners(), Heard(), Heard()
    listeners.add(one, on(toolsListChanged=True))
    listeners.add(two, on("memo://a"))
    for notice in (TOOLS, updated("memo://a"), updated("memo://a/part"), updated("memo://ab"), updated("memo://b")):
        await listeners.notify(notice)
    assert one.heard == [("tools/list_changed", None)]
    assert two.heard == [("resources/updated", "memo://a"), ("resources/updated", "memo://a/part")]


async def test_a_uri_is_subscribed_to_with_its_first_listener_and_left_with_its_last() -> None:
    listeners, one, two = ChangeListeners(), Heard(), Heard()
    assert listeners.add(one, on("a", "b", "a")) == ["a", "b"]
    assert listeners.add(two, on("b", "c")) == ["c"]
    assert sorted(listeners.uris) == ["a", "b", "c"]
    assert listeners.remove(one) == ["a"]
    assert listeners.remove(two) == ["b", "c"]
    assert listeners.uris == []
    assert listeners.remove(two) == []


async def test_after_a_gap_everybody_hears_of_all_it_asked_for() -> None:
    listeners, one = ChangeListeners(), Heard()
    listeners.add(one, on("a", toolsListChanged=True, promptsListChanged=False))
    await listeners.notify_all()
    assert one.heard == [("tools/list_changed", None), ("resources/updated", "a")]


@pytest.mark.parametrize("uri", [None, 5, [], "memo://a/" + "x" * MAX_URI_LENGTH])
async def test_an_update_with_an_invalid_uri_is_delivered_to_no_listener(uri: Any) -> None:
    listeners, one = ChangeListeners(), Heard()
    listeners.add(one, on("memo://a", "None", "5"))
    await listeners.notify(Notification("notifications/resources/updated", {"uri": uri}))
    assert one.heard == []


def test_a_change_is_compared_with_no_more_uris_than_have_its_length() -> None:
    followed = FollowedUris(f"memo://{number:06}" for number in range(100_000))
    assert len(followed._lengths) == 1
    assert followed.covers("memo://000007")
    assert followed.covers("memo://000007/part")
    assert not followed.covers("memo://0000077")


@pytest.mark.parametrize("followed", ["memo://", "memo://a/", "memo://a//"])
def test_a_slash_at_the_end_does_not_matter(followed: str) -> None:
    assert FollowedUris([followed]).covers("memo://a/part")
