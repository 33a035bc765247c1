"""Calls that need an approval: asked of the caller or decided by others, in both eras and through every way to call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from pegboard import Board, Cancelled, Client, Context, Declined, Gateway, Limits, Middleware, Principal
from pegboard.approvals.approval_request import ApprovalRequest
from pegboard.approvals.approval_store import Approvals
from pegboard.auth.local_user import local_user
from pegboard.call import NULL_CHANNEL, Call, Caller, InputRequired, Json, Reply
from pegboard.client.call_result import CallResult
from pegboard.client.client_channel import Elicitation
from pegboard.config.rule_keys import read_rules
from pegboard.errors import InvalidParams
from pegboard.execution.executor import ToolExecutor
from pegboard.middleware import Audit, Cache, RateLimit, Retry
from pegboard.protocol.revisions import TASKS
from pegboard.rules.verdicts import Rules
from pegboard.tools.parameters import ToolCallRequest
from tests.loops import skip
from tests.middleware.audit.audit_records import SECRET, records_of
from tests.waiting import SOON

ERAS = ("2026-07-28", "2025-11-25")
ANN, BOB = Principal("ann"), Principal("bob")
LEAD = Principal("lea", roles=frozenset({"lead"}))
FORM: Mapping[str, Json] = {"elicitation": {"form": {}}}
URL: Mapping[str, Json] = {"elicitation": {"url": {}}}
REFUSED = "dev.pegboard/refused"
AT_ONCE = Limits(approval_wait_seconds=0.0)
PATIENT = Limits(approval_wait_seconds=SOON)


class Yard:
    """A board whose tools count their runs."""

    def __init__(self, *rules: Mapping[str, Json], limits: Limits = AT_ONCE, **options: Any) -> None:
        self.board = Board("yard", rules=rules, limits=limits, **options)
        self.ran: list[Json] = []

        @self.board.tool
        async def delete_note(number: int) -> str:
            """Delete a note."""
            self.ran.append(number)
            return f"deleted {number}"

        @self.board.tool(annotations={"readOnlyHint": True})
        async def read_note(number: int) -> str:
            """Read a note."""
            self.ran.append(number)
            return f"note {number}"

        @self.board.tool
        async def pay(amount: Decimal, ctx: Context) -> str:
            """Pay an amount, after a question."""
            answer = await ctx.elicit("Which account?", str)
            self.ran.append(str(amount))
            return f"paid {amount} from {answer.content}"

    async def waiting(self) -> ApprovalRequest:
        return await waiting_at(self.board.approvals, LEAD)

    async def decide(self, *, approve: bool = True, by: Principal = LEAD, reason: str = "") -> ApprovalRequest:
        request = await waiting_at(self.board.approvals, by)
        return await self.board.approvals.decide(request.id, by, approve=approve, reason=reason)


async def waiting_at(approvals: Approvals, principal: Principal) -> ApprovalRequest:
    """The one request that a principal may decide, once there is one."""
    changed = asyncio.Event()
    end = approvals.watch(changed.set)
    try:
        async with asyncio.timeout(SOON):
            while not (found := await approvals.open_for(principal)):
                await changed.wait()
                changed.clear()
    finally:
        end()
    [request] = found
    return request


async def send(
    board: Board | Gateway,
    name: str,
    arguments: Json,
    principal: Principal = ANN,
    capabilities: Mapping[str, Json] = {},
    ticket: str | None = None,
    answers: Mapping[str, Json] | None = None,
) -> Reply:
    """One request of a client of 2026-07-28."""
    caller = Caller(version=ERAS[0], transport="http", capabilities=capabilities, principal=principal)
    call = Call(method="tools/call", caller=caller, channel=NULL_CHANNEL, id=1, name=name)
    call.raw = Raw(msgspec.json.encode(arguments))
    call.ticket = ticket
    call.answers = None if answers is None else Raw(msgspec.json.encode(answers))
    return await board.handler(call)


def text(reply: Reply | CallResult) -> str:
    content: Any = reply.content if isinstance(reply, CallResult) else reply.result["content"]  # type: ignore[index]
    return str(content[0]["text"])


def reason_of(reply: Reply) -> str:
    """Why a call was refused."""
    result: Any = reply.result
    return str(result["_meta"][REFUSED]["reason"])


def yes(asked: list[Elicitation]) -> Any:
    async def answer(question: Elicitation) -> Json:
        asked.append(question)
        return {"approve": True}

    return answer


# -- the caller approves itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ERAS)
async def test_a_caller_with_a_form_approves_its_own_call_after_repair(version: str) -> None:
    yard, asked = Yard({"tools": ["delete_*"], "approve": "self"}), list[Elicitation]()
    async with Client(yard.board, version=version, elicit=yes(asked)) as client:
        result = await client.call("delete_note", {"number": "3"})
        assert text(result) == "deleted 3"
    [question] = asked
    assert question.message.startswith("delete_note needs an approval before it runs. Do you approve this call?")
    # The number as it runs, not the text that was sent.
    assert question.message.endswith('{\n  "number": 3\n}')
    assert question.schema["required"] == ["approve"]
    assert yard.ran == [3]


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"approve": False, "reason": "not today"}, "the call was refused by the user: not today."),
        (Declined(), "the call was refused by the user."),
        (Cancelled(), "it waits for approval (the caller has to approve it"),
    ],
)
async def test_a_form_that_is_not_accepted_leaves_the_tool_alone(version: str, answer: Any, outcome: str) -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "self"}, limits=PATIENT)

    async def refuse(_: Elicitation) -> Any:
        return answer

    async with Client(yard.board, version=version, elicit=refuse) as client:
        result = await client.call("delete_note", {"number": 3})
        assert result.is_error
        assert outcome in text(result)
    assert yard.ran == []


@pytest.mark.parametrize("version", ERAS)
async def test_each_call_needs_its_own_approval_also_with_the_same_arguments(version: str) -> None:
    yard, asked = Yard({"tools": ["delete_*"], "approve": "self"}), list[Elicitation]()
    async with Client(yard.board, version=version, elicit=yes(asked)) as client:
        for number in (3, 3, 4):
            await client.call("delete_note", {"number": number})
    assert (len(asked), yard.ran) == (3, [3, 3, 4])


async def test_an_answer_counts_only_with_the_ticket_of_its_question_and_once() -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "self"})
    asked = await send(yard.board, "delete_note", {"number": 3}, capabilities=FORM)
    assert isinstance(asked, InputRequired)
    [key] = asked.questions
    accepted = {key: {"action": "accept", "content": {"approve": True}}}
    # What a model could make a client send: an answer to a question that it was not asked.
    unasked = await send(yard.board, "delete_note", {"number": 3}, capabilities=FORM, answers=accepted)
    assert isinstance(unasked, InputRequired)
    for number, principal in ((4, ANN), (3, BOB)):
        with pytest.raises(InvalidParams, match="requestState"):
            await send(
                yard.board, "delete_note", {"number": number}, principal, FORM, ticket=asked.ticket, answers=accepted
            )
    ran = await send(yard.board, "delete_note", {"number": 3}, capabilities=FORM, ticket=asked.ticket, answers=accepted)
    assert text(ran) == "deleted 3"
    again = await send(
        yard.board, "delete_note", {"number": 3}, capabilities=FORM, ticket=asked.ticket, answers=accepted
    )
    assert isinstance(again, InputRequired)
    assert yard.ran == [3]


async def test_a_caller_without_forms_approves_its_own_call_elsewhere() -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "self"})
    assert "the caller has to approve it" in text(await send(yard.board, "delete_note", {"number": 3}))
    assert await yard.board.approvals.open_for(BOB) == []
    await yard.decide(by=ANN)
    assert text(await send(yard.board, "delete_note", {"number": 3})) == "deleted 3"


async def test_arguments_that_are_too_long_for_a_form_are_decided_on_the_page() -> None:
    board = Board("yard", rules=[{"tools": ["*"], "approve": "self"}], limits=AT_ONCE)

    @board.tool
    async def write(text: str) -> str:
        return str(len(text))

    assert "waits for approval" in text(await send(board, "write", {"text": "x" * 5000}, capabilities=FORM))
    too_long = text(await send(board, "write", {"text": "x" * 70_000}, capabilities=FORM))
    assert "its arguments are too long to be read: 70" in too_long


# -- others approve ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ERAS)
async def test_a_call_waits_for_another_person_and_continues(version: str) -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"}, limits=PATIENT)
    async with Client(yard.board, version=version) as client:
        calling = asyncio.create_task(client.call("delete_note", {"number": 3}))
        request = await yard.decide(by=BOB)
        assert text(await calling) == "deleted 3"
    assert (request.place, request.client) == ("delete_note", "pegboard")
    # A client in the same process is the user who runs it; messages as on a wire come from an anonymous caller.
    assert request.requester == (local_user().id if version == ERAS[0] else "")
    assert request.approval.rule == "rules[0]: approve delete_*"


@pytest.mark.parametrize("version", ERAS)
async def test_a_refusal_is_a_result_with_the_reason_and_holds_for_repeated_calls(version: str) -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"}, limits=PATIENT)
    async with Client(yard.board, version=version) as client:
        calling = asyncio.create_task(client.call("delete_note", {"number": 3}))
        await yard.decide(approve=False, by=BOB, reason="it is still needed\n")
        result = await calling
        assert result.is_error
        assert "the call was refused by bob: it is still needed. Do not repeat it" in text(result)
        again = await client.call("delete_note", {"number": 3})
        assert text(again) == text(result)
    # The person is not asked again.
    assert await yard.board.approvals.open_for(BOB) == []
    assert yard.ran == []


async def test_a_client_that_cannot_wait_repeats_its_call() -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"})
    waiting = await send(yard.board, "delete_note", {"number": 3})
    assert text(waiting) == (
        "delete_note did not run: it waits for approval (another person has to approve it, request "
        f"{(await yard.waiting()).id}). Tell the user. Once it is approved, call it again with exactly the same "
        "arguments; other arguments need another approval"
    )
    assert reason_of(waiting) == "approval_pending"
    await yard.decide()
    # Another order and a repair make the same call; another value does not.
    assert reason_of(await send(yard.board, "delete_note", {"number": 4})) == "approval_pending"
    assert text(await send(yard.board, "delete_note", {"number": 3})) == "deleted 3"
    assert reason_of(await send(yard.board, "delete_note", {"number": 3})) == "approval_pending"
    assert yard.ran == [3]


async def test_an_approval_is_for_one_principal() -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"})
    await send(yard.board, "delete_note", {"number": 3})
    await yard.decide()
    other = Principal("ann", roles=frozenset({"admin"}), kind="key")
    assert reason_of(await send(yard.board, "delete_note", {"number": 3}, BOB)) == "approval_pending"
    assert text(await send(yard.board, "delete_note", {"number": 3}, other)) == "deleted 3"


async def test_a_digest_tells_numbers_apart_that_are_the_same_float() -> None:
    yard = Yard({"tools": ["pay"], "approve": "others"})
    exact, near = Raw(b'{"amount":0.1}'), Raw(b'{"amount":0.1000000000000000055}')
    await send(yard.board, "pay", exact)
    request = await yard.decide()
    assert request.arguments == '{\n  "amount": 0.1\n}'
    assert reason_of(await send(yard.board, "pay", near)) == "approval_pending"
    assert "0.1000000000000000055" in (await yard.waiting()).arguments


async def test_a_changed_definition_needs_a_new_approval() -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"})
    await send(yard.board, "delete_note", {"number": 3})
    await yard.decide()
    yard.board.remove("delete_note")

    @yard.board.tool
    async def delete_note(number: int) -> str:
        """Delete a note, and tell everyone."""
        return "told"

    assert reason_of(await send(yard.board, "delete_note", {"number": 3})) == "approval_pending"


async def test_identical_calls_share_one_request_and_one_of_them_uses_it() -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"}, limits=PATIENT)
    calls = [asyncio.create_task(send(yard.board, "delete_note", {"number": 3})) for _ in range(3)]
    await yard.decide()
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert [text(call.result()) for call in done] == ["deleted 3"]
    # The others need an approval of their own, and share that request, too.
    await yard.decide(approve=False)
    results = sorted([text(reply) for reply in await asyncio.gather(*calls)])
    assert [result.split(" ")[0] for result in results] == ["delete_note", "delete_note", "deleted"]
    assert yard.ran == [3]


async def test_a_caller_has_few_open_requests_and_a_flood_asks_no_one() -> None:
    yard = Yard(
        {"tools": ["delete_*"], "approve": "others"}, limits=Limits(approval_wait_seconds=0, approvals_per_caller=3)
    )
    for number in (1, 2, 3, 3, 3, 2):
        assert reason_of(await send(yard.board, "delete_note", {"number": number})) == "approval_pending"
    for number in range(4, 40):
        reply = await send(yard.board, "delete_note", {"number": number})
        assert reason_of(reply) == "approvals"
    assert len(await yard.board.approvals.open_for(LEAD)) == 3
    # Other callers have room.
    assert reason_of(await send(yard.board, "delete_note", {"number": 4}, BOB)) == "approval_pending"


async def test_a_url_question_leads_to_the_page_and_its_answer_decides_nothing() -> None:
    yard = Yard({"tools": ["delete_*"], "approve": {"role": "lead"}})
    yard.board.approvals.url = "https://tools.example/approvals"
    asked = await send(yard.board, "delete_note", {"number": 3}, capabilities=URL)
    assert isinstance(asked, InputRequired)
    [(key, question)] = asked.questions.items()
    request = await yard.waiting()
    assert question.params == {
        "mode": "url",
        "message": "delete_note needs an approval before it runs: another person with the role lead has to approve it. "
        "This page shows the call and its arguments",
        "url": f"https://tools.example/approvals/{request.id}",
    }
    opened = {key: {"action": "accept"}}
    waiting = await send(
        yard.board, "delete_note", {"number": 3}, capabilities=URL, ticket=asked.ticket, answers=opened
    )
    assert reason_of(waiting) == "approval_pending"
    assert f"at https://tools.example/approvals/{request.id}" in text(waiting)
    await yard.decide()
    ran = await send(yard.board, "delete_note", {"number": 3}, capabilities=URL, ticket=asked.ticket, answers=opened)
    assert text(ran) == "deleted 3"


# -- what the tool itself asks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("by", ["self", "others"])
async def test_a_tool_may_ask_its_caller_after_the_approval(version: str, by: str) -> None:
    yard = Yard({"tools": ["pay"], "approve": by}, limits=PATIENT)

    async def answer(question: Elicitation) -> Mapping[str, Json]:
        return {"value": "savings"} if "account" in question.message else {"approve": True}

    async with Client(yard.board, version=version, elicit=answer) as client:
        calling = asyncio.create_task(client.call("pay", {"amount": 5}))
        if by == "others":
            await yard.decide()
        assert text(await calling) == "paid 5 from savings"


async def test_a_round_of_an_approved_call_cannot_be_replayed() -> None:
    yard = Yard({"tools": ["pay"], "approve": "others"})
    await send(yard.board, "pay", {"amount": 5}, capabilities=FORM)
    await yard.decide()
    asked = await send(yard.board, "pay", {"amount": 5}, capabilities=FORM)
    assert isinstance(asked, InputRequired)
    answers = {key: {"action": "accept", "content": {"value": "savings"}} for key in asked.questions}
    ran = await send(yard.board, "pay", {"amount": 5}, capabilities=FORM, ticket=asked.ticket, answers=answers)
    assert text(ran) == "paid 5 from savings"
    replayed = await send(yard.board, "pay", {"amount": 5}, capabilities=FORM, ticket=asked.ticket, answers=answers)
    assert reason_of(replayed) == "approval_pending"
    assert yard.ran == ["5"]


# -- which calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "gated"),
    [
        ([{"tools": ["delete_*"], "approve": "others"}], {"delete_note"}),
        ([{"tools": [{"annotation": {"destructiveHint": True}}], "approve": "others"}], {"delete_note", "pay"}),
        ([{"who": "bob", "tools": ["*"], "approve": "others"}], set()),
        ([{"tools": ["read_note"], "approve": "none"}, {"tools": ["*"], "approve": "others"}], {"delete_note", "pay"}),
        ([{"who": "*", "allow": ["read_note"]}, {"tools": ["*"], "approve": "others"}], {"read_note"}),
    ],
)
async def test_the_first_rule_that_matches_says_which_calls_need_an_approval(
    rules: Sequence[Mapping[str, Json]], gated: set[str]
) -> None:
    yard = Yard(*rules)
    waits = set()
    for name, arguments in (("delete_note", {"number": 1}), ("read_note", {"number": 1}), ("pay", {"amount": 1})):
        reply = await send(yard.board, name, arguments, capabilities=FORM)
        if "waits for approval" in str(reply.result):
            waits.add(name)
    assert waits == gated


async def test_an_approval_rule_alone_denies_nothing_and_shows_everything() -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"})
    async with Client(yard.board) as client:
        assert {tool["name"] for tool in await client.list_tools()} == {"delete_note", "read_note", "pay"}
        assert text(await client.call("read_note", {"number": 1})) == "note 1"


async def test_the_first_use_of_a_server_needs_one_approval() -> None:
    yard = Yard({"tools": ["*"], "approve": "others", "firstUse": True})
    assert reason_of(await send(yard.board, "read_note", {"number": 1})) == "approval_pending"
    await yard.decide()
    assert text(await send(yard.board, "read_note", {"number": 1})) == "note 1"
    assert text(await send(yard.board, "delete_note", {"number": 2})) == "deleted 2"
    assert reason_of(await send(yard.board, "read_note", {"number": 1}, BOB)) == "approval_pending"


# -- ways to call -----------------------------------------------------------------------------------------------------


async def test_limits_and_wrong_arguments_are_answered_before_a_person_is_asked() -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"})
    yard.board.use(RateLimit(1, per=3600))
    assert "number" in text(await send(yard.board, "delete_note", {"number": "many"}))
    assert reason_of(await send(yard.board, "delete_note", {"number": 3})) == "rate_limit"
    assert await yard.board.approvals.open_for(LEAD) == []


async def test_arguments_are_those_that_hooks_pass_on_and_a_retry_needs_no_second_approval() -> None:
    yard = Yard({"tools": ["flaky"], "approve": "others"})
    runs: list[int] = []

    @yard.board.tool(annotations={"idempotentHint": True})
    async def flaky(number: int) -> str:
        runs.append(number)
        if len(runs) == 1:
            raise RuntimeError("once")
        return f"worked with {number}"

    class Doubled(Middleware):
        async def before(self, call: Call) -> None:
            call.replace_arguments({"number": 2 * call.arguments["number"]})

    yard.board.use(Doubled(), Retry(wait=0), tool="flaky")
    await send(yard.board, "flaky", {"number": 4})
    assert (await yard.decide()).arguments == '{\n  "number": 8\n}'
    assert text(await send(yard.board, "flaky", {"number": 4})) == "worked with 8"
    assert runs == [8, 8]


async def test_the_audit_log_has_the_request_the_decision_and_the_call_that_used_it(tmp_path: Path) -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"})
    audit = Audit(tmp_path, secret=SECRET)
    yard.board.use(audit)
    await send(yard.board, "delete_note", {"number": 3})
    request = await yard.decide(reason="it is old")
    await send(yard.board, "delete_note", {"number": 3})
    audit.close()
    asked, decided, used = records_of(tmp_path)
    assert (asked["outcome"], asked["principal"], asked["approval"]) == (
        "refused",
        "ann",
        {"id": request.id, "decision": "open", "rule": "rules[0]: approve delete_*"},
    )
    assert (decided["action"], decided["principal"], decided["name"]) == ("approvals.grant", "lea", "delete_note")
    assert decided["details"] == {"id": request.id, "for": "ann", "digest": request.digest, "reason": "it is old"}
    assert (used["outcome"], used["approval"]["by"], used["approval"]["id"]) == ("ok", "lea", request.id)


async def test_a_result_that_was_approved_is_not_cached_for_others() -> None:
    yard = Yard({"tools": ["read_note"], "approve": "others"})
    yard.board.use(Cache(60, shared=True))
    await send(yard.board, "read_note", {"number": 1})
    await yard.decide()
    assert text(await send(yard.board, "read_note", {"number": 1})) == "note 1"
    assert reason_of(await send(yard.board, "read_note", {"number": 1}, BOB)) == "approval_pending"


async def test_the_time_of_a_person_does_not_count_for_the_tool() -> None:
    board = Board("yard", rules=[{"tools": ["*"], "approve": "others"}], limits=PATIENT)

    @board.tool(timeout=5)
    async def quick() -> str:
        return "done"

    calling = asyncio.create_task(send(board, "quick", {}))
    request = await waiting_at(board.approvals, BOB)
    # Longer than the tool may take.
    await skip(6)
    assert not calling.done()
    await board.approvals.decide(request.id, BOB, approve=True)
    assert text(await calling) == "done"


@pytest.mark.parametrize(
    "rules",
    [
        [{"who": "*", "deny": ["delete_*"]}, {"who": "*", "allow": ["*"]}],
        [{"tools": ["delete_*"], "approve": {"role": "lead"}}],
    ],
)
async def test_a_call_whose_rules_change_while_it_waits_does_not_run(rules: list[Mapping[str, Json]]) -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"}, limits=PATIENT)
    calling = asyncio.create_task(send(yard.board, "delete_note", {"number": 3}))
    await yard.waiting()
    yard.board._replace_rules(Rules(read_rules(rules)))
    await yard.decide(by=BOB)
    assert "the rules of this server have changed since it was called" in text(await calling)
    assert yard.ran == []


async def test_a_task_waits_for_its_approval() -> None:
    board = Board("yard", rules=[{"tools": ["*"], "approve": "others"}], limits=AT_ONCE)

    @board.tool(task="optional")
    async def long_work() -> str:
        return "done"

    async with Client(board, capabilities={"extensions": {TASKS: {}}}) as client:
        started = await client.call("long_work", wait=False)
        assert started.task is not None
        request = await waiting_at(board.approvals, BOB)
        status = await client.request("tasks/get", {"taskId": started.task})
        assert status["statusMessage"] == "waiting for approval: another person has to approve it"
        await board.approvals.decide(request.id, BOB, approve=True)
        assert text(await client.finish_task(started.task)) == "done"


async def test_a_program_with_its_own_agent_loop_needs_the_approval_too() -> None:
    yard = Yard({"tools": ["delete_*"], "approve": "others"})
    record = await ToolExecutor(yard.board).execute(
        ToolCallRequest(tool_name="delete_note", tool_call_id="1", arguments={"number": 3})
    )
    assert "waits for approval" in record.result
    assert yard.ran == []


async def test_a_gateway_asks_at_every_endpoint_and_through_its_meta_tools() -> None:
    yard = Yard()
    config = {
        "toolboxes": {"office": {"description": "Notes", "mcpServers": {"notes": {"board": yard.board}}}},
        "rules": [{"tools": ["office/notes/delete_*"], "approve": {"role": "lead"}}],
    }
    gateway = Gateway(config, limits=AT_ONCE)
    await gateway.start()
    try:
        await gateway.wait_connected()
        name = "office__notes__delete_note"
        used = {"tool": name, "arguments": {"number": 3}}
        for reply in (
            await send(gateway, name, {"number": 3}),
            await send(gateway, "workbench_use_tool", used),
            await gateway.places["office"](_call_of(name, {"number": 3})),
        ):
            assert reason_of(reply) == "approval_pending"
        # One request for all of them.
        [request] = await gateway.approvals.open_for(LEAD)
        assert (request.place, request.toolbox, request.server) == ("office/notes/delete_note", "office", "notes")
        await gateway.approvals.decide(request.id, LEAD, approve=True)
        assert text(await send(gateway, "workbench_use_tool", used)) == "deleted 3"
        assert reason_of(await send(gateway, name, {"number": 3})) == "approval_pending"
        assert yard.ran == [3]
    finally:
        await gateway.stop()


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("by", ["self", "others"])
async def test_a_server_behind_a_gateway_may_ask_after_the_approval(version: str, by: str) -> None:
    yard = Yard()
    servers = {"office": {"description": "Notes", "mcpServers": {"notes": {"board": yard.board}}}}
    gateway = Gateway({"toolboxes": servers, "rules": [{"tools": ["*"], "approve": by}]}, limits=PATIENT)

    async def answer(question: Elicitation) -> Mapping[str, Json]:
        return {"value": "savings"} if "account" in question.message else {"approve": True}

    async with Client(gateway, version=version, elicit=answer) as client:
        await gateway.wait_connected()
        calling = asyncio.create_task(client.call("office__notes__pay", {"amount": 5}))
        if by == "others":
            request = await waiting_at(gateway.approvals, BOB)
            await gateway.approvals.decide(request.id, BOB, approve=True)
        assert text(await calling) == "paid 5 from savings"


def _call_of(name: str, arguments: Json) -> Call:
    caller = Caller(version=ERAS[0], transport="http", principal=ANN)
    call = Call(method="tools/call", caller=caller, channel=NULL_CHANNEL, id=1, name=name)
    call.raw = Raw(msgspec.json.encode(arguments))
    return call
