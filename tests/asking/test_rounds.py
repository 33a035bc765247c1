"""Questions find their answers: asked while the call runs, or over rounds with a sealed ticket between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from pegboard import Accepted, Board, Cancelled, Client, Context, Declined, Elicit, Limits, Roots, Sample
from pegboard.auth.principal import Principal
from pegboard.call import NULL_CHANNEL, Call, Caller, Done, InputRequired, Json, Question, Reply
from pegboard.client.client_channel import Elicitation, QuestionHandlers
from pegboard.errors import DeclarationError, InvalidParams, MissingCapability, QuestionFailed, ToolError
from tests.depth import examples
from tests.waiting import SOON, until

ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


@dataclass
class Trip:
    where: str
    days: int = 3


async def send(
    board: Board,
    name: str,
    arguments: Mapping[str, Json] | None = None,
    *,
    ticket: str | None = None,
    answers: Json = None,
    capabilities: Mapping[str, Json] = ALL,
    principal: str = "",
    method: str = "tools/call",
) -> Reply:
    """One round of a call, as a client of 2026-07-28 makes it."""
    caller = Caller(version="2026-07-28", transport="http", capabilities=capabilities, principal=Principal(principal))
    return await board.handler(
        Call(
            method=method,
            caller=caller,
            channel=NULL_CHANNEL,
            id=1,
            name=name,
            raw=Raw(msgspec.json.encode(arguments or {})),
            ticket=ticket,
            answers=None if answers is None else Raw(msgspec.json.encode(answers)),
        )
    )


async def drive(
    board: Board, name: str, answers: QuestionHandlers, arguments: Mapping[str, Json] | None = None
) -> tuple[Reply, list[list[str]]]:
    """All rounds of a call, and which keys each of them asked."""
    asked: list[list[str]] = []
    reply = await send(board, name, arguments)
    while isinstance(reply, InputRequired):
        asked.append(list(reply.questions))
        told = {key: await answers.answer(question) for key, question in reply.questions.items()}
        reply = await send(board, name, arguments, ticket=reply.ticket, answers=told)
    return reply, asked


def text_of(reply: Reply) -> str:
    assert isinstance(reply, Done)
    assert isinstance(reply.result, Mapping)
    text: str = reply.result["content"][0]["text"]
    return text


def accept(**content: Json) -> dict[str, Json]:
    return {"action": "accept", "content": content}


async def required(board: Board, name: str, **sent: Any) -> InputRequired:
    reply = await send(board, name, **sent)
    assert isinstance(reply, InputRequired), reply
    return reply


# -- one tool, every way to ask ------------------------------------------------------------------------------------


def a_board_that_asks() -> tuple[Board, list[str]]:
    board = Board("asks")
    runs: list[str] = []

    @board.tool
    async def plan(start: str, ctx: Context) -> str:
        runs.append(start)
        made = await ctx.keep("made", lambda: len(runs))
        trip = await ctx.elicit("Where to?", Trip)
        if not isinstance(trip, Accepted):
            return "Stay at home."
        sure = await ctx.elicit("Sure?", bool)
        said = await ctx.sample("Say goodbye.", max_tokens=5)
        more = await ctx.ask(colour=Elicit("Which?", Literal["red", "blue"]), where=Roots())
        return f"{made} {trip.content} {sure.content} {said.text} {more['colour'].content} {more['where'][0].uri}"

    return board, runs


def fill_in(asked: Elicitation) -> Mapping[str, Json]:
    if "where" in asked.schema["properties"]:
        return {"where": "Rome", "days": "4"}
    return {"value": "Red"} if "Which" in asked.message else {"value": "yes"}


ANSWERS = QuestionHandlers(elicit=fill_in, sample=lambda _: "Bye.", roots=["file:///home"])
OUTCOME = "Trip(where='Rome', days=4) True Bye. red file:///home"


async def test_a_caller_that_can_be_asked_meanwhile_is_and_the_tool_runs_once() -> None:
    board, runs = a_board_that_asks()
    async with Client(board, elicit=fill_in, sample=lambda _: "Bye.", roots=["file:///home"]) as client:
        result = await client.call("plan", {"start": "now"})

    assert result.text == f"1 {OUTCOME}"
    assert runs == ["now"]


async def test_a_caller_that_is_asked_by_the_answer_comes_to_the_same_end_in_rounds() -> None:
    board, runs = a_board_that_asks()
    reply, asked = await drive(board, "plan", ANSWERS, {"start": "now"})

    # What was kept was made in the first round, and once.
    assert text_of(reply) == f"1 {OUTCOME}"
    assert [len(keys) for keys in asked] == [1, 1, 1, 2]
    assert asked[-1] == ["colour", "where"]
    assert len(runs) == 5


async def test_a_plain_function_asks_from_its_thread_in_both_ways() -> None:
    board = Board("asks")

    @board.tool
    def pack(ctx: Context) -> str:
        made = ctx.wait(ctx.keep("made", lambda: "once"))
        answer = ctx.wait(ctx.elicit("What?", str, key="what"))
        return f"{made} {answer.content}"

    answers = QuestionHandlers(elicit=lambda _: {"value": "socks"})
    async with Client(board, elicit=lambda _: {"value": "socks"}) as client:
        assert (await client.call("pack")).text == "once socks"
    reply, asked = await drive(board, "pack", answers)
    assert text_of(reply) == "once socks"
    assert asked == [["what"]]


async def test_questions_of_a_task_group_are_one_round() -> None:
    board = Board("asks")

    @board.tool
    async def both(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(_elicited(ctx, "one"))
            two = group.create_task(_elicited(ctx, "two"))
        return one.result() + two.result()

    reply, asked = await drive(board, "both", QuestionHandlers(elicit=lambda asked: {"value": asked.message}))
    assert text_of(reply) == "onetwo"
    assert [sorted(keys) for keys in asked] == [["one", "two"]]


async def _elicited(ctx: Context, word: str) -> str:
    answer = await ctx.elicit(word, str, key=word)
    return str(answer.content)


async def test_a_failure_beside_a_question_is_what_counts() -> None:
    board = Board("asks")

    @board.tool
    async def breaks(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(_elicited(ctx, "one"))
            group.create_task(_fail())
        return "never"

    reply = await send(board, "breaks")
    assert isinstance(reply, Done)
    assert reply.result["isError"]  # type: ignore[index]  # a plain result


async def _fail() -> None:
    raise RuntimeError("no")


async def test_prompts_and_resources_ask_too() -> None:
    board = Board("asks")

    @board.prompt
    async def about(ctx: Context) -> str:
        answer = await ctx.elicit("About what?", str, key="about")
        return f"Write about {answer.content}."

    @board.resource("asks://secret")
    async def secret(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", bool, key="sure")
        return str(answer.content)

    for method, name, key, value in (
        ("prompts/get", "about", "about", "cats"),
        ("resources/read", "asks://secret", "sure", True),
    ):
        first = await required(board, name, method=method)
        assert list(first.questions) == [key]
        last = await send(board, name, method=method, ticket=first.ticket, answers={key: accept(value=value)})
        assert isinstance(last, Done)
        assert str(value) in str(last.result)


# -- what is asked, and of whom ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "capabilities", "lacking"),
    [
        (Elicit("?", bool), {}, {"elicitation": {"form": {}}}),
        (Elicit("?", bool), {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        (Elicit("?", url="https://example.org"), {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (Sample("?"), {"elicitation": {}}, {"sampling": {}}),
        (Sample("?", tools=[{"name": "t"}]), {"sampling": {}}, {"sampling": {"tools": {}}}),
        (Roots(), {"sampling": {}}, {"roots": {}}),
    ],
)
async def test_a_client_is_not_asked_what_it_did_not_declare(
    ask: Elicit | Sample | Roots, capabilities: dict[str, Json], lacking: dict[str, Json]
) -> None:
    board = Board("asks")

    @board.tool
    async def curious(ctx: Context) -> str:
        return str(await ctx.ask(it=ask))

    # A result that the model can read, and not an error of the protocol, which many agents raise as an exception.
    reply = await send(board, "curious", capabilities=capabilities)
    assert isinstance(reply, Done)
    refused: Any = reply.result
    assert refused["isError"]
    assert refused["_meta"]["dev.pegboard/requiredCapabilities"] == lacking
    # With the part that is lacking: who has declared the rest must not be told that it has not.
    ((capability, parts),) = lacking.items()
    assert f"the capability {'.'.join((capability, *parts))}, which this one did not declare" in text_of(reply)


async def test_a_prompt_that_asks_what_the_client_cannot_answer_is_refused() -> None:
    board = Board("asks")

    @board.prompt
    async def curious(ctx: Context) -> str:
        return str(await ctx.elicit("?", bool))

    with pytest.raises(MissingCapability) as refused:
        await send(board, "curious", method="prompts/get", capabilities={})
    assert refused.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


@pytest.mark.parametrize(
    ("ask", "capabilities"),
    [
        (Elicit("?", bool), {"elicitation": {}}),
        (Elicit("?", bool), {"elicitation": {"form": {}}}),
        (Elicit("?", url="https://example.org"), {"elicitation": {"form": {}, "url": {}}}),
        (Sample("?", tools=[{"name": "t"}]), {"sampling": {"tools": {}}}),
    ],
)
async def test_what_a_client_can_answer_is_asked(ask: Elicit | Sample, capabilities: dict[str, Json]) -> None:
    board = Board("asks")

    @board.tool
    async def curious(ctx: Context) -> str:
        return str(await ctx.ask(it=ask))

    assert list((await required(board, "curious", capabilities=capabilities)).questions) == ["it"]


def questions() -> dict[str, Question]:
    return {
        "form": Elicit("Name?", Trip)._question(),
        "url": Elicit("Open", url="https://example.org/x")._question(),
        "sample": Sample(
            [{"role": "user", "content": "hi"}], max_tokens=7, system="s", stop=["."], model=["m"], temperature=0.5
        )._question(),
        "roots": Roots()._question(),
    }


@pytest.mark.parametrize("said", [Accepted(True), Accepted(False), Declined(), Cancelled()])
def test_no_answer_of_a_user_passes_for_a_yes(said: Accepted | Declined | Cancelled) -> None:
    with pytest.raises(TypeError, match=r"use answer\.content"):
        bool(said)


def test_a_question_without_its_text_in_front_is_refused_by_name() -> None:
    with pytest.raises(DeclarationError, match="the text of the question first"):
        Elicit(bool, "Sure?")  # type: ignore[arg-type]  # as careless authors do


def test_questions_are_written_as_the_protocol_has_them() -> None:
    written = {key: (question.method, dict(question.params)) for key, question in questions().items()}
    assert written == {
        "form": (
            "elicitation/create",
            {
                "mode": "form",
                "message": "Name?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"where": {"type": "string"}, "days": {"type": "integer", "default": 3}},
                    "required": ["where"],
                },
            },
        ),
        "url": ("elicitation/create", {"mode": "url", "message": "Open", "url": "https://example.org/x"}),
        "sample": (
            "sampling/createMessage",
            {
                "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
                "maxTokens": 7,
                "systemPrompt": "s",
                "temperature": 0.5,
                "stopSequences": ["."],
                "modelPreferences": {"hints": [{"name": "m"}]},
            },
        ),
        "roots": ("roots/list", {}),
    }


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ({"action": "decline"}, Declined()),
        ({"action": "cancel"}, Cancelled()),
        (accept(where="Rome"), Accepted(Trip("Rome"))),
        (accept(where="Rome", days="2"), Accepted(Trip("Rome", 2))),
    ],
)
def test_an_answer_to_a_form_is_a_value(answer: Json, wanted: Any) -> None:
    assert Elicit("?", Trip)._read(answer) == wanted


# -- tickets -------------------------------------------------------------------------------------------------------


def a_board_that_confirms(name: str = "asks") -> Board:
    board = Board(name)

    @board.tool
    async def delete(file: str, ctx: Context) -> str:
        answer = await ctx.elicit(f"Delete {file}?", bool, key="sure")
        return f"deleted {file}" if answer.content else f"kept {file}"

    return board


async def test_an_answer_without_a_ticket_is_taken_under_its_key() -> None:
    reply = await send(a_board_that_confirms(), "delete", {"file": "a"}, answers={"sure": accept(value=True)})
    assert text_of(reply) == "deleted a"


@pytest.mark.parametrize("answers", [{"other": accept(value=True)}, {"sure": accept(value="maybe")}, {}])
async def test_a_missing_or_unfit_answer_is_asked_again(answers: Json) -> None:
    board = a_board_that_confirms()
    first = await required(board, "delete", arguments={"file": "a"})
    again = await required(board, "delete", arguments={"file": "a"}, ticket=first.ticket, answers=answers)
    assert list(again.questions) == list(first.questions)
    assert again.ticket != first.ticket


@pytest.mark.parametrize("answers", [[], "yes", {"sure": 12345}, {"sure": {"action": "perhaps"}}, {"sure": None}])
async def test_answers_that_are_none_in_form_are_refused(answers: Json) -> None:
    with pytest.raises(InvalidParams, match="inputResponses"):
        await send(a_board_that_confirms(), "delete", {"file": "a"}, answers=answers)


async def test_null_is_rejected_as_a_set_of_answers() -> None:
    board = a_board_that_confirms()
    caller = Caller(version="2026-07-28", transport="http", capabilities=ALL)
    call = Call(
        method="tools/call",
        caller=caller,
        channel=NULL_CHANNEL,
        name="delete",
        raw=Raw(b'{"file":"a"}'),
        answers=Raw(b"null"),
    )
    with pytest.raises(InvalidParams):
        await board.handler(call)


async def test_a_ticket_opens_only_for_its_request_and_its_principal() -> None:
    board, other = a_board_that_confirms(), a_board_that_confirms()
    ticket = (await required(board, "delete", arguments={"file": "a"}, principal="ada")).ticket
    sure = {"sure": accept(value=True)}

    async def refused(why: str, **sent: Any) -> None:
        with pytest.raises(InvalidParams, match=why):
            await send(**{"board": board, "name": "delete", "answers": sure, "principal": "ada", **sent})

    await refused("another request", arguments={"file": "b"}, ticket=ticket)
    await refused("another caller", arguments={"file": "a"}, ticket=ticket, principal="eve")
    await refused("changed", arguments={"file": "a"}, ticket=f"{ticket}AAAA")
    await refused("not made by this server", board=other, arguments={"file": "a"}, ticket=ticket)
    reply = await send(board, "delete", {"file": "a"}, ticket=ticket, answers=sure, principal="ada")
    assert text_of(reply) == "deleted a"


async def test_a_ticket_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    board = a_board_that_confirms()
    first = await required(board, "delete", arguments={"file": "a"})
    monkeypatch.setattr("pegboard.asking.rounds.time.time", lambda: 10.0**10)
    with pytest.raises(InvalidParams, match="expired"):
        await send(board, "delete", {"file": "a"}, ticket=first.ticket, answers={"sure": accept(value=True)})


async def test_replicas_with_one_secret_accept_each_others_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_SECRET", "a secret of sixteen and more")
    one, two = a_board_that_confirms(), a_board_that_confirms()
    first = await required(one, "delete", arguments={"file": "a"})
    reply = await send(two, "delete", {"file": "a"}, ticket=first.ticket, answers={"sure": accept(value=True)})
    assert text_of(reply) == "deleted a"


async def test_boards_of_different_names_with_one_secret_reject_each_others_tickets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PEGBOARD_SECRET", "a secret of sixteen and more")
    one, two = a_board_that_confirms(), a_board_that_confirms("another")
    first = await required(one, "delete", arguments={"file": "a"})
    with pytest.raises(InvalidParams, match="not made by this server"):
        await send(two, "delete", {"file": "a"}, ticket=first.ticket, answers={"sure": accept(value=True)})


async def test_an_answer_counts_only_for_the_question_it_was_given_to() -> None:
    board = Board("asks")
    files = ["a"]

    @board.tool
    async def delete(ctx: Context) -> str:
        answer = await ctx.elicit(f"Delete {files[0]}?", bool, key="sure")
        return f"deleted {files[0]}" if answer.content else "kept"

    first = await required(board, "delete")
    files[0] = "b"
    again = await required(board, "delete", ticket=first.ticket, answers={"sure": accept(value=True)})
    assert again.questions["sure"].params["message"] == "Delete b?"


async def test_a_question_that_never_repeats_itself_ends_before_the_official_clients_give_up() -> None:
    board = Board("asks")
    count = iter(range(1000))

    @board.tool
    async def restless(ctx: Context) -> str:
        return str(await ctx.elicit(f"Number {next(count)}?", bool))

    reply, asked = await drive(board, "restless", QuestionHandlers(elicit=lambda _: {"value": True}))
    assert len(asked) == 10
    assert isinstance(reply, Done)
    assert "key" in text_of(reply)


async def test_more_than_a_request_can_carry_is_an_error_for_the_model() -> None:
    board = Board("asks")

    @board.tool
    async def heavy(ctx: Context) -> str:
        await ctx.keep("much", lambda: "x" * 300_000)
        return str(await ctx.elicit("Sure?", bool))

    assert "task" in text_of(await send(board, "heavy"))


async def catches_exceptions(ctx: Context) -> str:
    try:
        return _told(await ctx.elicit("Sure?", bool))
    except Exception:  # noqa: BLE001 — as careless authors do
        return "swallowed"


async def catches_everything(ctx: Context) -> str:
    try:
        return _told(await ctx.elicit("Sure?", bool))
    except BaseException:  # noqa: BLE001 — as careless authors do
        return "swallowed"


def catches_everything_in_a_thread(ctx: Context) -> str:
    try:
        return _told(ctx.wait(ctx.elicit("Sure?", bool)))
    except BaseException:  # noqa: BLE001 — as careless authors do
        return "swallowed"


async def gathers_exceptions(ctx: Context) -> str:
    found = await asyncio.gather(ctx.elicit("Sure?", bool), return_exceptions=True)
    return ", ".join("swallowed" if isinstance(one, BaseException) else _told(one) for one in found)


async def stumbles_over_what_it_gathered(ctx: Context) -> str:
    (found,) = await asyncio.gather(ctx.elicit("Sure?", bool), return_exceptions=True)
    return _told(found)  # type: ignore[arg-type]  # as careless authors do


async def fails_in_its_own_words(ctx: Context) -> str:
    try:
        return _told(await ctx.elicit("Sure?", bool))
    except BaseException as problem:
        raise ToolError("The user could not be asked") from problem


def _told(answer: Accepted | Declined | Cancelled) -> str:
    return f"the user said {answer.content}"


@pytest.mark.parametrize(
    "careless",
    [
        catches_exceptions,
        catches_everything,
        catches_everything_in_a_thread,
        gathers_exceptions,
        stumbles_over_what_it_gathered,
        fails_in_its_own_words,
    ],
)
async def test_a_tool_cannot_swallow_its_own_question(careless: Callable[[Context], Any]) -> None:
    board = Board("asks")
    board.add(careless, name="careless")
    reply, asked = await drive(board, "careless", QuestionHandlers(elicit=lambda _: {"value": True}))
    assert len(asked) == 1
    assert text_of(reply) == "the user said True"


async def test_a_tool_that_catches_its_own_question_is_reported_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    board = Board("asks")
    board.add(catches_everything, name="careless")
    await required(board, "careless")
    assert "careless caught the question that ends its round" in caplog.text


async def test_a_refusal_beside_a_question_is_what_counts() -> None:
    board = Board("asks")

    @board.tool
    async def wants_both(ctx: Context) -> str:
        await asyncio.gather(ctx.elicit("Sure?", bool), return_exceptions=True)
        return (await ctx.sample("Say it.")).text

    reply = await send(board, "wants_both", capabilities={"elicitation": {}})
    assert "needs a client with the capability sampling" in text_of(reply)


async def test_a_key_that_looks_like_the_second_use_of_another_is_a_question_of_its_own() -> None:
    for order in ("a", "a", "a-2"), ("a-2", "a", "a"), ("a", "a-2", "a"):
        board = Board("asks")

        @board.tool
        async def three(ctx: Context, order: tuple[str, ...] = order) -> str:
            asks = [ctx.elicit(f"{number}?", str, key=key) for number, key in enumerate(order)]
            return " ".join(str(answer.content) for answer in await asyncio.gather(*asks))

        reply, rounds = await drive(board, "three", QuestionHandlers(elicit=lambda asked: {"value": asked.message}))
        assert text_of(reply) == "0? 1? 2?"
        assert [len(set(keys)) for keys in rounds] == [3]


@pytest.mark.parametrize(
    ("capabilities", "lacking"),
    [
        ({"elicitation": {}, "extensions": {"io.example/x": {}}}, "needs a client with the capability elicitation.url"),
        ({"elicitation": {"form": {}, "url": {}}}, "needs a client with the capability extensions.io.example/x"),
        ({"extensions": {"io.example/x": {}}}, "capability elicitation.form, elicitation.url"),
        ({"elicitation": {"form": {}, "url": {}}, "extensions": {"io.example/x": {}}}, ""),
    ],
)
async def test_parts_of_capabilities_are_required_before_a_tool_runs(
    capabilities: dict[str, Json], lacking: str
) -> None:
    board = Board("asks")

    @board.tool(requires=["elicitation.form", "elicitation.url", "extensions.io.example/x"])
    async def picky() -> str:
        return "ran"

    if not lacking:
        assert text_of(await send(board, "picky", capabilities=capabilities)) == "ran"
        return
    with pytest.raises(MissingCapability) as refused:
        await send(board, "picky", capabilities=capabilities)
    assert lacking in str(refused.value)


async def test_questions_that_are_gathered_are_one_round() -> None:
    board = Board("asks")

    @board.tool
    async def both(ctx: Context) -> str:
        return "".join(await asyncio.gather(_elicited(ctx, "one"), _elicited(ctx, "two")))

    reply, asked = await drive(board, "both", QuestionHandlers(elicit=lambda asked: {"value": asked.message}))
    assert text_of(reply) == "onetwo"
    assert asked == [["one", "two"]]


async def test_an_invalid_answer_is_asked_for_three_times_and_then_reported() -> None:
    board = a_board_that_confirms()
    asked: list[str] = []

    def never_fits(question: Elicitation) -> Mapping[str, Json]:
        asked.append(question.message)
        return {"value": "perhaps"}

    async with Client(board, elicit=never_fits) as client:
        result = await client.call("delete", {"file": "a"})
    assert result.is_error
    assert len(asked) == 3
    reply, rounds = await drive(board, "delete", QuestionHandlers(elicit=never_fits), {"file": "a"})
    assert len(rounds) == 3
    assert text_of(reply) == result.text


# -- any tool ------------------------------------------------------------------------------------------------------

Step = tuple[Literal["elicit", "sample", "roots", "both", "keep"], int]
steps = st.lists(
    st.tuples(st.sampled_from(["elicit", "sample", "roots", "both", "keep"]), st.integers(0, 2)), max_size=7
)


def tool_of(plan: list[Step]) -> Callable[[Context], Any]:
    async def walk(ctx: Context) -> str:
        """Ask as planned; what was answered decides where it goes on."""
        seen: list[str] = []
        for kind, number in plan:
            if kind == "elicit":
                answer = await ctx.elicit(f"Number {number}?", int)
                seen.append(str(answer.content))
                if answer.content == 2:
                    break
            elif kind == "sample":
                seen.append((await ctx.sample(f"Text {number}")).text)
            elif kind == "roots":
                seen.append((await ctx.roots())[0].uri)
            elif kind == "both":
                told = await ctx.ask(a=Elicit(f"A {number}?", int), b=Sample(f"B {number}"))
                seen.append(f"{told['a'].content}{told['b'].text}")
            else:
                seen.append(str(await ctx.keep(f"k{number}", lambda: len(seen))))
        return "|".join(seen)

    return walk


@settings(deadline=None, max_examples=examples(15))
@given(steps)
def test_any_tool_comes_to_the_same_end_in_rounds_and_at_once(plan: list[Step]) -> None:
    board = Board("asks")
    board.add(tool_of(plan), name="walk")

    def fill(asked: Elicitation) -> Mapping[str, Json]:
        return {"value": int(asked.message[-2])}

    def say(asked: Mapping[str, Json]) -> str:
        return f"<{asked['messages'][0]['content']['text']}>"

    async def compare() -> None:
        async with Client(board, elicit=fill, sample=say, roots=["file:///r"]) as client:
            at_once = (await client.call("walk")).text
        in_rounds, asked = await drive(board, "walk", QuestionHandlers(elicit=fill, sample=say, roots=["file:///r"]))
        assert text_of(in_rounds) == at_once
        assert len(asked) <= len(plan)

    asyncio.run(compare())


async def test_open_questions_of_plain_functions_stop_no_other_tool() -> None:
    board, asked, answered = Board("asks", limits=Limits(threads=1)), list[str](), asyncio.Event()

    @board.tool
    def sure(ctx: Context) -> str:
        return str(ctx.wait(ctx.elicit("Sure?", bool)).content)

    @board.tool
    def add(a: int, b: int) -> int:
        return a + b

    async def think(question: Elicitation) -> Mapping[str, Json]:
        asked.append(question.message)
        await answered.wait()
        return {"value": True}

    async with Client(board, elicit=think) as client:
        asking = [asyncio.ensure_future(client.call("sure")) for _ in range(3)]
        await until(lambda: len(asked) == 3)
        async with asyncio.timeout(SOON):
            assert (await client.call("add", {"a": 1, "b": 2})).text == "3"
        answered.set()
        assert [result.text for result in await asyncio.gather(*asking)] == ["True"] * 3


async def test_a_thread_that_waits_for_an_answer_goes_when_its_caller_does() -> None:
    board = Board("asks")
    ended: list[str] = []

    @board.tool
    def patient(ctx: Context) -> str:
        try:
            return str(ctx.elicit("Still there?", bool))
        finally:
            ended.append("gone")

    asked = asyncio.Event()

    async def never(_: Elicitation) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with Client(board, elicit=never) as client:
        call = asyncio.ensure_future(client.call("patient"))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: ended == ["gone"])


async def test_a_question_is_put_again_with_what_was_wrong_and_stays_the_same_question() -> None:
    board = a_board_that_confirms()
    first = await required(board, "delete", arguments={"file": "a"})
    again = await required(
        board, "delete", arguments={"file": "a"}, ticket=first.ticket, answers={"sure": accept(value="maybe")}
    )
    message = again.questions["sure"].params["message"]
    assert message.startswith("Delete a?\n(")
    assert "maybe" in message
    reply = await send(board, "delete", {"file": "a"}, ticket=again.ticket, answers={"sure": accept(value=True)})
    assert text_of(reply) == "deleted a"


async def test_a_task_that_the_tool_left_behind_can_ask_nothing() -> None:
    board = Board("asks")
    left: list[asyncio.Task[Any]] = []

    @board.tool
    async def forgetful(ctx: Context) -> str:
        async def later() -> None:
            await asyncio.sleep(0)
            await ctx.elicit("Still there?", bool)

        left.append(asyncio.ensure_future(later()))
        return "done"

    assert text_of(await send(board, "forgetful")) == "done"
    with pytest.raises(QuestionFailed, match="ended"):
        await left[0]
