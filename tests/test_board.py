"""The Board: hanging functions on it leaves them functions."""

from __future__ import annotations

import asyncio
import functools
import inspect
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from pegboard import (
    Board,
    Client,
    Context,
    Limits,
    Middleware,
    Tool,
    ToolExecutionContext,
    ToolResult,
    join_name,
    parse_name,
)
from pegboard.call import NULL_CHANNEL, Call, Caller, Done, EncodedResult
from pegboard.errors import DeclarationError, InvalidParams, MissingCapability, UnknownTool
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.sqlite.sqlite_store import SqliteStore

ROOT = Path(__file__).resolve().parent.parent


def test_a_function_stays_the_function_it_was() -> None:
    board = Board()

    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    before = dict(vars(add)), inspect.signature(add)
    assert board.tool(add) is add
    assert board.tool("other", title="Other")(add) is add
    assert (dict(vars(add)), inspect.signature(add)) == before
    assert add(1, 2) == 3


async def test_a_tool_is_named_described_and_titled_by_its_function_or_by_its_author() -> None:
    board = Board()

    @board.tool
    def getUserName() -> None:  # noqa: N802 — the case is what is tested
        """Looks a user up.

        More that only people read.
        """

    @board.tool()
    def plain() -> None: ...

    @board.tool("given", title="A Title", description="A description.")
    def whatever() -> None: ...

    @board.tool(name="by_keyword")
    def another() -> None: ...

    async with Client(board) as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
    assert list(tools) == ["get_user_name", "plain", "given", "by_keyword"]
    assert tools["get_user_name"]["description"].startswith("Looks a user up.")
    assert (tools["given"]["title"], tools["given"]["description"]) == ("A Title", "A description.")


async def test_methods_partials_and_callable_objects_can_be_registered() -> None:
    board = Board()

    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def up(self, by: int = 1) -> int:
            self.count += by
            return self.count

    class Doubler:
        def __call__(self, number: int) -> int:
            return number * 2

    def scale(number: int, factor: int) -> int:
        return number * factor

    counter = Counter()
    board.tool(counter.up)
    board.add(Doubler(), name="double")
    board.add(functools.partial(scale, factor=3), name="triple")
    async with Client(board) as client:
        assert (await client.call("up", {"by": 2})).text == "2"
        assert (await client.call("double", {"number": 4})).text == "8"
        assert (await client.call("triple", {"number": 4})).text == "12"
    assert counter.count == 2


def test_a_name_that_is_taken_is_refused_and_the_first_stays() -> None:
    board = Board()
    board.add(lambda: 1, name="one")
    with pytest.raises(DeclarationError, match="'one' is taken"):
        board.add(lambda: 2, name="one")
    assert len(board.tools) == 1


def test_an_option_that_does_not_exist_is_refused_with_the_one_meant() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'description'"):
        Board().tool(descripton="typo")(lambda: None)


def test_taking_down_what_does_not_hang_is_refused() -> None:
    with pytest.raises(UnknownTool):
        Board().remove("nothing")


async def test_a_declared_tool_can_be_registered_alongside_functions() -> None:
    board = Board()

    class Search(Tool):
        name, description = "memory.search", "Searches."

        async def execute(self, context: Any) -> str:
            return f"found by {context.request.tool_name}"

    board.add(Search())
    async with Client(board) as client:
        assert (await client.call("memory.search")).text == "found by memory.search"


def test_a_board_says_who_it_is() -> None:
    assert Board("a", version="2").info == {"name": "a", "version": "2"}
    assert Board("a", title="The A").info["title"] == "The A"


async def test_tools_can_be_registered_from_within_a_tool() -> None:
    board = Board()

    @board.tool
    async def grow() -> str:
        board.add(lambda: "grown", name="grown")
        await asyncio.sleep(0)
        return "done"

    async with Client(board) as client:
        await client.call("grow")
        assert (await client.call("grown")).text == "grown"


SNIPPET = """
from typing_extensions import assert_type
from pegboard import Board, Client, Context, ToolError

board = Board("typed")

@board.tool
def bare(a: int, b: str = "x") -> float:
    return float(a)

@board.tool("named", title="Named", timeout=3.0)
async def named(a: int, ctx: Context) -> str:
    await ctx.progress(1, 2, "half")
    if ctx.cancelled:
        raise ToolError("stopped")
    return str(a)

@board.tool()
def empty() -> None: ...

assert_type(bare(1), float)
assert_type(bare(1, b="y"), float)
bare("no")  # error
named(1)  # error
empty(1)  # error

async def main() -> None:
    async with Client(board) as client:
        result = await client.call("bare", {"a": 1})
        assert_type(result.text, str)
        assert_type(result.is_error, bool)
"""


@pytest.mark.peer  # mypy judges, which only the development environment has
def test_the_types_of_a_decorated_function_survive(tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET.lstrip())
    # With the settings of the repository, so that what `make check` has read need not be read again.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    wrong = [number for number, line in enumerate(SNIPPET.lstrip().splitlines(), 1) if line.endswith("# error")]
    found = {int(line.split(":")[1]) for line in checked.stdout.splitlines() if ": error:" in line}
    assert sorted(found) == wrong, checked.stdout + checked.stderr


