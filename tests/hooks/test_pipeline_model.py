"""The compiled chain against a naive reading of the seed: random hooks, orders, failures and switches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from pegboard import Board, Client, Middleware, ToolError
from pegboard.call import Call, Done, Handler, Reply
from tests.depth import examples

HOOKS = ("before", "after", "error")
# Most hooks succeed: a chain that fails at once shows little of its order.
OUTCOMES = (*[None] * 12, ValueError, SystemExit, asyncio.CancelledError)
AROUNDS = (*["none"] * 8, "pass", "answer", "twice", "rescue", "raise")
MOSTLY = st.sampled_from((True, True, True, False))


class Plan(Struct, frozen=True, kw_only=True):
    """What one middleware is like: the hooks it has, those that raise, and what its around does."""

    name: int
    order: int
    scope: str
    has: frozenset[str]
    raises: Mapping[str, type[BaseException] | None]
    plain: bool
    around: str
    enabled: tuple[bool, ...]
    switch: str


class Failed(Exception):
    """How the naive reading ends a call without a result."""


plans = st.builds(
    Plan,
    name=st.just(0),
    order=st.integers(0, 4),
    scope=st.sampled_from(["board", "category", "tag", "tool", "own"]),
    has=st.sampled_from([frozenset(HOOKS), frozenset(HOOKS), *map(frozenset, ({"before"}, {"after"}, {"error"}, ()))]),
    raises=st.fixed_dictionaries({hook: st.sampled_from(OUTCOMES) for hook in HOOKS}),
    plain=st.booleans(),
    around=st.sampled_from(AROUNDS),
    enabled=st.tuples(MOSTLY, MOSTLY, MOSTLY),
    switch=st.sampled_from(["always", "instance", "property"]),
)
SCOPES = ("board", "category", "tag", "tool", "own")


class Reading:
    """The seed's six sentences and DESIGN's failure rules, read literally."""

    def __init__(self, plans: list[Plan], round_: int, fails: bool) -> None:
        enabled = [plan for plan in plans if plan.switch == "always" or plan.enabled[round_]]
        self.log: list[str] = []
        self.fails = fails
        self.succeeds = True
        try:
            self.run(sorted(enabled, key=lambda plan: (plan.order, SCOPES.index(plan.scope), plan.name)))
        except Failed:
            self.succeeds = False

    def run(self, rest: list[Plan]) -> None:
        if not rest:
            self.log.append("tool")
            if self.fails:
                raise Failed
            return
        plan = rest[0]
        if not self.tell(plan, "before"):
            raise Failed
        try:
            self.surround(plan, rest[1:])
        except Failed:
            self.tell(plan, "error")
            raise
        self.tell(plan, "after")

    def tell(self, plan: Plan, hook: str) -> bool:
        if hook not in plan.has:
            return True
        self.log.append(f"{plan.name}.{hook}")
        return plan.raises[hook] is None

    def surround(self, plan: Plan, inner: list[Plan]) -> None:
        if plan.around != "none":
            self.log.append(f"{plan.name}.around")
        match plan.around:
            case "none" | "pass":
                self.run(inner)
            case "twice":
                self.run(inner)
                self.run(inner)
            case "rescue":
                try:
                    self.run(inner)
                except Failed:
                    return
            case "raise":
                raise Failed


async def surround(plan: Plan, call: Call, proceed: Handler) -> Reply:
    match plan.around:
        case "answer":
            return Done({"content": []})
        case "twice":
            await proceed(call)
        case "rescue":
            try:
                return await proceed(call.with_arguments({}))
            except BaseException:  # noqa: BLE001 — whatever it was
                return Done({"content": []})
        case "raise":
            raise ToolError("no")
    return await proceed(call)


def build(plan: Plan, log: list[str]) -> Middleware:
    """A real middleware after the plan."""

    def note(hook: str) -> None:
        log.append(f"{plan.name}.{hook}")
        raised = plan.raises[hook]
        if raised is not None:
            raise raised

    def method(hook: str) -> Any:
        if plan.plain:
            return lambda self, *_: note(hook)

        async def run(self: Any, *_: Any) -> None:
            await asyncio.sleep(0)
            note(hook)

        return run

    async def around(self: Any, call: Call, proceed: Handler) -> Reply:
        log.append(f"{plan.name}.around")
        return await surround(plan, call, proceed)

    body: dict[str, Any] = {hook: method(hook) for hook in plan.has}
    body["order"] = plan.order
    if plan.around != "none":
        body["around"] = around
    if plan.switch == "property":
        body["enabled"] = property(lambda self: self.on)
    return type("Built", (Middleware,), body)()


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(plans, max_size=7), st.tuples(st.booleans(), st.booleans(), st.booleans()))
async def test_every_chain_does_what_the_seed_says(drawn: list[Plan], fails: tuple[bool, bool, bool]) -> None:
    plans = [Plan(**{**{name: getattr(plan, name) for name in Plan.__struct_fields__}, "name": index})
             for index, plan in enumerate(drawn)]  # fmt: skip
    log: list[str] = []
    built = [build(plan, log) for plan in plans]
    board, failing = Board(), [False]

    async def tool() -> None:
        log.append("tool")
        if failing[0]:
            raise ValueError("no")

    scopes: dict[str, dict[str, Any]] = {
        "board": {},
        "category": {"category": "c"},
        "tag": {"tag": "t"},
        "tool": {"tool": "tool"},
    }
    for plan, middleware in zip(plans, built, strict=True):
        if plan.scope != "own":
            board.use(middleware, **scopes[plan.scope])
    own = [middleware for plan, middleware in zip(plans, built, strict=True) if plan.scope == "own"]
    board.add(tool, name="tool", category="c", tags={"t"}, middleware=own)
    async with Client(board) as client:
        for round_ in range(3):
            failing[0] = fails[round_]
            for plan, middleware in zip(plans, built, strict=True):
                match plan.switch:
                    case "instance":
                        middleware.enabled = plan.enabled[round_]
                    case "property":
                        middleware.on = plan.enabled[round_]
            log.clear()
            result = await client.call("tool")
            expected = Reading(plans, round_, fails[round_])
            assert log == expected.log
            assert result.is_error is not expected.succeeds


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of failing hooks are logged; nobody reads them here."""
    caplog.set_level("CRITICAL")
