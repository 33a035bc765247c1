"""Every kind of message that the server sends has the members its revision requires, and none that it does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from pegboard import Board, Context, ToolError
from pegboard.protocol.revisions import LEGACY, MODERN, REVISIONS, SUPPORTED
from tests.server.fake_sink import PREFIX, Door, Legacy, Response, Visit, request

NEWER = ("2025-06-18", "2025-11-25", MODERN)


class Shape(NamedTuple):
    """The members of one kind of object: those it must have, and those it may have with the revisions that know them."""

    required: Mapping[str, Any]
    optional: Mapping[str, tuple[str, ...]]

    def check(self, value: Any, version: str) -> None:
        assert isinstance(value, dict)
        for name, kind in self.required.items():
            assert type(value[name]) in ((kind,) if isinstance(kind, type) else kind), (name, value)
        allowed = {name for name, revisions in self.optional.items() if version in revisions}
        assert set(value) <= set(self.required) | allowed, (version, value)


EVER = tuple(REVISIONS)
SINCE_MARCH = EVER[1:]
SINCE_NOVEMBER = EVER[3:]
MODERN_ONLY = (MODERN,)
NUMBER = (int, float)

IMPLEMENTATION = Shape(
    {"name": str, "version": str},
    {"title": NEWER, "icons": SINCE_NOVEMBER, "description": SINCE_NOVEMBER, "websiteUrl": SINCE_NOVEMBER},
)
INITIALIZED = Shape(
    {"protocolVersion": str, "capabilities": dict, "serverInfo": dict}, {"instructions": EVER, "_meta": EVER}
)
DISCOVERED = Shape(
    {
        "supportedVersions": list,
        "capabilities": dict,
        "resultType": str,
        "ttlMs": int,
        "cacheScope": str,
        "_meta": dict,
    },
    {"instructions": MODERN_ONLY},
)
LISTED = Shape({"tools": list}, {"nextCursor": EVER, "_meta": EVER})
LISTED_MODERN = Shape(
    {"tools": list, "resultType": str, "ttlMs": int, "cacheScope": str, "_meta": dict}, {"nextCursor": EVER}
)
TOOL = Shape(
    {"name": str, "inputSchema": dict},
    {
        "description": EVER,
        "annotations": SINCE_MARCH,
        "title": NEWER,
        "outputSchema": NEWER,
        "_meta": NEWER,
        "icons": SINCE_NOVEMBER,
    },
)
CALLED = Shape({"content": list}, {"isError": EVER, "structuredContent": NEWER, "_meta": EVER})
CALLED_MODERN = Shape(
    {"content": list, "resultType": str, "_meta": dict}, {"isError": EVER, "structuredContent": NEWER}
)
PROGRESS = Shape({"progressToken": (str, int), "progress": NUMBER}, {"total": EVER, "message": SINCE_MARCH})
ERROR = Shape({"code": int, "message": str}, {"data": EVER})


def make_board() -> Board:
    board = Board("wire", version="1.0", title="Wire", instructions="Use it.")

    @board.tool(
        "everything",
        title="Everything",
        annotations={"readOnlyHint": True},
        icons=[{"src": "https://example.com/i.png"}],
        meta={"com.example/x": 1},
    )
    async def everything(times: int, ctx: Context) -> dict[str, int]:
        """Has every field a tool can have."""
        for number in range(times):
            await ctx.progress(number + 1, times, "on it")
        return {"times": times}

    @board.tool
    async def number() -> int:
        """Its result is no object."""
        return 7

    @board.tool
    async def text() -> str:
        """Its result has no structure."""
        return "words"

    @board.tool
    async def nothing() -> None:
        """Its result is empty."""

    @board.tool
    async def sorry() -> str:
        """Fails in its own words."""
        raise ToolError("cannot")

    return board


class Client:
    """One way to ask in every revision."""

    def __init__(self, door: Door, version: str, session: Legacy | None) -> None:
        self.door = door
        self.version = version
        self._session = session

    def ask(self, method: str, params: Mapping[str, Any] | None = None, token: Any = None) -> Visit:
        meta = {} if token is None else {"progressToken": token}
        if self._session is None:
            return self.door.modern(method, params, meta=meta)
        return self._session.ask(method, {**(params or {}), "_meta": meta} if meta else params)

    def call(self, name: str, token: Any = None, **arguments: Any) -> Visit:
        return self.ask("tools/call", {"name": name, "arguments": arguments}, token)

    async def result(self, visit: Visit) -> Any:
        return self.check(await visit.response())[-1]["result"]

    def check(self, response: Response) -> list[Any]:
        """The messages of a response, each found to be one."""
        messages = response.messages if response.content_type == "text/event-stream" else [response.json]
        for message in messages:
            assert message["jsonrpc"] == "2.0"
            kinds = {"result", "error", "method"} & set(message)
            assert len(kinds) == 1
            assert set(message) - kinds <= ({"jsonrpc", "params"} if "method" in kinds else {"jsonrpc", "id"})
            assert "id" not in message or type(message["id"]) in (str, int)
            if "error" in message:
                ERROR.check(message["error"], self.version)
        assert all("method" in message for message in messages[:-1])
        assert "method" not in messages[-1]
        return messages

    def check_result(self, result: Any) -> None:
        if self.version == MODERN:
            assert result["resultType"] == "complete"
            IMPLEMENTATION.check(result["_meta"][PREFIX + "serverInfo"], MODERN)


async def connect(version: str) -> Client:
    board = make_board()
    door = Door(handler=board.handler, info=board.info)
    return Client(door, version, None if version == MODERN else await door.open_session(version))


EVERY = pytest.mark.parametrize("version", list(REVISIONS))


@pytest.mark.requirement("legacy/lifecycle/initialize-answered")
@pytest.mark.parametrize("version", sorted(LEGACY))
async def test_the_answer_to_initialize(version: str) -> None:
    client = await connect(version)
    result = client.check(await client.door.initialize(version))[0]["result"]
    INITIALIZED.check(result, version)
    IMPLEMENTATION.check(result["serverInfo"], version)
    assert result["protocolVersion"] == version
    assert set(result["capabilities"]) == {"logging", "tools"}


@pytest.mark.requirement("legacy/ping/answered")
@pytest.mark.parametrize("version", sorted(LEGACY))
async def test_the_answer_to_ping_is_empty(version: str) -> None:
    client = await connect(version)
    assert await client.result(client.ask("ping")) == {}


@pytest.mark.requirement("modern/versioning/discover")
async def test_the_answer_to_discover() -> None:
    client = await connect(MODERN)
    result = await client.result(client.ask("server/discover"))
    DISCOVERED.check(result, MODERN)
    client.check_result(result)
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")
    assert result["supportedVersions"] == list(SUPPORTED)


@EVERY
async def test_a_list_of_tools(version: str) -> None:
    client = await connect(version)
    result = await client.result(client.ask("tools/list"))
    (LISTED_MODERN if version == MODERN else LISTED).check(result, version)
    client.check_result(result)
    assert [tool["name"] for tool in result["tools"]] == ["everything", "number", "text", "nothing", "sorry"]
    for tool in result["tools"]:
        TOOL.check(tool, version)
        assert tool["inputSchema"]["type"] == "object"
        if "outputSchema" in tool and version != MODERN:
            assert tool["outputSchema"]["type"] == "object"
    full = set(result["tools"][0])
    assert ("annotations" in full, "title" in full, "icons" in full) == (
        version in SINCE_MARCH,
        version in NEWER,
        version in SINCE_NOVEMBER,
    )


@pytest.mark.requirement(
    "modern/base/jsonrpc",
    "legacy/base/jsonrpc",
    "modern/base/result-member",
    "legacy/base/result-member",
    "modern/base/result-type",
)
@EVERY
@pytest.mark.parametrize("tool", ["everything", "number", "text", "nothing", "sorry"])
async def test_the_result_of_a_call(version: str, tool: str) -> None:
    client = await connect(version)
    arguments = {"times": 2} if tool == "everything" else {}
    result = await client.result(client.call(tool, **arguments))
    (CALLED_MODERN if version == MODERN else CALLED).check(result, version)
    client.check_result(result)
    assert result.get("isError", False) is (tool == "sorry")
    for block in result["content"]:
        assert block["type"] == "text"
        assert isinstance(block["text"], str)
    structured = {"everything": {"times": 2}, "number": 7 if version == MODERN else {"result": 7}}.get(tool)
    assert result.get("structuredContent") == (structured if version in NEWER else None)


@pytest.mark.requirement("modern/base/notification-without-id", "legacy/base/notification-without-id")
@EVERY
async def test_a_progress_notice(version: str) -> None:
    client = await connect(version)
    for token in ("t", 0, 10**20):
        messages = client.check(await client.call("everything", token, times=2).response())
        notices = messages[:-1]
        assert [notice["params"]["progress"] for notice in notices] == [1, 2]
        for notice in notices:
            assert notice["method"] == "notifications/progress"
            PROGRESS.check(notice["params"], version)
            assert notice["params"]["progressToken"] == token
        client.check_result(messages[-1]["result"])


@pytest.mark.requirement(
    "modern/base/error-form",
    "legacy/base/error-form",
    "modern/base/error-code-integer",
    "legacy/base/error-code-integer",
)
@EVERY
async def test_errors(version: str) -> None:
    client = await connect(version)
    visits = {
        -32601: client.ask("no/such"),
        -32602: client.call("no_such"),
        -32700: client.door.send(b"{"),
        -32600: client.door.send(request(5)),
    }
    for code, visit in visits.items():
        message = client.check(await visit.response())[0]
        assert message["error"]["code"] == code
        assert ("id" in message) is (code != -32700)


async def test_the_typed_errors_of_the_modern_revision() -> None:
    client = await connect(MODERN)
    mismatch = client.check(await client.door.modern(headers={"mcp-method": "x"}).response())[0]["error"]
    assert mismatch["code"] == -32020
    other = client.check(await client.door.modern(headers={"mcp-protocol-version": None}).response())[0]["error"]
    assert other["code"] == -32020
    meta = {PREFIX + "protocolVersion": "v9"}
    unsupported = client.door.modern(meta=meta, headers={"mcp-protocol-version": "v9"})
    error = client.check(await unsupported.response())[0]["error"]
    assert error["code"] == -32022
    assert set(error["data"]) == {"requested", "supported"}
