"""What a server declares, lists and reads, as both revisions demand it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs
import pytest

from pegboard import Audio, Board, Context, File, Image
from tests.requirements.clients import ERAS, Client, connect

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
WAV = b"RIFF\x26\0\0\0WAVEfmt " + b"\0" * 22
LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


def make_board(tmp_path: Path | None = None, **settings: Any) -> Board:
    board = Board("offers", version="1", **settings)

    @board.tool
    async def add(a: int, b: int = 0) -> int:
        """Adds."""
        return a + b

    @board.tool
    async def count(to: int, ctx: Context) -> int:
        """Counts."""
        for number in range(to):
            await ctx.progress(number + 1, to)
        return to

    @board.resource("notes://today")
    def today() -> str:
        return "Buy milk."

    @board.resource("notes://logo.png")
    def logo() -> bytes:
        return PNG

    @board.resource("pages://{book}/{page}")
    def page(book: str, page: int) -> str:
        return f"{book} {page}"

    @board.prompt
    def paint(color: Literal["red", "green"]) -> str:
        return f"Paint it {color}."

    @board.prompt
    def show() -> list[Any]:
        return [
            Image(PNG),
            Audio(WAV),
            File(b"plain words", name="words.txt"),
            File(PNG, name="logo.png"),
        ]

    if tmp_path is not None:
        board.files("docs://", tmp_path)
    return board


@pytest.mark.requirement(
    "modern/tools/capability",
    "modern/resources/capability",
    "modern/prompts/capability",
    "modern/completion/capability",
    "legacy/tools/capability",
    "legacy/resources/capability",
    "legacy/prompts/capability",
    "legacy/completion/capability",
)
@ERAS
async def test_what_is_served_is_declared(era: str) -> None:
    client = await connect(make_board(), era)
    served = {"tools": "tools/list", "resources": "resources/list", "prompts": "prompts/list"}
    declared = await client.capabilities()
    for capability, method in served.items():
        assert (await client.result(method))[capability]
        assert isinstance(declared[capability], dict)
    argument = {"name": "color", "value": "r"}
    told = await client.result(
        "completion/complete", {"ref": {"type": "ref/prompt", "name": "paint"}, "argument": argument}
    )
    assert told["completion"]["values"] == ["red", "green"]
    assert isinstance(declared["completions"], dict)


@pytest.mark.requirement("modern/tools/list", "modern/resources/list", "modern/prompts/list")
async def test_what_is_declared_is_listed_with_all_that_there_is() -> None:
    client = await connect(make_board(), "modern")
    listed = {method: await client.result(method) for method in LISTS}
    assert [tool["name"] for tool in listed["tools/list"]["tools"]] == ["add", "count"]
    assert [one["uri"] for one in listed["resources/list"]["resources"]] == ["notes://today", "notes://logo.png"]
    assert [one["name"] for one in listed["prompts/list"]["prompts"]] == ["paint", "show"]


@pytest.mark.requirement("modern/tools/list-steady", "modern/resources/list-steady", "modern/prompts/list-steady")
async def test_lists_depend_neither_on_the_connection_nor_on_what_was_asked_before() -> None:
    board = make_board()
    first, second = await connect(board, "modern"), await connect(board, "modern", {"sampling": {}, "roots": {}})
    before = {method: await first.result(method) for method in LISTS}
    await first.result("tools/call", {"name": "add", "arguments": {"a": 1}})
    await first.result("resources/read", {"uri": "notes://today"})
    await first.result("prompts/get", {"name": "paint", "arguments": {"color": "red"}})
    await first.error("tools/call", {"name": "nothing"})
    for client in (first, second):
        assert {method: await client.result(method) for method in LISTS} == before


@pytest.mark.requirement("modern/caching/hints", "modern/caching/ttl")
@pytest.mark.parametrize(
    ("method", "params"),
    [("server/discover", {}), *((method, {}) for method in LISTS), ("resources/read", {"uri": "notes://today"})],
)
async def test_what_may_be_cached_says_for_how_long_and_for_whom(method: str, params: dict[str, Any]) -> None:
    result = await (await connect(make_board(), "modern")).result(method, params)
    assert type(result["ttlMs"]) is int
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")


@pytest.mark.requirement("modern/caching/pages-alike")
@pytest.mark.parametrize(("method", "member"), list(LISTS.items()))
async def test_every_page_of_a_list_has_the_same_scope(method: str, member: str) -> None:
    client = await connect(make_board(page_size=1), "modern")
    page = await client.result(method)
    scopes, listed = [page["cacheScope"]], len(page[member])
    while "nextCursor" in page:
        page = await client.result(method, {"cursor": page["nextCursor"]})
        scopes.append(page["cacheScope"])
        listed += len(page[member])
    assert len(set(scopes)) == 1
    assert listed == {"resourceTemplates": 1}.get(member, 2)


@pytest.mark.requirement("modern/caching/public-is-shared")
async def test_what_is_public_is_the_same_for_everybody() -> None:
    board = make_board()
    answers = []
    for capabilities in ({}, {"sampling": {}}):
        client = await connect(board, "modern", capabilities)
        answers.append([await client.result(method) for method in ("server/discover", *LISTS)])
    for first, second in zip(*answers, strict=True):
        assert first["cacheScope"] == "private" or first == second
    assert any(answer["cacheScope"] == "public" for answer in answers[0])


@pytest.mark.requirement("modern/resources/not-found", "modern/resources/not-found-not-empty")
@pytest.mark.parametrize("uri", ["notes://nothing", "other://x", "docs://none", "pages://only-one"])
async def test_a_resource_that_does_not_exist_is_an_error_and_never_empty(uri: str, tmp_path: Path) -> None:
    client = await connect(make_board(tmp_path), "modern")
    error = await client.error("resources/read", {"uri": uri})
    assert (error["code"], error["data"]["uri"]) == (-32602, uri)


@pytest.mark.requirement("modern/resources/uris-validated", "legacy/resources/uris-validated")
@ERAS
@pytest.mark.parametrize(
    "uri", ["", "notes", "notes://today/../logo.png", "pages://a/not-a-number", "docs://../secret", "docs://%2e%2e/x"]
)
async def test_a_uri_that_is_not_exactly_one_of_ours_reads_nothing(era: str, uri: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "docs").mkdir()
    client = await connect(make_board(tmp_path / "docs"), era)
    assert (await client.error("resources/read", {"uri": uri}))["code"] in (-32602, -32002)


@pytest.mark.requirement("modern/resources/binary-encoded", "legacy/resources/binary-encoded")
@ERAS
async def test_bytes_are_sent_as_base64(era: str) -> None:
    client = await connect(make_board(), era)
    (content,) = (await client.result("resources/read", {"uri": "notes://logo.png"}))["contents"]
    assert base64.b64decode(content["blob"], validate=True) == PNG
    assert "text" not in content


@pytest.mark.requirement(
    "modern/prompts/image",
    "modern/prompts/audio",
    "modern/prompts/embedded",
    "legacy/prompts/image",
    "legacy/prompts/audio",
    "legacy/prompts/embedded",
)
@ERAS
async def test_the_content_of_a_prompt_says_what_it_is(era: str) -> None:
    client = await connect(make_board(), era)
    messages = (await client.result("prompts/get", {"name": "show"}))["messages"]
    image, audio, words, logo = [message["content"] for message in messages]
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(image["data"], validate=True) == PNG
    assert (audio["type"], audio["mimeType"]) == ("audio", "audio/wav")
    assert base64.b64decode(audio["data"], validate=True) == WAV
    for block in (words, logo):
        assert block["type"] == "resource"
        assert ":" in block["resource"]["uri"]
        assert ("text" in block["resource"]) is not ("blob" in block["resource"])
    assert (words["resource"]["mimeType"], words["resource"]["text"]) == ("text/plain", "plain words")
    assert logo["resource"]["mimeType"] == "image/png"
    assert base64.b64decode(logo["resource"]["blob"], validate=True) == PNG


@pytest.mark.requirement("modern/prompts/inputs-validated", "legacy/prompts/inputs-validated")
@ERAS
@pytest.mark.parametrize("arguments", [{}, {"color": "blue"}, {"color": ["red"]}, {"color": "red", "size": "5"}])
async def test_arguments_that_a_prompt_does_not_take_never_reach_it(era: str, arguments: dict[str, Any]) -> None:
    client = await connect(make_board(), era)
    error = await client.error("prompts/get", {"name": "paint", "arguments": arguments})
    assert error["code"] == -32602


@pytest.mark.requirement("modern/completion/no-disclosure", "legacy/completion/no-disclosure")
@ERAS
@pytest.mark.parametrize(
    ("ref", "argument"),
    [
        ({"type": "ref/prompt", "name": "hidden"}, "color"),
        ({"type": "ref/prompt", "name": "paint"}, "size"),
        ({"type": "ref/prompt", "name": "add"}, "a"),
        ({"type": "ref/resource", "uri": "docs://{path}"}, "path"),
    ],
)
async def test_nothing_is_completed_that_is_not_offered(era: str, ref: dict[str, Any], argument: str) -> None:
    client = await connect(make_board(), era)
    params = {"ref": ref, "argument": {"name": argument, "value": ""}}
    error = await client.error("completion/complete", params)
    assert error["code"] in (-32602, -32002)


@pytest.mark.requirement(
    "modern/tools/input-schema", "modern/base/schemas-valid", "legacy/tools/input-schema", "legacy/base/schemas-valid"
)
@ERAS
async def test_the_schemas_of_tools_are_valid_objects(era: str) -> None:
    client = await connect(make_board(), era)
    for tool in (await client.result("tools/list"))["tools"]:
        assert tool["inputSchema"]["type"] == "object"
        for schema in (tool["inputSchema"], tool.get("outputSchema", {})):
            assert jsonschema_rs.meta.is_valid(schema)


@pytest.mark.requirement("legacy/progress/stops")
async def test_the_answer_is_the_last_that_is_said_of_a_request() -> None:
    client = await connect(make_board(), "legacy")
    await client.result("tools/call", {"name": "count", "arguments": {"to": 3}}, token="t")
    assert [("id" in message) for message in client.heard] == [False, False, False, True]


async def everything(client: Client) -> None:
    """Ask for everything a board has, and for some things it has not."""
    for method in LISTS:
        await client.result(method)
    await client.result("tools/call", {"name": "count", "arguments": {"to": 2}}, token="t")
    await client.result("tools/call", {"name": "add", "arguments": {"a": "x"}})
    await client.result("resources/read", {"uri": "notes://today"})
    await client.result("prompts/get", {"name": "show"})
    ref = {"type": "ref/prompt", "name": "paint"}
    await client.result("completion/complete", {"ref": ref, "argument": {"name": "color", "value": ""}})
    for method, params in (
        ("tools/call", {"name": "nothing"}),
        ("tools/call", {"name": 5}),
        ("resources/read", {"uri": "notes://nothing"}),
        ("prompts/get", {"name": "nothing"}),
        ("completion/complete", {"ref": 1}),
        ("tools/list", {"cursor": "made-up"}),
        ("unknown/method", {}),
    ):
        await client.error(method, params)


@pytest.mark.requirement("modern/base/result-types-known", "modern/http/no-requests")
async def test_results_have_types_we_declare_and_nothing_is_asked_on_a_stream() -> None:
    client = await connect(make_board(), "modern")
    await client.result("server/discover")
    await everything(client)
    results = [message["result"] for message in client.heard if "result" in message]
    assert len(results) >= 9
    assert {result["resultType"] for result in results} == {"complete"}
    assert not [message for message in client.heard if "method" in message and "id" in message]
    assert {message["method"] for message in client.heard if "method" in message} == {"notifications/progress"}


@pytest.mark.requirement("modern/base/error-codes-retired", "modern/base/error-codes-none-new")
async def test_no_error_of_a_modern_answer_has_a_code_of_the_past() -> None:
    client = await connect(make_board(), "modern")
    await everything(client)
    codes = {message["error"]["code"] for message in client.heard if "error" in message}
    assert codes <= {-32600, -32601, -32602}
    assert codes
