"""Resources, prompts and completions, asked for as clients do."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import threading
import tracemalloc
import weakref
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Raw

from pegboard import Board, Client, Context, File, Image, Limits, ToolError
from pegboard.call import Call, Caller, Change, Done, EncodedResult, Json, Notification
from pegboard.catalog.folder import READS, read_file
from pegboard.errors import DeclarationError, InternalFailure, InvalidParams, ResourceNotFound
from pegboard.protocol.legacy_codec import LegacyCodec
from pegboard.protocol.revisions import MODERN

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


class Silence:
    async def emit(self, notice: Notification) -> None:
        raise AssertionError("nothing is to be said")


async def ask(board: Board, method: str, name: str = "", **params: Json) -> dict[str, Any]:
    """The result of a method; params as the client sends them."""
    call = Call(
        method=method,
        caller=Caller(version=MODERN, transport="direct"),
        channel=Silence(),
        id=1,
        name=name,
        raw=Raw(msgspec.json.encode(params.get("arguments", {}))),
        params=Raw(msgspec.json.encode(params)),
    )
    try:
        reply = await board.handler(call)
    finally:
        await board.stop()
    result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
    return dict(result)


async def test_a_fixed_resource_is_listed_and_read() -> None:
    board = Board()

    @board.resource("notes://today", mime_type="text/markdown", size=9)
    def today() -> str:
        """What is on today."""
        return "Buy milk."

    listed = await ask(board, "resources/list")
    assert listed["resources"] == [
        {
            "uri": "notes://today",
            "name": "today",
            "title": "Today",
            "description": "What is on today.",
            "mimeType": "text/markdown",
            "size": 9,
        }
    ]
    assert (await ask(board, "resources/templates/list"))["resourceTemplates"] == []
    read = await ask(board, "resources/read", "notes://today")
    assert read["contents"] == [{"uri": "notes://today", "mimeType": "text/markdown", "text": "Buy milk."}]
    assert read["ttlMs"] >= 0
    assert read["cacheScope"] in {"public", "private"}


async def test_a_template_fills_typed_parameters_from_the_uri() -> None:
    board = Board()

    @board.resource("pages://{book}/{page}")
    async def page(book: str, page: int) -> dict[str, Any]:
        return {"book": book, "next": page + 1}

    listed = await ask(board, "resources/templates/list")
    assert [one["uriTemplate"] for one in listed["resourceTemplates"]] == ["pages://{book}/{page}"]
    read = await ask(board, "resources/read", "pages://a%20b/41")
    assert read["contents"] == [
        {"uri": "pages://a%20b/41", "mimeType": "application/json", "text": '{"book":"a b","next":42}'}
    ]
    with pytest.raises(InvalidParams, match="page"):
        await ask(board, "resources/read", "pages://a/x")


async def test_bytes_are_read_as_a_blob_and_the_exact_uri_goes_before_a_template() -> None:
    board = Board()

    @board.resource("x://{name}")
    def any_one(name: str) -> str:
        return "template"

    @board.resource("x://logo.png")
    def logo() -> bytes:
        return PNG

    content = (await ask(board, "resources/read", "x://logo.png"))["contents"][0]
    assert content["mimeType"] == "image/png"
    assert content["blob"].startswith("iVBORw0KGgo")
    assert (await ask(board, "resources/read", "x://other"))["contents"][0]["text"] == "template"


@pytest.mark.parametrize("uri", ["notes://nothing", "other://x", ""])
async def test_an_unknown_uri_is_rejected_with_the_uri(uri: str) -> None:
    board = Board()

    @board.resource("notes://{name}")
    def note(name: str) -> str | None:
        return None

    with pytest.raises(ResourceNotFound) as refused:
        await ask(board, "resources/read", uri)
    assert refused.value.code == -32602
    assert refused.value.data == {"uri": uri}
    assert LegacyCodec("2025-11-25", {}).code(refused.value) == -32002


async def test_what_an_author_says_reaches_the_client_and_what_fails_does_not() -> None:
    board = Board()

    @board.resource("x://said")
    def said() -> str:
        raise ToolError("the shelf is empty")

    @board.resource("x://broken")
    def broken() -> str:
        raise ValueError("password=secret")

    with pytest.raises(InternalFailure, match="the shelf is empty"):
        await ask(board, "resources/read", "x://said")
    with pytest.raises(InternalFailure, match=r"broken failed, error id [0-9a-f]{8}$"):
        await ask(board, "resources/read", "x://broken")


async def test_a_resource_larger_than_the_limit_is_not_sent() -> None:
    board = Board(limits=Limits(result_bytes=100))
    board.resource("x://much")(lambda: "x" * 101)
    with pytest.raises(InternalFailure, match="too large"):
        await ask(board, "resources/read", "x://much")


@pytest.mark.requirement("modern/resources/uri-scheme", "legacy/resources/uri-scheme")
@pytest.mark.parametrize(
    ("uri", "wrong"),
    [
        ("no-scheme", "not a URI"),
        ("x://{other}", "has no variable for the parameter name"),
        ("x://{name}/{more}", "no parameter more"),
    ],
)
def test_a_resource_that_cannot_work_is_refused_where_it_is_declared(uri: str, wrong: str) -> None:
    board = Board()
    with pytest.raises(DeclarationError, match=wrong):

        @board.resource(uri)
        def note(name: str) -> str:
            return name


def test_a_uri_that_is_taken_is_refused() -> None:
    board = Board()
    board.resource("x://a")(lambda: "one")
    with pytest.raises(DeclarationError, match="already exists"):
        board.resource("x://a")(lambda: "two")


@pytest.mark.requirement("modern/resources/no-traversal")
async def test_the_files_of_a_folder_are_read_and_nothing_outside_it(tmp_path: Path) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "docs" / "deep" / "a.md").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "docs" / "link").symlink_to(tmp_path / "secret")
    board = Board()
    board.files("docs://", tmp_path / "docs")
    content = (await ask(board, "resources/read", "docs://deep/a.md"))["contents"][0]
    assert content == {"uri": "docs://deep/a.md", "mimeType": "text/markdown", "text": "inside"}
    for path in ("../secret", "deep/../../secret", "link", "%2e%2e/secret", "/etc/passwd", "deep", "none", "a%00b"):
        with pytest.raises(ResourceNotFound):
            await ask(board, "resources/read", f"docs://{path}")


async def test_the_files_of_a_folder_are_listed_and_each_can_be_read_as_listed(tmp_path: Path) -> None:
    for path in (
        "b.md",
        "a b.txt",
        "what?#100%.md",
        "deep/deeper/c.json",
        "deep/ö",
        ".env",
        ".git/config",
        "deep/.hidden",
    ):
        (tmp_path / "docs" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / path).write_text(path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (tmp_path / "docs" / "link").symlink_to(tmp_path / "outside" / "secret")
    (tmp_path / "docs" / "folder").symlink_to(tmp_path / "outside")
    (tmp_path / "docs" / "loop").symlink_to(tmp_path / "docs")
    board = Board()
    board.resource("docs://b.md")(lambda: "hung by hand")
    board.files("docs://", tmp_path / "docs")
    listed = (await ask(board, "resources/list"))["resources"]
    assert listed[0]["uri"] == "docs://b.md"
    assert listed[1:] == [
        {"uri": "docs://a%20b.txt", "name": "a b.txt", "mimeType": "text/plain"},
        {"uri": "docs://deep/deeper/c.json", "name": "deep/deeper/c.json", "mimeType": "application/json"},
        {"uri": "docs://deep/%C3%B6", "name": "deep/ö"},
        {"uri": "docs://what%3F%23100%25.md", "name": "what?#100%.md", "mimeType": "text/markdown"},
    ]
    for one in listed[1:]:
        [content] = (await ask(board, "resources/read", one["uri"]))["contents"]
        assert content["text"] == one["name"]
    for hidden in (".env", ".git/config", "deep/.hidden"):
        with pytest.raises(ResourceNotFound):
            await ask(board, "resources/read", f"docs://{hidden}")
    board.resources.remove("docs://{+path}")
    assert len((await ask(board, "resources/list"))["resources"]) == 1


async def test_a_folder_is_listed_with_its_current_files_and_subscribers_are_notified(tmp_path: Path) -> None:
    board = Board()
    board.files("docs://", tmp_path)
    told = board.changes.last
    assert (await ask(board, "resources/list"))["resources"] == []
    assert board.changes.last == told
    (tmp_path / "new.md").write_text("new")
    assert [one["uri"] for one in (await ask(board, "resources/list"))["resources"]] == ["docs://new.md"]
    assert [change for _, change in board.changes.read(told)] == [Change("resources")]
    told = board.changes.last
    (tmp_path / "new.md").write_text("with another content the list is the same")
    await ask(board, "resources/list")
    assert board.changes.last == told
    shutil.rmtree(tmp_path)
    assert (await ask(board, "resources/list"))["resources"] == []
    assert board.changes.last > told


async def test_no_more_files_are_listed_than_a_list_should_have(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number % 3}").mkdir(exist_ok=True)
        (tmp_path / f"{number % 3}" / f"{number:02}").write_text("")
    board = Board(limits=Limits(listed_files=12), page_size=5)
    board.files("docs://all/", tmp_path)
    uris, page = [], await ask(board, "resources/list")
    uris += [one["uri"] for one in page["resources"]]
    while "nextCursor" in page:
        page = await ask(board, "resources/list", cursor=page["nextCursor"])
        uris += [one["uri"] for one in page["resources"]]
    assert uris == [f"docs://all/0/{number:02}" for number in range(0, 30, 3)] + ["docs://all/1/01", "docs://all/1/04"]


async def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(600 * 1024 * 1024)
    board = Board()
    board.files("docs://", tmp_path)
    board.resource("x://huge")(lambda: tmp_path / "huge.bin")
    tracemalloc.start()
    try:
        for uri in ("docs://huge.bin", "x://huge"):
            with pytest.raises(InternalFailure, match=r"huge\.bin is larger than the limit of 16777216 bytes"):
                await ask(board, "resources/read", uri)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


async def test_a_file_is_read_up_to_the_limit_and_not_beyond(tmp_path: Path) -> None:
    board = Board(limits=Limits(result_bytes=8))
    board.files("docs://", tmp_path)
    for size in (0, 1, 8):
        (tmp_path / "a.txt").write_text("a" * size)
        assert (await ask(board, "resources/read", "docs://a.txt"))["contents"][0]["text"] == "a" * size
    (tmp_path / "a.txt").write_text("a" * 9)
    with pytest.raises(InternalFailure, match="larger than the limit of 8 bytes"):
        await ask(board, "resources/read", "docs://a.txt")


def test_a_file_that_does_not_tell_its_size_is_read_up_to_the_limit() -> None:
    # Linux says that they are empty; other systems have none.
    for told_empty in filter(Path.exists, [Path("/proc/self/status").resolve()]):
        assert read_file(told_empty, 100_000).startswith(b"Name:")
        with pytest.raises(ToolError, match="larger than the limit of 10 bytes"):
            read_file(told_empty, 10)


async def test_a_file_that_is_not_regular_is_not_opened_for_reading(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    board = Board()
    board.files("docs://", tmp_path)
    board.resource("x://pipe")(lambda: tmp_path / "pipe")
    with pytest.raises(ResourceNotFound):
        await ask(board, "resources/read", "docs://pipe")
    with pytest.raises(ResourceNotFound):
        await ask(board, "resources/read", "x://pipe")
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "pipe", 10)


async def test_a_file_is_read_in_a_thread_and_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a")
    threads, reading, most = set[int](), set[object](), 0
    together = threading.Barrier(READS)

    def watched(path: Path, limit: int) -> bytes:
        nonlocal most
        me = object()
        reading.add(me)
        most = max(most, len(reading))
        threads.add(threading.get_ident())
        together.wait(30)
        data = read_file(path, limit)
        reading.discard(me)
        return data

    monkeypatch.setattr("pegboard.catalog.folder.read_file", watched)
    board = Board()
    board.files("docs://", tmp_path)
    await asyncio.gather(*(ask(board, "resources/read", "docs://a.txt") for _ in range(5 * READS)))
    assert most == READS
    assert threading.get_ident() not in threads


async def test_a_file_has_the_uri_that_was_read_unless_it_has_its_own() -> None:
    board = Board()
    board.resource("x://one")(lambda: File(text="a", name="a.txt"))
    board.resource("x://own")(lambda: File(text="a", uri="y://own"))
    board.resource("x://two")(lambda: [File(text="a", name="a.txt"), File(text="b", name="b.txt")])
    for uri, uris in (("one", ["x://one"]), ("own", ["y://own"]), ("two", ["file:///a.txt", "file:///b.txt"])):
        contents = (await ask(board, "resources/read", f"x://{uri}"))["contents"]
        assert [content["uri"] for content in contents] == uris


async def test_what_was_taken_down_is_forgotten() -> None:
    board, hung = Board(), []
    for _ in range(3):

        def said() -> str:
            return "x"

        board.prompt("said")(said)
        board.resource("x://said")(said)
        await ask(board, "prompts/get", "said")
        await ask(board, "resources/read", "x://said")
        board.prompts.remove("said")
        board.resources.remove("x://said")
        hung.append(weakref.ref(said))
        del said
    gc.collect()
    assert [one() for one in hung] == [None, None, None]


async def test_lists_come_in_pages_whose_cursors_cannot_be_made_up() -> None:
    board = Board(page_size=2)
    for number in range(5):
        board.resource(f"x://{number}")(lambda: "x")
    seen: list[str] = []
    cursor = None
    for _ in range(3):
        page = await ask(board, "resources/list", **({} if cursor is None else {"cursor": cursor}))
        seen += [one["uri"] for one in page["resources"]]
        cursor = page.get("nextCursor")
    assert cursor is None
    assert seen == [f"x://{number}" for number in range(5)]
    first = (await ask(board, "resources/list"))["nextCursor"]
    for wrong in ("x", first[:-1], first + "A", Board(page_size=2)):
        with pytest.raises(InvalidParams):
            await ask(board, "resources/list", cursor=wrong if isinstance(wrong, str) else 5)
    with pytest.raises(InvalidParams):
        await ask(board, "prompts/list", cursor=first)


async def test_tools_come_in_pages_that_follow_a_change_and_the_transport() -> None:
    board = Board(page_size=2)
    for number in range(4):
        board.add(lambda: "x", name=f"tool{number}")
    board.add(lambda: "x", name="local", transports=["stdio"])
    first = await ask(board, "tools/list")
    assert [tool["name"] for tool in first["tools"]] == ["tool0", "tool1"]
    second = await ask(board, "tools/list", cursor=first["nextCursor"])
    third = await ask(board, "tools/list", cursor=second["nextCursor"])
    assert [tool["name"] for tool in (*second["tools"], *third["tools"])] == ["tool2", "tool3", "local"]
    assert "nextCursor" not in third
    board.remove("tool3")
    changed = await ask(board, "tools/list", cursor=first["nextCursor"])
    assert [tool["name"] for tool in changed["tools"]] == ["tool2", "local"]
    with pytest.raises(InvalidParams):
        await ask(board, "resources/list", cursor=first["nextCursor"])
    async with Client(board) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["tool0", "tool1", "tool2", "local"]


async def test_a_resource_that_comes_or_goes_changes_the_list() -> None:
    board = Board()
    board.resource("x://a")(lambda: "a")
    assert len((await ask(board, "resources/list"))["resources"]) == 1
    board.resources.remove("x://a")
    assert (await ask(board, "resources/list"))["resources"] == []


async def test_a_prompt_tells_its_arguments_and_makes_its_messages() -> None:
    board = Board()

    @board.prompt
    def review(code: Annotated[str, "What to review"], tone: Literal["kind", "strict"] = "kind") -> str:
        """Asks for a review."""
        return f"Review in a {tone} tone: {code}"

    assert (await ask(board, "prompts/list"))["prompts"] == [
        {
            "name": "review",
            "title": "Review",
            "description": "Asks for a review.",
            "arguments": [
                {"name": "code", "description": "What to review", "required": True},
                {"name": "tone", "required": False},
            ],
        }
    ]
    got = await ask(board, "prompts/get", "review", arguments={"code": "x = 1", "tone": "STRICT"})
    assert got["messages"] == [{"role": "user", "content": {"type": "text", "text": "Review in a strict tone: x = 1"}}]
    with pytest.raises(InvalidParams, match="code"):
        await ask(board, "prompts/get", "review")
    with pytest.raises(InvalidParams, match="did you mean 'review'"):
        await ask(board, "prompts/get", "revew")


async def test_a_prompt_may_be_several_messages_with_content_of_every_kind() -> None:
    board = Board()

    @board.prompt("look", title="Look at it")
    async def look(ctx: Context) -> list[Any]:
        return [Image(PNG), {"role": "assistant", "content": "What is it?"}, {"role": "user", "content": "Go on."}]

    messages = (await ask(board, "prompts/get", "look"))["messages"]
    assert [(one["role"], one["content"]["type"]) for one in messages] == [
        ("user", "image"),
        ("assistant", "text"),
        ("user", "text"),
    ]


async def test_completions_come_from_the_type_or_from_a_function() -> None:
    board = Board()

    @board.prompt
    def paint(color: Literal["red", "rose", "green"], city: str = "") -> str:
        return color

    @board.complete("paint", "city")
    async def cities(typed: str) -> list[str]:
        return ["Oslo", "Bergen", "Moss"]

    async def completed(argument: str, typed: str) -> dict[str, Any]:
        ref = {"type": "ref/prompt", "name": "paint"}
        told = await ask(board, "completion/complete", ref=ref, argument={"name": argument, "value": typed})
        return dict(told["completion"])

    assert await completed("color", "r") == {"values": ["red", "rose", "green"], "total": 3, "hasMore": False}
    assert (await completed("color", "ro"))["values"] == ["rose"]
    assert (await completed("city", "os"))["values"] == ["Oslo", "Moss"]
    with pytest.raises(InvalidParams, match="no argument"):
        await completed("size", "x")


class Cities:
    """A service."""

    names = ("Oslo", "Bergen")


async def test_a_completion_takes_services_and_runs_in_a_thread_if_it_is_a_plain_function() -> None:
    board = Board()
    board.services.factory(Cities, Cities)
    threads = []

    @board.prompt
    def visit(city: str) -> str:
        return city

    @board.complete("visit", "city")
    def cities(cities: Cities, typed: str) -> list[str]:
        threads.append(threading.get_ident())
        return [f"{name} ({typed})" for name in cities.names]

    ref = {"type": "ref/prompt", "name": "visit"}
    told = await ask(board, "completion/complete", ref=ref, argument={"name": "city", "value": "o"})
    assert told["completion"]["values"] == ["Oslo (o)", "Bergen (o)"]
    assert threading.get_ident() not in threads


def test_a_completion_with_a_parameter_that_nothing_supplies_is_rejected() -> None:
    board = Board()

    def cities(typed: str, country: str) -> list[str]:
        return []

    with pytest.raises(
        DeclarationError, match=r"test_catalog_methods.py:\d+: a completion takes .* 'country' is neither"
    ):
        board.complete("visit", "city")(cities)


@pytest.mark.requirement("modern/completion/hundred")
async def test_at_most_a_hundred_completions_are_returned() -> None:
    board = Board()
    board.resource("x://{name}")(lambda name: name)
    board.complete("x://{name}", "name")(lambda typed: [f"n{number}" for number in range(250)])
    ref = {"type": "ref/resource", "uri": "x://{name}"}
    told = await ask(board, "completion/complete", ref=ref, argument={"name": "name", "value": "n"})
    assert len(told["completion"]["values"]) == 100
    assert told["completion"]["total"] == 250
    assert told["completion"]["hasMore"]


@pytest.mark.requirement("modern/completion/inputs-validated", "legacy/completion/inputs-validated")
@pytest.mark.parametrize("params", [{}, {"ref": {"type": "ref/other"}}, {"ref": 1, "argument": {}}])
async def test_a_malformed_completion_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match="needs ref"):
        await ask(Board(), "completion/complete", **params)


async def test_only_what_there_is_is_declared() -> None:
    board = Board()
    always = {"logging": {}, "tools": {"listChanged": True}}
    assert (await ask(board, "server/discover"))["capabilities"] == always
    board.prompt("p")(lambda: "x")
    declared = {**always, "prompts": {"listChanged": True}, "completions": {}}
    assert (await ask(board, "server/discover"))["capabilities"] == declared
    board.resource("a://b")(lambda: "x")
    declared["resources"] = {"listChanged": True, "subscribe": True}
    assert (await ask(board, "server/discover"))["capabilities"] == declared


async def test_older_revisions_receive_only_the_fields_they_know() -> None:
    board = Board()
    board.resource("x://a", meta={"k": 1})(lambda: "a")
    listed = Done(await ask(board, "resources/list"))
    old = msgspec.json.decode(LegacyCodec("2024-11-05", {}).result("resources/list", listed))
    assert set(old["resources"][0]) == {"uri", "name"}
    assert set(old) == {"resources"}
    new = msgspec.json.decode(LegacyCodec("2025-11-25", {}).result("resources/list", listed))
    assert set(new["resources"][0]) == {"uri", "name", "title", "_meta"}
