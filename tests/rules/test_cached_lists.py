"""Lists and verdicts are made once for all callers with the same rights, and not again for each request."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Board, Gateway, Principal
from pegboard.call import NULL_CHANNEL, Call, Caller, Done, EncodedResult, Handler
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.config.rule_keys import read_rules
from pegboard.protocol.revisions import MODERN
from pegboard.rules.rule import Item
from pegboard.rules.verdicts import VIEWS_KEPT, View

CALLERS = [Principal(f"caller {number}") for number in range(100)]


def make_board(count: int, rules: list[dict[str, Any]]) -> Board:
    board = Board("many", rules=rules)
    for number in range(count):

        async def run() -> str:
            return "ran"

        board.add(run, name=f"tool_{number}")

    @board.prompt
    async def greet() -> str:
        return "hello"

    @board.resource("notes://all")
    async def notes() -> str:
        return "all"

    return board


def request(method: str, principal: Principal, name: str = "") -> Call:
    caller = Caller(version=MODERN, transport="http", principal=principal)
    return Call(method=method, caller=caller, channel=NULL_CHANNEL, id=1, name=name)


async def listed(handler: Handler, method: str, principal: Principal) -> EncodedResult:
    reply = await handler(request(method, principal))
    assert isinstance(reply, Done)
    assert isinstance(reply.result, EncodedResult)
    return reply.result


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the items that a verdict is made about from now on."""
    made: list[str] = []
    verdict = View.verdict

    def counted(view: View, item: Item) -> Any:
        made.append(item.name)
        return verdict(view, item)

    monkeypatch.setattr(View, "verdict", counted)
    return made


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list"])
async def test_the_lists_of_100_callers_with_different_rules_stay_cached(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [{"who": f"caller {number}", "allow": [f"tool_{number}", "greet", "notes://*"]} for number in range(100)]
    handler = make_board(100, rules).handler
    first = [await listed(handler, method, caller) for caller in CALLERS]
    made = counting(monkeypatch)
    again = [await listed(handler, method, caller) for caller in CALLERS]

    assert all(one is other for one, other in zip(first, again, strict=True))
    assert made == []
    if method == "tools/list":
        assert [[tool["name"] for tool in one.value["tools"]] for one in first] == [  # type: ignore[attr-defined]
            [f"tool_{number}"] for number in range(100)
        ]
    else:
        # All see the same here, by different rules.
        assert len({id(one) for one in first}) == 1


async def test_the_lists_of_a_gateway_stay_cached_too() -> None:
    toolbox = ToolboxConfig(
        name="box", description="many", servers={"many": ServerConfig(name="many", kind="board", board="many")}
    )
    rules = [{"who": f"caller {number}", "allow": [f"box/many/tool_{number % 50}"]} for number in range(100)]
    config = GatewayConfig(path="x.json", lock="off", toolboxes={"box": toolbox}, rules=read_rules(rules))
    gateway = Gateway(config, boards={"many": make_board(50, [])})
    await gateway.start()
    try:
        await gateway.wait_connected()
        first = [await listed(gateway.handler, "tools/list", caller) for caller in CALLERS]
        again = [await listed(gateway.handler, "tools/list", caller) for caller in CALLERS]
    finally:
        await gateway.stop()
    assert all(one is other for one, other in zip(first, again, strict=True))
    # Two callers each see the same tool.
    assert len({id(one) for one in first}) == 50


async def test_a_verdict_is_made_once_for_all_callers_with_the_same_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = make_board(3, [{"who": "*", "allow": ["tool_*"]}]).handler
    made = counting(monkeypatch)
    for caller in CALLERS:
        for _ in range(3):
            await handler(request("tools/call", caller, "tool_1"))
    assert made == ["tool_1"]


async def test_a_change_of_the_tools_invalidates_the_cached_lists() -> None:
    board = make_board(3, [{"who": "*", "allow": ["tool_*"]}])
    before = await listed(board.handler, "tools/list", CALLERS[0])

    async def run() -> str:
        return "ran"

    board.add(run, name="tool_new")
    after = await listed(board.handler, "tools/list", CALLERS[0])
    assert len(after.value["tools"]) == len(before.value["tools"]) + 1  # type: ignore[arg-type]


async def test_more_callers_than_are_remembered_get_their_own_lists() -> None:
    """What is remembered is bounded; a caller that was forgotten is answered as before."""
    count = VIEWS_KEPT + 50
    rules = [{"who": f"caller {number}", "allow": [f"tool_{number % 3}"]} for number in range(count)]
    board = make_board(3, rules)
    for _ in range(2):
        for number in range(count):
            result = await listed(board.handler, "tools/list", Principal(f"caller {number}"))
            assert [tool["name"] for tool in result.value["tools"]] == [f"tool_{number % 3}"]  # type: ignore[attr-defined]
    rules_of = board._access.rules
    assert len(rules_of._views) <= VIEWS_KEPT
    assert len(rules_of._by_principal) <= 4096
