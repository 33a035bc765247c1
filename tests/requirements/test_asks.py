"""What a server asks of its client's side, by the rules of 2026-07-28."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Board, Context, Elicit, Roots, Sample
from pegboard.auth.principal import Principal
from pegboard.call import Call, Caller, InputRequired
from pegboard.errors import DeclarationError, InvalidParams
from pegboard.middleware import Cache
from tests.requirements.clients import MODERN, PREFIX, Client, connect

ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
PAGE = "https://example.com/sign-in"


@dataclass
class Person:
    """Who is asked for."""

    name: str
    age: int = 30


def make_board() -> Board:
    board = Board("asks", version="1")

    @board.tool(annotations={"readOnlyHint": True})
    async def greet(ctx: Context, greeting: str = "Hello") -> str:
        """Asks for a name and greets it."""
        answer = await ctx.elicit("Who are you?", str, key="name")
        if answer.action != "accept":
            return f"{answer.action}: nobody is greeted"
        return f"{greeting}, {answer.content}"

    @board.tool
    async def twice(ctx: Context) -> str:
        """Asks two things, one after the other."""
        first = await ctx.elicit("First?", str, key="first")
        second = await ctx.elicit("Second?", str, key="second")
        return f"{first.content} {second.content}"

    @board.tool
    async def at_once(ctx: Context) -> str:
        """Asks the same thing twice at once."""
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(_elicit(ctx)) for _ in range(2)]
        return " ".join(str(task.result()) for task in asked)

    @board.tool
    async def all_kinds(ctx: Context) -> str:
        """Asks everything there is."""
        told = await ctx.ask(
            person=Elicit("Who?", Person), page=Elicit("Sign in", url=PAGE), model=Sample("Hi"), where=Roots()
        )
        return ", ".join(sorted(told))

    @board.tool
    async def visit(ctx: Context) -> str:
        """Sends its user to a page."""
        return (await ctx.elicit("Sign in", url=PAGE)).action

    @board.tool
    async def think(ctx: Context) -> str:
        """Asks the model, with a tool to use."""
        tools = [{"name": "look", "inputSchema": {"type": "object"}}]
        return (await ctx.sample("Think", tools=tools)).text

    @board.tool
    async def look_around(ctx: Context) -> str:
        """Asks for roots."""
        return str(len(await ctx.roots()))

    @board.resource("x://asked")
    async def asked(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", str, key="which")).content)

    @board.prompt
    async def wonder(ctx: Context) -> str:
        return str((await ctx.elicit("What?", str, key="what")).content)

    return board


async def _elicit(ctx: Context) -> Any:
    return (await ctx.elicit("Which?", str)).content


def filled(value: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "arguments": {}, **more}


def state_of(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"requestState": result["requestState"]} if "requestState" in result else {}


async def ask_first(client: Client, name: str, **more: Any) -> Any:
    asked = await client.result("tools/call", tool(name, **more))
    assert asked["resultType"] == "input_required"
    return asked


@pytest.mark.requirement("modern/asks/never-initiated", "modern/asks/mrtr-only", "modern/asks/supported-requests")
@pytest.mark.parametrize(
    ("method", "params", "key"),
    [
        ("tools/call", tool("greet"), "name"),
        ("resources/read", {"uri": "x://asked"}, "which"),
        ("prompts/get", {"name": "wonder"}, "what"),
    ],
)
async def test_a_question_is_a_result_and_its_answer_comes_with_the_retry(
    method: str, params: dict[str, Any], key: str
) -> None:
    client = await connect(make_board(), "modern", ABLE)
    asked = await client.result(method, params)
    assert asked["resultType"] == "input_required"
    assert list(asked["inputRequests"]) == [key]
    told = await client.result(method, {**params, "inputResponses": {key: filled("Ada")}, **state_of(asked)})
    assert told["resultType"] == "complete"
    assert "Ada" in json.dumps(told)
    assert not [message for message in client.heard if "method" in message]


@pytest.mark.requirement("modern/asks/supported-requests")
async def test_nothing_but_tools_resources_and_prompts_is_answered_by_a_question() -> None:
    client = await connect(make_board(), "modern", ABLE)
    for method in ("server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        assert (await client.result(method))["resultType"] == "complete"


@pytest.mark.requirement(
    "modern/asks/kinds",
    "modern/asks/something-asked",
    "modern/asks/elicit-message",
    "modern/asks/elicit-form",
    "modern/asks/elicit-url",
    "modern/asks/sampling-messages",
)
async def test_each_question_has_the_form_of_its_kind() -> None:
    client = await connect(make_board(), "modern", ABLE)
    questions = (await ask_first(client, "all_kinds"))["inputRequests"]
    assert {key: question["method"] for key, question in questions.items()} == {
        "person": "elicitation/create",
        "page": "elicitation/create",
        "model": "sampling/createMessage",
        "where": "roots/list",
    }
    person, page, model = (questions[key]["params"] for key in ("person", "page", "model"))
    assert (person.get("mode", "form"), person["message"]) == ("form", "Who?")
    assert person["requestedSchema"]["type"] == "object"
    assert person["requestedSchema"]["properties"]["age"]["default"] == 30
    assert (page["mode"], page["message"], page["url"]) == ("url", "Sign in", PAGE)
    assert model["messages"] == [{"role": "user", "content": {"type": "text", "text": "Hi"}}]


@pytest.mark.requirement("modern/asks/keys-unique")
async def test_the_same_question_twice_has_two_keys() -> None:
    client = await connect(make_board(), "modern", ABLE)
    asked = await ask_first(client, "at_once")
    first, second = asked["inputRequests"]
    answers = {first: filled("one"), second: filled("two")}
    told = await client.result("tools/call", tool("at_once", inputResponses=answers, **state_of(asked)))
    assert sorted(told["content"][0]["text"].split()) == ["one", "two"]


@pytest.mark.requirement("modern/asks/capability-first", "modern/asks/modes", "modern/asks/sampling-tools")
@pytest.mark.parametrize(
    ("name", "declared", "missing"),
    [
        ("greet", {}, "elicitation"),
        ("greet", {"elicitation": {"url": {}}}, "elicitation"),
        ("visit", {"elicitation": {}}, "elicitation"),
        ("visit", {"elicitation": {"form": {}}}, "elicitation"),
        ("think", {}, "sampling"),
        ("think", {"sampling": {}}, "sampling"),
        ("look_around", {"sampling": {}}, "roots"),
        ("all_kinds", {**ABLE, "roots": None}, "roots"),
    ],
)
async def test_nothing_is_asked_that_the_client_did_not_declare(
    name: str, declared: dict[str, Any], missing: str
) -> None:
    declared = {key: value for key, value in declared.items() if value is not None}
    client = await connect(make_board(), "modern", declared)
    refused = await client.result("tools/call", tool(name))
    assert (refused["resultType"], refused["isError"]) == ("complete", True)
    assert list(refused["_meta"]["dev.pegboard/requiredCapabilities"]) == [missing]
    # What another request declared counts for that one alone.
    able = {PREFIX + "clientCapabilities": ABLE}
    assert (await client.result("tools/call", tool(name, _meta=able)))["resultType"] == "input_required"
    assert (await client.result("tools/call", tool(name)))["isError"]


@pytest.mark.requirement("modern/asks/modes")
@pytest.mark.parametrize("declared", [{}, {"form": {}}, {"form": {}, "url": {}}])
async def test_forms_are_what_elicitation_means_where_no_mode_is_named(declared: dict[str, Any]) -> None:
    client = await connect(make_board(), "modern", {"elicitation": declared})
    await ask_first(client, "greet")


@pytest.mark.requirement("modern/asks/no-promise")
async def test_an_unanswered_question_holds_no_resources() -> None:
    client = await connect(make_board(), "modern", ABLE)
    asked = await ask_first(client, "greet")
    assert not client.door.endpoint.calls
    again = await client.result("tools/call", tool("greet", **state_of(asked)))
    assert again["resultType"] == "input_required"
    other = await client.result("tools/call", tool("greet", inputResponses={"unknown": filled("x")}, **state_of(asked)))
    assert list(other["inputRequests"]) == ["name"]


@pytest.mark.requirement("modern/base/state-by-name", "modern/base/stateless")
async def test_what_was_answered_before_comes_with_the_request_and_not_from_the_connection() -> None:
    board = make_board()
    first = await ask_first(await connect(board, "modern", ABLE), "twice")
    answers = {"first": filled("one")}
    second = await ask_first(await connect(board, "modern", ABLE), "twice", inputResponses=answers, **state_of(first))
    assert list(second["inputRequests"]) == ["second"]
    last = tool("twice", inputResponses={"second": filled("two")}, **state_of(second))
    told = await (await connect(board, "modern", ABLE)).result("tools/call", last)
    assert told["content"][0]["text"] == "one two"


@pytest.mark.requirement("modern/asks/declined")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_may_say_no(action: str) -> None:
    client = await connect(make_board(), "modern", ABLE)
    asked = await ask_first(client, "greet")
    told = await client.result(
        "tools/call", tool("greet", inputResponses={"name": {"action": action}}, **state_of(asked))
    )
    assert told["content"][0]["text"] == f"{action}: nobody is greeted"


@pytest.mark.requirement("modern/asks/declined")
@pytest.mark.parametrize("answer", [None, 5, {}, {"action": "maybe"}, {"action": "accept", "content": [1]}])
async def test_an_answer_that_is_none_is_refused_or_asked_for_again(answer: Any) -> None:
    client = await connect(make_board(), "modern", ABLE)
    asked = await ask_first(client, "greet")
    response = await client.response("tools/call", tool("greet", inputResponses={"name": answer}, **state_of(asked)))
    assert (response.status, response.code) == (400, -32602)


@pytest.mark.requirement(
    "modern/asks/state-untrusted",
    "modern/asks/state-protected",
    "modern/asks/state-refused",
    "modern/asks/state-validated",
)
@given(at=st.integers(0), letter=st.sampled_from("ABCxyz019-_"), cut=st.booleans())
async def test_a_state_that_was_changed_is_refused(at: int, letter: str, cut: bool) -> None:
    client = await connect(make_board(), "modern", ABLE)
    asked = await ask_first(client, "twice")
    answered = {"inputResponses": {"first": filled("one")}}
    state = (await ask_first(client, "twice", **answered, **state_of(asked)))["requestState"]
    at %= len(state)
    changed = state[:at] if cut else state[:at] + letter + state[at + 1 :]
    if changed == state:
        return
    last = {"inputResponses": {"second": filled("two")}, "requestState": changed}
    response = await client.response("tools/call", tool("twice", **last))
    # The last letter of Base64 holds bits that mean nothing; whatever is taken means what it meant.
    if response.code is None:
        assert response.json["result"]["content"][0]["text"] == "one two"
        assert at == len(state) - 1
    else:
        assert (response.status, response.code) == (400, -32602)


@pytest.mark.requirement("modern/asks/state-untrusted", "modern/asks/state-refused", "modern/asks/state-validated")
@pytest.mark.parametrize("state", ["", "x", "AAAA", "é", "=" * 50, "A" * 100_000, None, 5, {}])
async def test_a_state_that_was_made_up_is_refused(state: Any) -> None:
    client = await connect(make_board(), "modern", ABLE)
    response = await client.response("tools/call", tool("greet", requestState=state))
    assert (response.status, response.code) == (400, -32602)


@pytest.mark.requirement("modern/asks/state-refused", "modern/asks/state-validated")
async def test_a_state_is_good_for_its_own_request_alone() -> None:
    client = await connect(make_board(), "modern", ABLE)
    asked = await ask_first(client, "greet")
    for params in (
        tool("twice", **state_of(asked)),
        {"name": "greet", "arguments": {"greeting": "Bye"}, **state_of(asked)},
    ):
        assert (await client.error("tools/call", params))["code"] == -32602
    assert (await client.error("prompts/get", {"name": "wonder", **state_of(asked)}))["code"] == -32602
    other = await connect(make_board(), "modern", ABLE)
    assert (await other.error("tools/call", tool("greet", **state_of(asked))))["code"] == -32602


def made(principal: str, **more: Any) -> Call:
    caller = Caller(version=MODERN, transport="http", principal=Principal(principal), capabilities=ABLE)
    return Call(method="tools/call", caller=caller, channel=_Asks(), id=1, name="twice", **more)


class _Asks:
    """The channel of a modern caller that is told nothing."""

    async def emit(self, notice: Any) -> None: ...

    async def ask(self, asks: Any) -> Any:
        from pegboard.call import ask_in_result

        return await ask_in_result(asks)

    async def close_stream(self, retry_ms: int) -> None: ...


@pytest.mark.requirement("modern/asks/state-of-the-user", "modern/asks/state-storage", "modern/asks/bound-to-user")
async def test_a_state_belongs_to_the_one_who_was_asked() -> None:
    handler = make_board().handler
    asked = await handler(made("ada"))
    assert isinstance(asked, InputRequired)
    answers = msgspec.Raw(msgspec.json.encode({"first": filled("one")}))
    for thief in ("bob", ""):
        with pytest.raises(InvalidParams, match="another caller"):
            await handler(made(thief, answers=answers, ticket=asked.ticket))
    again = await handler(made("ada", answers=answers, ticket=asked.ticket))
    assert isinstance(again, InputRequired)
    assert list(again.questions) == ["second"]


@pytest.mark.requirement("modern/asks/state-single-use")
async def test_a_state_that_may_be_used_once_is_refused_the_second_time() -> None:
    board, redeemed = make_board(), []

    @board.tool(once=True)
    async def redeem(ctx: Context) -> str:
        """Redeems a code, which must happen once."""
        code = (await ctx.elicit("Which code?", str, key="code")).content
        redeemed.append(code)
        return f"redeemed {code}"

    client = await connect(board, "modern", ABLE)
    asked = await ask_first(client, "redeem")
    retry = tool("redeem", inputResponses={"code": filled("X1")}, **state_of(asked))
    assert (await client.result("tools/call", retry))["content"][0]["text"] == "redeemed X1"
    assert (await client.error("tools/call", retry))["code"] == -32602
    assert redeemed == ["X1"]


@pytest.mark.requirement("modern/caching/retries")
async def test_no_cache_keeps_a_question_or_what_was_made_of_its_answer() -> None:
    board = make_board()
    board.use(Cache(60))
    client = await connect(board, "modern", ABLE)
    for name in ("Ada", "Bob"):
        asked = await ask_first(client, "greet")
        params = tool("greet", inputResponses={"name": filled(name)}, **state_of(asked))
        assert (await client.result("tools/call", params))["content"][0]["text"] == f"Hello, {name}"


@pytest.mark.requirement("modern/asks/elicit-url-valid", "legacy/asks/elicit-url-valid")
@pytest.mark.parametrize(
    "url", ["", "sign in", "/in", "example.com/in", "https://", "https://a b/", "https://[", "https://x/\n"]
)
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(DeclarationError, match="not an absolute URL"):
        Elicit("Sign in", url=url)


USE = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "toolUseId": "1", "content": []}
TEXT = {"type": "text", "text": "x"}


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


@pytest.mark.requirement(
    "modern/asks/sampling-messages",
    "modern/asks/sampling-results-alone",
    "modern/asks/sampling-balance",
    "modern/asks/sampling-matching",
    "legacy/asks/sampling-results-alone",
    "legacy/asks/sampling-balance",
    "legacy/asks/sampling-matching",
)
@pytest.mark.parametrize(
    ("messages", "rule"),
    [
        ([{"content": TEXT}], "expected text"),
        ([{"role": "system", "content": TEXT}], "expected text"),
        ([{"role": "user"}], "expected text"),
        ([{"role": "user", "content": 5}], "expected text"),
        ([said("assistant", USE), said("user", RESULT, TEXT)], "must be alone"),
        ([said("assistant", USE), said("assistant", RESULT)], "must be alone"),
        ([said("assistant", USE)], "needs one result"),
        ([said("assistant", USE), said("user", TEXT)], "needs one result"),
        ([said("assistant", USE, {**USE, "id": "2"}), said("user", RESULT)], "needs one result"),
        ([said("assistant", USE), said("user", RESULT, RESULT)], "needs one result"),
        ([said("assistant", USE), said("user", {**RESULT, "toolUseId": "2"})], "needs one result"),
        ([said("user", RESULT)], "needs one result"),
        ([said("assistant", USE), said("user", TEXT), said("user", RESULT)], "needs one result"),
        ([said("user", USE), said("user", RESULT)], "only the assistant"),
    ],
)
def test_a_dialogue_that_no_model_could_go_on_with_is_not_sent(messages: list[Any], rule: str) -> None:
    with pytest.raises(DeclarationError, match=rule):
        Sample(messages)._question()


def test_a_dialogue_with_tools_is_sent_as_it_is() -> None:
    second = {**USE, "id": "2"}
    messages = [
        said("user", TEXT),
        said("assistant", TEXT, USE, second),
        said("user", {**RESULT, "toolUseId": "2"}, RESULT),
        said("assistant", TEXT),
        {"role": "user", "content": TEXT},
    ]
    assert Sample(messages)._question().params["messages"] == messages