async def test_a_tool_may_require_what_its_client_declares() -> None:
    board = Board()

    @board.tool(requires=["sampling"])
    async def summarise() -> str:
        return "short"

    async with Client(board) as client:
        with pytest.raises(MissingCapability) as refused:
            await client.call("summarise")
    assert refused.value.code == -32021
    assert refused.value.data == {"requiredCapabilities": {"sampling": {}}}
    async with Client(board, capabilities={"sampling": {}}) as client:
        assert (await client.call("summarise")).text == "short"


def test_a_function_may_be_handed_over_with_its_options() -> None:
    board = Board()

    def double(number: int) -> int:
        return 2 * number

    board.tool(double, name="twice", timeout=5)
    assert [tool.name for tool in board.tools] == ["twice"]


def test_a_tool_registered_in_two_groups_keeps_its_own_name() -> None:
    class Ping(Tool):
        name = "ping"
        description = "Answers."

        async def execute(self, context: ToolExecutionContext) -> ToolResult:
            return ToolResult("pong")

    board, ping = Board(), Ping()
    board.group("a").add(ping)
    board.group("b").add(ping)
    assert ping.name == "ping"
    assert [tool.name for tool in board.tools] == ["a.ping", "b.ping"]


@pytest.mark.parametrize("settings", [{"page_size": 0}, {"arguments": "lax"}])
def test_a_board_refuses_settings_it_cannot_keep(settings: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Board(**settings)


def test_a_resource_without_its_uri_is_refused() -> None:
    with pytest.raises(DeclarationError, match="needs a URI"):
        Board().resource(lambda: "x")  # type: ignore[arg-type]


async def test_a_result_over_the_limit_of_its_board_is_not_sent() -> None:
    board = Board(limits=Limits(result_bytes=1000))

    @board.tool
    async def much() -> str:
        return "x" * 5000

    async with Client(board) as client:
        assert (await client.call("much")).is_error


# -- what a client carries for us --------------------------------------------------------------------------------------


async def listed(board: Board, cursor: str | None = None) -> Mapping[str, Any]:
    """A page of the board's resources."""
    params = Raw(msgspec.json.encode({} if cursor is None else {"cursor": cursor}))
    caller = Caller(version="2026-07-28", transport="http")
    reply = await board.handler(Call(method="resources/list", caller=caller, channel=NULL_CHANNEL, id=1, params=params))
    assert isinstance(reply, Done)
    return reply.result.value if isinstance(reply.result, EncodedResult) else reply.result


@pytest.mark.parametrize("given", [None, "a secret of sixteen and more"])
async def test_what_was_sealed_opens_after_a_restart_by_the_key_in_the_store_unless_one_was_given(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is not None:
        monkeypatch.setenv("PEGBOARD_SECRET", given)
    cursor: str | None = None
    for number in range(3):
        board = Board("restarted", page_size=1)
        for name in "abc":
            board.resource(f"x://{name}")(lambda: "x")
        store = SqliteStore(tmp_path / "kept.db")
        await store.start()
        await board.start(SharedStore(store, Cluster(store, Limits())))
        page = await listed(board, cursor)
        assert [one["uri"] for one in page["resources"]] == [f"x://{'abc'[number]}"]
        cursor = page.get("nextCursor")
        # A key that was given is nobody else's to keep.
        assert (await store.records.get("seal:restarted") is None) == (given is not None)
        await board.stop()
        await store.close()
    assert cursor is None


async def test_boards_of_different_names_with_one_secret_reject_each_others_cursors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PEGBOARD_SECRET", "a secret of sixteen and more")
    boards = [Board(name, page_size=1) for name in ("one", "one", "two")]
    for board in boards:
        for name in "ab":
            board.resource(f"x://{name}")(lambda: "x")
    one, replica, two = boards
    cursor = (await listed(one))["nextCursor"]
    assert [resource["uri"] for resource in (await listed(replica, cursor))["resources"]] == ["x://b"]
    with pytest.raises(InvalidParams, match="not made by this server"):
        await listed(two, cursor)


async def test_clients_see_the_description_icons_and_website_of_a_board() -> None:
    board = Board(
        "shop", version="2", title="Shop", description="Sells", icons="https://x/i.png", website_url="https://x"
    )
    about = {
        "name": "shop",
        "version": "2",
        "title": "Shop",
        "description": "Sells",
        "icons": [{"src": "https://x/i.png"}],
        "websiteUrl": "https://x",
    }
    async with Client(board) as client:
        assert (await client.discover())["_meta"]["io.modelcontextprotocol/serverInfo"] == about


async def test_a_tool_shares_state_with_its_hooks() -> None:
    board = Board()
    seen: list[object] = []

    class Remember(Middleware):
        async def before(self, call: Call) -> None:
            call.state["user"] = "Ada"

        async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
            seen.append(call.state["rows"])

    @board.tool(middleware=[Remember()])
    async def show(ctx: Context) -> str:
        ctx.state["rows"] = 3
        return f"for {ctx.state['user']}"

    async with Client(board) as client:
        assert (await client.call("show")).text == "for Ada"
        assert (await client.call("show")).text == "for Ada"
    assert seen == [3, 3]


def test_qualified_names_are_joined_and_parsed() -> None:
    assert join_name("dev", "filesystem", "read_file") == "dev__filesystem__read_file"
    parts = parse_name("dev__server__tool__with__extras")
    assert parts is not None
    assert (parts.toolbox, parts.server, parts.tool) == ("dev", "server", "tool__with__extras")
    assert parse_name("dev__filesystem_read_file") is None
