"""The console in a real browser: every page, by mouse and by keyboard, with hostile text and many tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from pegboard import Accepted, Auth, Board, Client, Context, Gateway, Issuer, SignInClient
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.config.inbound_auth import InboundAuthConfig
from pegboard.config.rule_keys import read_rules
from pegboard.console.board_subject import BoardSubject
from pegboard.console.console import Console
from pegboard.console.gateway_subject import GatewaySubject
from pegboard.gateway.lock.lock_file import Lock, accept, write_lock
from pegboard.gateway.servers.server_catalog import ServerCatalog
from pegboard.protocol.revisions import MODERN
from pegboard.rules.verdicts import Rules
from tests.auth.issuing import issuing
from tests.auth.serving import serving
from tests.console.chrome import PACKAGES, Page, open_page, start_chromium
from tests.console.served import ServedConsole, serving_console
from tests.gateway.connections.account_site import account_site
from tests.server.pages.test_sign_in import add_key

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=2</script>"
PAGES = ("live", "tools", "content", "tokens", "latency", "servers", "people", "sessions", "connect")


@dataclass
class Guest:
    name: str
    vegetarian: bool = False


def make_board() -> Board:
    board = Board("desk")

    @board.tool
    def add(a: float, b: float) -> float:
        """Adds two numbers."""
        return a + b

    @board.tool
    def book(day: date, meal: Literal["lunch", "dinner"], guest: Guest, notes: list[str] | None = None) -> str:
        """Books a table."""
        return f"{meal} on {day:%d %B %Y} for {guest.name}{', vegetarian' if guest.vegetarian else ''}: {notes}"

    @board.tool
    async def greet(ctx: Context) -> str:
        """Asks for a name."""
        answer = await ctx.elicit("Who is there?", str)
        return f"Hello {answer.content}" if isinstance(answer, Accepted) else answer.action

    @board.prompt
    def review(code: str) -> str:
        """Reviews code."""
        return f"Review {code}"

    @board.resource("menu://{day}")
    def menu(day: str) -> str:
        """The menu of a day."""
        return f"Soup on {day}"

    @board.tool(description=HOSTILE, title=HOSTILE)
    def hostile(text: str) -> str:
        return text + HOSTILE

    return board


def make_config() -> GatewayConfig:
    servers = {"desk": ServerConfig(name="desk", kind="board", board="desk")}
    toolbox = ToolboxConfig(name="office", description="Sums and tables", servers=servers)
    return GatewayConfig(path="", name="works", lock="off", toolboxes={"office": toolbox})


def make_gateway() -> Gateway:
    return Gateway(make_config(), boards={"desk": make_board()})


@pytest.fixture(scope="module")
def chromium() -> Iterator[str]:
    with start_chromium() as address:
        yield address


@asynccontextmanager
async def console(served: Board | Gateway, chromium: str) -> AsyncIterator[tuple[Page, ServedConsole]]:
    """The console of a board or gateway, open in a page."""
    async with serving_console(served) as at, open_page(chromium) as page:
        await page.resize(1280, 720)
        await page.open(at.link)
        await page.wait_for_text("Live calls")
        yield page, at


async def test_calls_appear_live_and_a_repaired_call_shows_what_changed(chromium: str) -> None:
    async with console(make_gateway(), chromium) as (page, at):
        await page.wait_for_text("No calls yet")
        async with Client(at.mcp, name="agent") as client:
            await client.call("office__desk__add", {"a": 2, "b": "3"})
        await page.wait_for_text("repaired 1", ".calls")
        await page.click(".calls tbody tr", "agent")
        await page.wait_for_text('b: string "3" read as number 3', "aside")
        assert await page.text("aside del") == '"3"'
        assert await page.text("aside ins") == "3"
        await page.wait_for_text("server", ".waterfall")
        await page.click("button", "Replay")
        await page.wait_for_text("5", ".outcome .result")


async def test_a_form_calls_a_tool_with_nested_values_choices_dates_and_lists(chromium: str) -> None:
    async with console(make_board(), chromium) as (page, _):
        await page.click("nav a", "Tools")
        await page.click("ul.tools a", "book")
        await page.wait_for("Boolean(document.getElementById('field/day'))")
        await page.run(
            "(() => { const field = document.getElementById('field/day'); field.value = '2026-12-24';"
            " field.dispatchEvent(new Event('input')); })()"
        )
        await page.click(".choices button", "dinner")
        await page.fill("[id='field/guest/name']", "Ada")
        await page.click("[id='field/guest/vegetarian']")
        await page.fill("[id='field/notes']", "by the window")
        await page.press("Enter", text="\r", code=13)
        await page.click("button.primary", "Call")
        await page.wait_for_text("dinner on 24 December 2026 for Ada, vegetarian: ['by the window']", ".outcome")


async def test_the_map_opens_a_form_whose_names_and_items_are_added(chromium: str) -> None:
    board = Board("desk")

    @board.tool
    def seat(tables: dict[str, Guest], limits: dict[str, int], guests: list[Guest]) -> str:
        """Seats guests."""
        return f"{tables} {limits} {guests}"

    async with console(board, chromium) as (page, _):
        await page.click("nav a", "Tools")
        await page.wait_for_text("Choose a tool")
        # The map is drawn gradually; an element of SVG has no `click`.
        await page.wait_for("document.querySelector('.tile')?.dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        await page.fill("[id='field/tables']", "window")
        await page.press("Enter", text="\r", code=13)
        await page.fill("[id='field/tables/window/name']", "Ada")
        await page.fill("[id='field/limits']", "wine")
        await page.press("Enter", text="\r", code=13)
        await page.fill("[id='field/limits-wine']", "2")
        await page.click(".list[id='field/guests'] > button", "Add")
        await page.fill("[id='field/guests/0/name']", "Grace")
        await page.click("button.primary", "Call")
        await page.wait_for_text("{'window': Guest(name='Ada', vegetarian=False)} {'wine': 2}", ".outcome")
        await page.wait_for_text("[Guest(name='Grace', vegetarian=False)]", ".outcome")


async def test_the_latency_of_a_chosen_tool_is_shown_over_time(chromium: str) -> None:
    async with console(make_board(), chromium) as (page, at):
        async with Client(at.mcp) as client:
            for number in range(3):
                await client.call("add", {"a": number, "b": 1})
            await client.call("hostile", {"text": "a"})
        await page.click("nav a", "Latency")
        await page.wait_for_text("4 calls", "main section")
        await page.click("td.name button", "add")
        await page.wait_for_text("3 calls", "main section")
        assert await page.run("document.querySelector('tr.selected td.name button').ariaPressed") == "true"
        assert await page.run("document.querySelectorAll('polyline.line').length") == 4
        await page.click("main section button.chip", "add")
        await page.wait_for_text("4 calls", "main section")


async def test_a_question_of_a_tool_is_answered_in_the_page(chromium: str) -> None:
    async with console(make_board(), chromium) as (page, _):
        await page.run("location.hash = 'tools/greet'")
        await page.click("button.primary", "Call")
        await page.wait_for_text("Who is there?", ".question")
        await page.fill(".question input", "Ada")
        await page.click(".question button.primary")
        await page.wait_for_text("Hello Ada", ".outcome")


async def test_prompts_are_filled_in_and_resources_read(chromium: str) -> None:
    async with console(make_board(), chromium) as (page, _):
        await page.click("nav a", "Content")
        await page.fill("[id='field/prompt review/code']", "x = 1")
        await page.click("button", "Get")
        await page.wait_for_text("Review x = 1", "main")
        await page.fill("[id='field/template menu://{day}/day']", "monday")
        await page.click("button[aria-label='Read Menu']")
        await page.wait_for_text("Soup on monday", "main")


async def test_callers_are_listed_with_what_they_use(chromium: str) -> None:
    async with console(make_board(), chromium) as (page, at):
        for name in ("agent one", "agent two"):
            async with Client(at.mcp, name=name) as client:
                await client.call("add", {"a": 1, "b": "2"})
        await page.click("nav a", "People")
        await page.wait_for_text("agent two", "table")
        await page.click("button", "agent one")
        await page.wait_for("document.querySelectorAll('.calls tbody tr').length === 1")


async def test_a_server_is_stopped_and_started_again(chromium: str) -> None:
    gateway = make_gateway()
    async with console(gateway, chromium) as (page, at):
        await page.click("nav a", "Servers")
        await page.wait_for_text("ready", ".server")
        await page.click(".server button", "Stop")
        await page.wait_for_text("stopped", ".server")
        async with Client(at.mcp) as client:
            assert await client.list_tools() == []
            await page.click(".server button", "Start")
            await page.wait_for_text("ready", ".server")
            assert len(await client.list_tools()) == 4
        await page.click(".server button", "Restart")
        await page.wait_for_text("ready", ".server")


async def test_a_changed_definition_is_reviewed_and_accepted_or_refused(chromium: str, tmp_path: Path) -> None:
    path = tmp_path / "gateway.json"
    path.write_text("{}")
    served = make_board()
    config = replace(make_config(), path=str(path), lock="quarantine", lock_path=str(tmp_path / "gateway.lock"))
    gateway = Gateway(config, boards={"desk": served})
    before = ServerCatalog(
        version=MODERN, tools=tuple({**tool.definition(), "description": "As before."} for tool in served.tools)
    )
    write_lock(accept(Lock(), {("office", "desk"): before}), config.lock_path)
    async with console(gateway, chromium) as (page, at):
        await page.click("nav a", "Servers")
        await page.wait_for_text("definitions differ", ".lock")
        await page.wait_for_text("Adds two numbers.", ".lock")
        async with Client(at.mcp) as client:
            assert await client.list_tools() == []
            await page.click("button[aria-label='Accept office/desk/add']")
            await page.wait_for("!document.querySelector('.lock').innerText.includes('office/desk/add')")
            assert [tool["name"] for tool in await client.list_tools()] == ["office__desk__add"]
            await page.click("button[aria-label='Refuse office/desk/book']")
            await page.wait_for_text("3 of 4 on", ".server summary")
            await page.click("button", "Accept all")
            await page.wait_for_text("all definitions are accepted", ".lock")
            listed = {tool["name"] for tool in await client.list_tools()}
            assert listed == {"office__desk__add", "office__desk__greet", "office__desk__hostile"}


async def test_a_single_tool_is_switched_off_and_on(chromium: str) -> None:
    async with console(make_gateway(), chromium) as (page, at):
        await page.click("nav a", "Servers")
        await page.click(".server summary", "Tools: 4 of 4 on")
        await page.click(".switches label", "book")
        await page.wait_for_text("Tools: 3 of 4 on", ".server")
        async with Client(at.mcp) as client:
            assert "office__desk__book" not in {tool["name"] for tool in await client.list_tools()}
        await page.click(".switches label", "book")
        await page.wait_for_text("Tools: 4 of 4 on", ".server")


async def test_sessions_show_clients_of_both_eras(chromium: str) -> None:
    async with console(make_board(), chromium) as (page, at):
        await page.click("nav a", "Sessions")
        await page.wait_for_text("No legacy client is connected")
        await page.wait_for_text("No client listens to changes")
        async with Client(at.mcp, name="old agent", version="2025-06-18") as old, Client(at.mcp, name="new") as new:
            await old.call("add", {"a": 1, "b": 2})
            await new.call("add", {"a": 1, "b": 2})
            await page.wait_for_text("old agent", "main section:nth-of-type(2)")
            await page.wait_for_text("2025-06-18", "main section:nth-of-type(2)")
            await page.wait_for_text("new", "main section:nth-of-type(1)")


async def test_view_as_shows_the_rule_that_hides_a_tool(chromium: str) -> None:
    board = make_board()
    board._replace_rules(Rules(read_rules([{"who": "ann", "allow": ["*"], "hide": ["book"]}])))
    async with console(board, chromium) as (page, _):
        await page.click("nav a", "People")
        await page.wait_for_text("started this server")
        await page.fill("form.row input", "ann")
        await page.click("form.row button")
        await page.wait_for_text("rules[0]: hide book", "main")
        assert await page.text("td.name") == "book"


async def test_a_call_that_waits_for_a_person_is_approved_in_the_page(chromium: str) -> None:
    rules = [{"tools": ["delete_*"], "approve": {"role": "lead"}}, {"who": "*", "allow": ["*"]}]
    board = Board("desk", rules=rules)

    @board.tool
    def delete_note(number: int) -> str:
        """Deletes a note."""
        return f"deleted {number}"

    async with console(board, chromium) as (page, at), Client(at.mcp, name="agent") as client:
        call = asyncio.create_task(client.call("delete_note", {"number": 7}))
        await page.click("header a", "1 call waits for you")
        await page.wait_for_text('"number": 7', ".waiting")
        await page.fill(".waiting input", "it is a duplicate")
        await page.click(".waiting button", "Approve")
        await page.wait_for_text("Nothing waits for you")
        assert (await call).text == "deleted 7"


async def test_a_call_shows_what_the_model_of_each_agent_sees(chromium: str) -> None:
    async with console(make_board(), chromium) as (page, at):
        async with Client(at.mcp, name="agent") as client:
            await client.call("add", {"a": 1, "b": 2})
        await page.click(".calls tbody tr", "agent")
        await page.click("aside button", "agents pass everything on")
        await page.wait_for_text("Claude Code", ".agents")
        await page.wait_for_text("not seen", ".agents")


async def run_axe(page: Page) -> Any:
    """The serious accessibility problems of the page."""
    await page.run((PACKAGES / "node_modules" / "axe-core" / "axe.min.js").read_text())
    return await page.run(
        "axe.run().then(({violations}) => violations.filter(({impact}) => ['serious', 'critical'].includes(impact))"
        ".map(({id, nodes}) => [id, nodes.map((node) => node.html.slice(0, 200))]))"
    )


async def test_a_person_signs_in_with_a_key_and_out_again(chromium: str, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store, "ann", scopes=["console.read"])
    gateway = Gateway(replace(make_config(), auth=InboundAuthConfig(keys=True)), boards={"desk": make_board()})
    Console(GatewaySubject(gateway), link=False)
    async with serving(gateway, store=store) as site, open_page(chromium) as page:
        await page.resize(390, 844, mobile=True)
        await page.open(f"{site.url}/console/")
        await page.wait_for_text("Sign in to works")
        assert await run_axe(page) == []
        assert await page.run("document.documentElement.scrollWidth") <= 390
        await page.fill("input[name=key]", key)
        await page.press("Enter", text="\r", code=13)
        await page.wait_for_text("Live calls")
        await page.run("location.hash = 'people'")
        await page.wait_for_text("key:ann", "main")
        # Without the right, nothing can be changed.
        await page.run("location.hash = 'servers'")
        await page.wait_for("document.querySelector('.server button')?.disabled")
        await page.run("location.hash = 'people'")
        await page.click("button", "Sign out")
        await page.wait_for_text("Sign in to works")


async def test_a_person_signs_in_at_an_issuer(chromium: str) -> None:
    async with issuing() as issuer:
        trusted = Issuer(issuer.url, "console", sign_in=SignInClient("console", "s3cret", ["console.read"]))
        board = Board("works", auth=Auth(issuers=[trusted]))
        Console(BoardSubject(board), link=False)
        async with serving(board) as site, open_page(chromium) as page:
            await page.open(f"{site.url}/console/")
            await page.click("a.button", "Sign in with 127.0.0.1")
            await page.wait_for_text("Live calls")
            await page.run("location.hash = 'people'")
            await page.wait_for_text("ann", "main")


async def test_a_person_connects_a_server_and_removes_the_connection(chromium: str, tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as at, open_page(chromium) as page:
        link = Console(GatewaySubject(at.gateway)).link(f"{at.site.url}/mcp")
        await page.open(link)
        await page.wait_for_text("Live calls")
        await page.run("location.hash = 'people'")
        await page.wait_for_text("not connected", "main")
        await page.click("button[aria-label='Connect accounts']")
        await page.wait_for_text("You are")
        await page.click("button", "Connect")
        await page.wait_for_text("accounts is connected")
        await page.open(f"{at.site.url}/console/#people")
        await page.wait_for("document.querySelector('button[aria-label=\"Remove accounts\"]')")
        await page.click("button[aria-label='Remove accounts']")
        await page.wait_for_text("not connected", "main")


async def test_everything_can_be_reached_by_keyboard(chromium: str) -> None:
    async with console(make_board(), chromium) as (page, at):
        async with Client(at.mcp) as client:
            for number in range(3):
                await client.call("add", {"a": number, "b": 1})
        await page.wait_for("document.querySelectorAll('.calls tbody tr').length === 3")
        await page.press("j")
        await page.wait_for_text("Where the", "aside")
        first = await page.text("aside")
        await page.press("j")
        await page.wait_for(f"document.querySelector('aside').innerText !== {json.dumps(first)}")
        await page.press("Escape", code=27)
        await page.wait_for("!document.querySelector('aside')")
        await page.press("2")
        await page.wait_for_text("4 tools")
        await page.press("/")
        await page.wait_for("document.activeElement.type === 'search'")
        await page.send("Input.insertText", text="numbers")
        await page.wait_for("document.querySelectorAll('ul.tools li').length === 1")


async def test_text_from_servers_stays_text(chromium: str) -> None:
    async with console(make_board(), chromium) as (page, at):
        async with Client(at.mcp, name=HOSTILE) as client:
            await client.call("hostile", {"text": HOSTILE})
        await page.wait_for_text("hostile", ".calls")
        await page.click(".calls tbody tr")
        await page.wait_for_text("onerror", "aside")
        for name in PAGES:
            await page.run(f"location.hash = {json.dumps(name)}")
            await page.wait_for(f"document.querySelector('nav a.current').hash === '#{name}'")
        await page.run("location.hash = 'tools/hostile'")
        await page.wait_for_text("onerror", ".form")
        assert await page.run("document.querySelectorAll('img, body script').length") == 0
        assert await page.run("window.hacked ?? null") is None


async def test_pages_follow_the_colour_scheme_and_fit_a_phone(chromium: str) -> None:
    async with console(make_gateway(), chromium) as (page, _):
        backgrounds = set()
        for scheme in ("light", "dark"):
            await page.use_scheme(scheme)
            backgrounds.add(await page.run("getComputedStyle(document.body).backgroundColor"))
        assert len(backgrounds) == 2
        await page.resize(390, 844, mobile=True)
        for name in PAGES:
            await page.run(f"location.hash = {json.dumps(name)}")
            await page.wait_for(f"document.querySelector('nav a.current').hash === '#{name}'")
            assert await page.run("document.documentElement.scrollWidth") <= 390, name


async def test_a_thousand_tools_and_thousands_of_calls_keep_each_drawing_small(chromium: str) -> None:
    """`scripts/console_trace.py` measures the time; this counts the work, which no other program changes."""
    board = make_board()
    for number in range(1000):
        board.tool(f"tool_{number}", description=f"Does thing number {number}")(lambda: "done")
    async with console(board, chromium) as (page, at):
        async with Client(at.mcp) as client:
            await asyncio.gather(*(client.call(f"tool_{number % 500}", {}) for number in range(1500)))
        await page.wait_for("document.querySelector('.calls tbody')?.rows.length === 40")
        await page.wait_for_text("1,500")
        for name in PAGES:
            await page.run(f"location.hash = {json.dumps(name)}")
            await page.wait_for(f"document.querySelector('nav a.current').hash === '#{name}'")
            assert await page.run("document.querySelectorAll('*').length") < 6000, name
            # Of several drawings, the smallest: one of them each second describes more.
            described = await page.run(DESCRIBED)
            assert min(described) < 1500, (name, described)
        events = "performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/events')).length"
        assert await page.run(events) <= 1, "there is one event stream"


DESCRIBED = """
(async () => {
  const { work } = await import("./dom.js");
  const { changed } = await import("./store.js");
  const counts = [];
  for (let number = 0; number < 5; number += 1) {
    const before = work.described;
    changed();
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    counts.push(work.described - before);
  }
  return counts;
})()
"""
"""How many elements a page describes in each of five drawings."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_page_has_a_serious_accessibility_problem(scheme: str, chromium: str) -> None:
    async with console(make_gateway(), chromium) as (page, at):
        await page.use_scheme(scheme)
        async with Client(at.mcp, version="2025-11-25") as client:
            await client.call("office__desk__add", {"a": 2, "b": "3"})
            await page.wait_for_text("repaired 1", ".calls")
            problems: dict[str, Any] = {}
            for name in (*PAGES, "tools/office__desk__book"):
                await page.run(f"location.hash = {json.dumps(name)}")
                await page.wait_for(f"document.querySelector('nav a.current').hash === '#{name.split('/')[0]}'")
                # Open what is closed at first.
                await page.run(
                    "document.querySelectorAll('summary, main [aria-expanded=false]').forEach((e) => e.click())"
                )
                if name == "people":
                    await page.click("form.row button")
                    await page.wait_for_text("allowed", "main")
                problems |= {name: found} if (found := await run_axe(page)) else {}
            await page.run("location.hash = 'live'")
            await page.click(".calls tbody tr")
            await page.click("aside button", "agents pass everything on")
            await page.wait_for_text("Claude Code", ".agents")
            problems |= {"call": found} if (found := await run_axe(page)) else {}
        assert problems == {}
