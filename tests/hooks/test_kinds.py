"""Hooks around prompts, resources and completions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Context, Gateway, Middleware, ToolError
from pegboard.call import Call, Handler, Reply
from pegboard.call_target import KIND_OF_METHOD
from pegboard.config.config_keys import MiddlewareConfig
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.errors import DeclarationError, InternalFailure, InvalidParams, Refusal
from pegboard.middleware import Audit, Cache, Metrics, RateLimit, Retry, Timeout, Timing, TokenBudget, TokenCount
from pegboard.testing import Recorder
from tests.middleware.audit.audit_records import records_of

COMPLETE = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "city", "value": "B"}}

Request = Callable[[Client], Awaitable[Any]]

REQUESTS: dict[str, Request] = {
    "tool": lambda client: client.call("add", {"a": 1}),
    "prompt": lambda client: client.request("prompts/get", {"name": "greet", "arguments": {"city": "Bern"}}),
    "resource": lambda client: client.request("resources/read", {"uri": "notes://today"}),
    "completion": lambda client: client.request("completion/complete", COMPLETE),
}
ARGUMENTS = {"tool": {"a": 1}, "prompt": {"city": "Bern"}, "resource": {"name": "today"}, "completion": {"city": "B"}}
METHODS = {kind: method for method, kind in KIND_OF_METHOD.items()}
NAMES = {"tool": "add", "prompt": "greet", "resource": "notes://today", "completion": "greet"}

kinds = pytest.mark.parametrize("kind", list(REQUESTS))


def make_board() -> Board:
    board = Board("kinds")

    @board.tool
    def add(a: int) -> int:
        return a + 1

    @board.prompt(category="polite")
    def greet(city: str) -> str:
        return f"Say hello to {city}"

    @board.complete("greet", "city")
    def cities(value: str) -> list[str]:
        return ["Bern", "Basel"]

    @board.resource("notes://{name}")
    def note(name: str) -> str:
        return f"the note {name}"

    return board


@kinds
async def test_hooks_of_the_board_run_for_every_kind_of_request(kind: str) -> None:
    board, recorder = make_board(), Recorder()
    board.use(recorder)
    async with Client(board) as client:
        await REQUESTS[kind](client)
    assert [(step.hook, step.kind, step.tool, step.arguments) for step in recorder.steps] == [
        ("before", kind, NAMES[kind], ARGUMENTS[kind]),
        ("after", kind, NAMES[kind], ARGUMENTS[kind]),
    ]


@kinds
async def test_a_hook_can_reject_every_kind_of_request(kind: str) -> None:
    board = make_board()
    board.use(Recorder(fail={"before": ToolError("closed on Sundays")}))
    async with Client(board) as client:
        if kind == "tool":
            assert (await client.call("add", {"a": 1})).text == "closed on Sundays"
            return
        with pytest.raises(InternalFailure, match="closed on Sundays"):
            await REQUESTS[kind](client)


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"kind": "prompt"}, ["prompt"]),
        ({"kind": ["resource", "completion"]}, ["resource", "completion"]),
        ({"tool": "add"}, ["tool"]),
        ({"prompt": "greet"}, ["prompt", "completion"]),
        ({"prompt": "greet", "kind": "prompt"}, ["prompt"]),
        ({"resource": "notes://{name}"}, ["resource"]),
        ({"category": "polite"}, ["prompt", "completion"]),
        ({"tool": "greet"}, []),
        ({"prompt": "add"}, []),
    ],
    ids=str,
)
async def test_selectors_choose_requests(options: dict[str, Any], seen: list[str]) -> None:
    board, recorder = make_board(), Recorder()
    board.use(recorder, **options)
    async with Client(board) as client:
        for request in REQUESTS.values():
            await request(client)
    assert [step.kind for step in recorder.steps if step.hook == "before"] == seen


async def test_a_middleware_can_be_only_about_tools() -> None:
    class Tools(Recorder):
        kinds = ("tool",)

    board, recorder = make_board(), Tools()
    board.use(recorder)
    async with Client(board) as client:
        for request in REQUESTS.values():
            await request(client)
    assert {step.kind for step in recorder.steps} == {"tool"}


def test_a_kind_that_does_not_exist_is_rejected() -> None:
    class Typo(Middleware):
        kinds = ("tools",)

    with pytest.raises(DeclarationError, match=r"Typo\.kinds must be a collection of 'completion', 'prompt'"):
        Board().use(Typo())
    with pytest.raises(DeclarationError, match="kind must be a collection of"):
        Board().use(Recorder(), kind="tools")  # type: ignore[arg-type] # the mistake


async def test_middleware_of_a_prompt_itself_runs() -> None:
    board, recorder = Board(), Recorder()

    @board.prompt(middleware=[recorder])
    def greet() -> str:
        return "Say hello"

    async with Client(board) as client:
        await client.request("prompts/get", {"name": "greet"})
    assert recorder.hooks == ["recorder.before", "recorder.after"]


async def test_a_before_hook_replaces_the_arguments_of_a_prompt() -> None:
    class Replace(Middleware):
        async def before(self, call: Call) -> None:
            call.replace_arguments({"city": "Basel"})

    board = make_board()
    board.use(Replace(), kind="prompt")
    async with Client(board) as client:
        got = await REQUESTS["prompt"](client)
    assert got["messages"][0]["content"]["text"] == "Say hello to Basel"


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("prompts/get", {"name": "gret"}, "Unknown prompt: 'gret', did you mean 'greet'"),
        ("resources/read", {"uri": "other://x"}, "Resource not found: other://x"),
    ],
)
async def test_hooks_see_unknown_prompts_and_resources_and_do_not_hide_that_they_are_unknown(
    method: str, params: dict[str, Any], message: str
) -> None:
    seen: list[Any] = []

    class Fail(Middleware):
        async def before(self, call: Call) -> None:
            seen.append((call.known, call.tool.category))
            raise KeyError(call.name)

    board = make_board()
    board.use(Fail())
    async with Client(board) as client:
        with pytest.raises(InvalidParams) as raised:
            await client.request(method, params)
    assert raised.value.message.startswith(message)
    assert seen == [(False, "")]


async def test_error_hooks_get_the_exception_of_a_prompt_and_the_client_does_not() -> None:
    board, recorder = Board(), Recorder()
    board.use(recorder)

    @board.prompt
    def broken() -> str:
        raise ValueError("password=secret")

    async with Client(board) as client:
        with pytest.raises(InternalFailure, match=r"^broken failed, error id [0-9a-f]{8}$"):
            await client.request("prompts/get", {"name": "broken"})
    assert [type(step.exception) for step in recorder.steps] == [type(None), ValueError]


async def test_a_hook_can_cancel_a_request_for_a_prompt() -> None:
    board = Board()

    @board.prompt
    async def slow(ctx: Context) -> str:
        await asyncio.Event().wait()
        return ""

    class Stop(Middleware):
        async def before(self, call: Call) -> None:
            asyncio.get_running_loop().call_soon(call.cancel)

    board.use(Stop())
    async with Client(board) as client:
        with pytest.raises(InternalFailure, match="slow was stopped before it had a result"):
            await client.request("prompts/get", {"name": "slow"})


# -- the built-in middleware ----------------------------------------------------------------------------------------


async def test_the_audit_records_every_kind(tmp_path: Path) -> None:
    board, audit = make_board(), Audit(tmp_path / "audit")
    board.use(audit)
    async with Client(board) as client:
        for request in REQUESTS.values():
            await request(client)
    audit.close()
    assert [(record["action"], record["name"], record["arguments"]) for record in records_of(tmp_path / "audit")] == [
        (METHODS[kind], NAMES[kind], ARGUMENTS[kind]) for kind in REQUESTS
    ]


async def test_limits_hold_for_every_kind_and_a_template_is_one_account() -> None:
    board = make_board()
    board.use(RateLimit(1, "hour"))
    async with Client(board) as client:
        for request in REQUESTS.values():
            await request(client)
        with pytest.raises(InternalFailure, match=r"^prompt greet was not run: the limit of 1 call per hour"):
            await REQUESTS["prompt"](client)
        with pytest.raises(Refusal, match=r"^resource notes://\{name\} was not run"):
            await client.request("resources/read", {"uri": "notes://another"})


async def test_a_timeout_stops_a_resource() -> None:
    board = Board()

    @board.resource("slow://x")
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    board.use(Timeout(0.01))
    async with Client(board) as client:
        with pytest.raises(InternalFailure, match=r"took longer than 0\.01 s"):
            await client.request("resources/read", {"uri": "slow://x"})


async def test_timing_and_metrics_count_every_kind_under_names_that_callers_cannot_make_up() -> None:
    board, timing, metrics = make_board(), Timing(), Metrics()
    board.use(timing, metrics)
    async with Client(board) as client:
        for request in REQUESTS.values():
            await request(client)
        await client.request("resources/read", {"uri": "notes://another"})
    assert {name: stats.count for name, stats in timing.stats().items()} == {
        "add": 1,
        "prompt greet": 1,
        "resource notes://{name}": 2,
        "completion greet": 1,
    }
    counts = [line for line in metrics.render().splitlines() if "_seconds_count{" in line]
    assert [line.partition("{")[2] for line in counts] == [
        'mcp_method_name="tools/call",gen_ai_tool_name="add"} 1',
        'mcp_method_name="prompts/get",gen_ai_prompt_name="greet"} 1',
        'mcp_method_name="resources/read",mcp_resource_uri="notes://{name}"} 2',
        'mcp_method_name="completion/complete"} 1',
    ]


async def test_caches_retries_and_token_budgets_leave_other_kinds_alone() -> None:
    board, cache, tokens = make_board(), Cache(300, tools=["greet", "add"]), TokenCount()
    board.use(cache, Retry(3, tools=["greet"]), TokenBudget(64), tokens)
    async with Client(board) as client:
        for request in (*REQUESTS.values(), *REQUESTS.values()):
            await request(client)
    assert (cache.hits, cache.misses, set(tokens.stats())) == (1, 1, {"add"})


# -- behind a gateway -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["file", "toolbox", "server", "python"])
async def test_middleware_of_a_gateway_runs_for_every_kind(place: str) -> None:
    steps.clear()
    noted = (MiddlewareConfig(use=f"{__name__}:note"),)
    server = ServerConfig(name="board", kind="board", board="board", middleware=noted if place == "server" else ())
    toolbox = ToolboxConfig(
        name="dev",
        description="Under test",
        names="plain",
        servers={"board": server},
        middleware=noted if place == "toolbox" else (),
    )
    config = GatewayConfig(
        path="", name="g", lock="off", toolboxes={"dev": toolbox}, middleware=noted if place == "file" else ()
    )
    gateway = Gateway(config, boards={"board": make_board()})
    if place == "python":
        gateway.use(note)
    async with Client(gateway) as client:
        await gateway.wait_connected(10)
        for request in REQUESTS.values():
            await request(client)
    assert steps == [(kind, NAMES[kind], "dev") for kind in REQUESTS]


steps: list[tuple[str, str, str]] = []


async def note(call: Call, proceed: Handler) -> Reply:
    steps.append((call.kind, call.name, call.tool.toolbox))
    return await proceed(call)
