"""Rules of the base protocol that hold for every message, in both revisions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pegboard import Board
from pegboard.errors import (
    HeaderMismatch,
    MissingCapability,
    Refusal,
    SessionNotFound,
    SessionsUnsupported,
    StreamError,
    UnsupportedVersion,
)
from tests.requirements.clients import ERAS, MODERN, PREFIX, connect
from tests.server.fake_sink import Door, notification
from tests.server_processes import StdioChild, modern

LABEL = "[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?"
META_KEY = re.compile(rf"({LABEL}(\.{LABEL})*/)?([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")


def make_board() -> Board:
    board = Board("rules", version="1")

    @board.tool
    async def add(a: int, b: int = 0) -> int:
        """Adds."""
        return a + b

    @board.tool(requires=["sampling"])
    async def summarise() -> str:
        """Needs a model."""
        return "short"

    board.resource("x://a")(lambda: "a")
    board.prompt("p")(lambda: "x")
    return board


@pytest.mark.requirement("modern/base/notification-unanswered", "legacy/base/notification-unanswered")
@ERAS
@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/unknown", "tools/list", "nonsense"])
async def test_a_message_without_an_id_is_never_answered(era: str, method: str) -> None:
    door = Door()
    headers = {"mcp-protocol-version": MODERN} if era == "modern" else (await door.open_session()).headers
    response = await door.send(notification(method), headers).response()
    assert (response.status, response.body) == (202, b"")


@pytest.mark.requirement("modern/http/notification-refused")
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"mcp-protocol-version": "v999"}, notification("notifications/x")),
        ({"mcp-protocol-version": MODERN, "content-type": "text/plain"}, notification("notifications/x")),
        ({"mcp-protocol-version": MODERN}, b'{"jsonrpc":"2.0","method":"notifications/x","method":"notifications/y"}'),
        ({"mcp-protocol-version": MODERN}, b'{"jsonrpc":"2.0","method":"notifications/x","params":[]}'),
    ],
)
async def test_a_notification_that_cannot_be_taken_is_an_http_error(headers: dict[str, Any], body: bytes) -> None:
    response = await Door().send(body, headers).response()
    assert 400 <= response.status < 500
    assert "id" not in response.json


@pytest.mark.requirement("modern/base/capability-missing", "modern/base/capability-missing-400")
async def test_a_call_that_needs_more_than_its_client_declared_is_refused_with_what_is_missing() -> None:
    client = await connect(make_board(), "modern")
    response = await client.response("tools/call", {"name": "summarise"})
    assert (response.status, response.code) == (400, -32021)
    assert response.json["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}
    able = await connect(make_board(), "modern", {"sampling": {}})
    assert (await able.result("tools/call", {"name": "summarise"}))["content"][0]["text"] == "short"


@pytest.mark.requirement("modern/base/capability-undeclared", "modern/base/stateless")
async def test_what_was_declared_on_one_request_counts_for_no_other() -> None:
    client = await connect(make_board(), "modern")
    able = {PREFIX + "clientCapabilities": {"sampling": {}}}
    assert "result" in (await client.response("tools/call", {"name": "summarise", "_meta": able})).json
    assert (await client.error("tools/call", {"name": "summarise"}))["code"] == -32021


@pytest.mark.requirement("legacy/lifecycle/capabilities-respected")
async def test_a_session_uses_what_its_client_declared_and_no_more() -> None:
    board = make_board()
    poor, able = await connect(board, "legacy"), await connect(board, "legacy", {"sampling": {}})
    refused = await poor.error("tools/call", {"name": "summarise"})
    assert "sampling" in refused["message"]
    assert (await able.result("tools/call", {"name": "summarise"}))["content"][0]["text"] == "short"
    assert "sampling" in (await poor.error("tools/call", {"name": "summarise"}))["message"]


def kinds_of(refusal: type[Refusal]) -> Iterator[type[Refusal]]:
    yield refusal
    for kind in refusal.__subclasses__():
        if kind.__module__ == "pegboard.errors":
            yield from kinds_of(kind)


@pytest.mark.requirement("modern/base/error-codes-defined", "modern/base/error-codes-none-new")
def test_of_the_reserved_codes_we_use_the_defined_ones() -> None:
    codes = {kind: kind.code for kind in kinds_of(Refusal)}
    assert {kind: code for kind, code in codes.items() if -32099 <= code <= -32020} == {
        HeaderMismatch: -32020,
        MissingCapability: -32021,
        UnsupportedVersion: -32022,
        SessionsUnsupported: -32022,
    }
    # A session is known only to the handshake, in whose revisions this code is in general use; streams of bytes are not
    # the protocol's.
    assert {kind for kind, code in codes.items() if -32019 <= code <= -32000} == {SessionNotFound, StreamError}


def keys_of_meta(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value.get("_meta", ())
        for part in value.values():
            yield from keys_of_meta(part)
    elif isinstance(value, list):
        for part in value:
            yield from keys_of_meta(part)


@pytest.mark.requirement(
    "modern/base/meta-prefix",
    "modern/base/meta-labels",
    "modern/base/meta-name",
    "legacy/base/meta-prefix",
    "legacy/base/meta-labels",
    "legacy/base/meta-name",
)
@ERAS
async def test_the_keys_we_write_into_meta_are_well_formed(era: str) -> None:
    client = await connect(make_board(), era)
    for method in ("tools/list", "resources/list", "prompts/list"):
        await client.result(method)
    # A repair is told in _meta.
    await client.result("tools/call", {"name": "add", "arguments": {"a": "1", "B": 2}})
    await client.result("tools/call", {"name": "add", "arguments": {"a": "x"}})
    keys = set(keys_of_meta(client.heard))
    assert keys
    assert [key for key in keys if not META_KEY.fullmatch(key)] == []
    assert {key for key in keys if key.startswith(PREFIX)} <= {PREFIX + "serverInfo"}


@pytest.mark.requirement("modern/base/meta-reserved", "legacy/base/meta-reserved")
@ERAS
@pytest.mark.parametrize("value", [None, 5, "x", [], {"any": "thing"}])
async def test_reserved_keys_we_do_not_know_may_hold_anything(era: str, value: Any) -> None:
    client = await connect(make_board(), era)
    meta = {PREFIX + "related-task": value, PREFIX + "future": value, "dev.mcp/x": value, "traceparent": value}
    result = await client.result("tools/call", {"name": "add", "arguments": {"a": 1}, "_meta": meta})
    assert result["content"][0]["text"] == "1"


@pytest.mark.requirement("modern/tasks/task-parameter-ignored", "legacy/tasks/undeclared-ignored")
@ERAS
@pytest.mark.parametrize("task", [{}, {"ttl": 60_000}, "x", None])
async def test_the_older_way_to_ask_for_a_task_has_no_effect(era: str, task: Any) -> None:
    client = await connect(make_board(), era)
    result = await client.result("tools/call", {"name": "add", "arguments": {"a": 1}, "task": task})
    assert result["content"] == [{"type": "text", "text": "1"}]


@pytest.mark.requirement(
    "modern/tasks/older-capability-not-told", "modern/tasks/result-method-gone", "legacy/tasks/undeclared-silent"
)
@ERAS
async def test_the_older_tasks_are_neither_declared_nor_served(era: str) -> None:
    client = await connect(make_board(), era)
    assert "tasks" not in await client.capabilities()
    assert (await client.error("tasks/result", {"taskId": "1"}))["code"] == -32601


@pytest.mark.requirement("modern/stdio/no-requests", "modern/stdio/lines", "legacy/stdio/lines")
def test_what_is_written_to_stdout_are_answers_and_notices_of_one_line_each() -> None:
    with StdioChild() as child:
        for text in ("one\ntwo", "a\r\nb", "\u2028"):
            called = child.request("tools/call", modern({"name": "fail", "arguments": {"text": text, "told": True}}))
            assert called["result"]["content"][0]["text"] == text
        child.answer(child.start_call("steps", upto=3, token="t"))
        child.initialize()
        called = child.request("tools/call", {"name": "fail", "arguments": {"text": "one\ntwo", "told": True}})
        assert called["result"]["content"][0]["text"] == "one\ntwo"
        assert child.messages
        assert not [message for message in child.messages if "method" in message and "id" in message]
