"""The gate before a tool whose calls need an approval.

Theory of operation. The gate is the innermost layer before the tool: rules and hooks have let the call through, and its
arguments are repaired before they are shown and before their digest is made. So what is approved is what runs, whichever
way the call came. The call finds its request, or makes one. Its caller is asked if it may approve its own calls and its
client shows forms; everyone else decides on a page, at the command line or in the console. Meanwhile the call waits, as
long as clients are known to wait, or in its task. Without a decision by then, the result asks the model to repeat the
call, and the repeated call finds the decision. An approval is used up before the tool runs. A tool that asks its caller
something continues with the ticket of that question, once for each ticket.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from pegboard.approvals.approval_request import ApprovalRequest, digest_of, person_id, write_arguments
from pegboard.approvals.approval_store import Approvals
from pegboard.asking.questions import Accepted, Declined, Elicit, check_capabilities
from pegboard.asking.rounds import Rounds
from pegboard.auth.principal import Principal
from pegboard.call import Call, Handler, InputRequired, NeedInput, Notification, Reply
from pegboard.deadline import paused
from pegboard.errors import InvalidArguments, MissingCapability, NotApproved, QuestionFailed, ToolError
from pegboard.limits import Limits
from pegboard.logs.printable import printable
from pegboard.rules.rule import Approval
from pegboard.rules.verdicts import Verdict
from pegboard.schema.problems import render
from pegboard.security.seal import Seal
from pegboard.tasks.task_run import detach, is_detached
from pegboard.tools.argument_parser import ParsedArguments
from pegboard.tools.tool import Tool

Gate: TypeAlias = Callable[[Handler], Handler]
"""Wraps the Handler of a tool, so that its calls wait for their approval."""
Parse: TypeAlias = Callable[[Raw], ParsedArguments]
FindVerdict: TypeAlias = Callable[[Principal], Verdict | None]
"""What the rules say about the tool and a caller now; None if there are none."""

_MAX_SHOWN: Final = 4000
# Of identical calls at the same time, one uses the approval; the others ask again.
_ATTEMPTS: Final = 3
_FORM: Final = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve this call", "default": False},
        "reason": {"type": "string", "title": "Reason, if you refuse", "maxLength": 500},
    },
    "required": ["approve"],
}


class _Asked(Struct, frozen=True, kw_only=True):
    """What came of asking the caller: the reply that asks it, or its decision, if it made one.

    `waits` says whether a decision can still be expected soon.
    """

    reply: InputRequired | None = None
    approve: bool | None = None
    reason: str = ""
    waits: bool = True


_UNDECIDED: Final = _Asked()
_CLOSED: Final = _Asked(waits=False)


class ApprovalGate:
    """The gate before one tool, for all callers to whom the same rule applies."""

    def __init__(
        self,
        approvals: Approvals,
        approval: Approval,
        tool: Tool,
        parse: Parse,
        find_verdict: FindVerdict,
        tickets: Seal,
        limits: Limits,
    ) -> None:
        self._approvals = approvals
        self._approval = approval
        self._tool = tool
        self._parse = parse
        self._find_verdict = find_verdict
        self._tickets = tickets
        self._limits = limits
        # Without its name, which differs between the endpoints of a gateway.
        definition = {member: value for member, value in tool.definition().items() if member != "name"}
        written = msgspec.json.encode(definition, order="sorted", enc_hook=str)
        self._definition = hashlib.sha256(written).hexdigest()

    def __call__(self, inner: Handler) -> Handler:
        async def approve_first(call: Call) -> Reply:
            origin = call.origin
            # A result that needed a person's decision must not be reused for another call.
            call._mark_asked()
            request = self._request(call)
            if origin._approved == request.digest:
                # A middleware runs the approved call again.
                return await inner(call)
            resumed = None if call.ticket is None else await self._approvals.resume(call.ticket, request.digest)
            if resumed is None:
                approved = await self._obtain(call, request)
                if isinstance(approved, InputRequired):
                    return approved
                # They answered our question; the tool has not asked yet.
                for one in (call, origin):
                    one.ticket = one.answers = None
            else:
                approved = resumed
                call.note(approval={"id": resumed, "decision": "approved", "rule": self._approval.rule})
            origin._approved = request.digest
            reply = await inner(call)
            if isinstance(reply, InputRequired) and reply.ticket is not None:
                await self._approvals.carry(reply.ticket, request.digest, approved)
            return reply

        return approve_first

    def _request(self, call: Call) -> ApprovalRequest:
        """The request for this call, with its arguments as they would run; rejects arguments that would not."""
        tool, limits, approval = self._tool, self._limits, self._approval
        parsed = self._parse(call.raw)
        if parsed.errors and tool.on_parse_error != "pass":
            raise InvalidArguments(render(parsed.errors, tool.name), parsed.errors)
        repaired = None if parsed.errors else parsed.repaired
        shown = write_arguments(call.raw, repaired)
        if len(shown) > limits.approval_bytes:
            raise ToolError(
                f"{tool.name} needs the approval of a person, and its arguments are too long to be read: "
                f"{len(shown)} characters, the limit is {limits.approval_bytes}; call it with shorter arguments"
            )
        requester = person_id(call.caller.principal)
        name = tool.own_name or tool.name
        digest = digest_of(
            requester,
            (tool.toolbox, tool.server, name, self._definition),
            approval.approvers,
            raw=call.raw,
            repaired=repaired,
        )
        now, request_id = time.time(), secrets.token_hex(8)
        client = call.caller.client.get("name")
        return ApprovalRequest(
            id=request_id,
            digest=digest,
            requester=requester,
            client=client[:100] if isinstance(client, str) else "",
            tool=name,
            toolbox=tool.toolbox,
            server=tool.server,
            arguments=shown,
            approval=approval,
            link=self._approvals.link(request_id),
            since=now,
            expires=now + limits.approval_seconds,
            seconds=limits.approval_seconds,
        )

    async def _obtain(self, call: Call, wanted: ApprovalRequest) -> InputRequired | str:
        """The id of the request, once the call is approved and the approval is used up, or a question to the caller first.

        NotApproved if the call was refused, or no decision came.
        """
        approvals = self._approvals
        if self._approval.first_use and await approvals.knows_server(
            wanted.requester, wanted.toolbox, wanted.server, self._approval
        ):
            return "first use"
        for _ in range(_ATTEMPTS):
            request = await approvals.ask(wanted)
            if request.state == "open":
                with paused(call.origin._waits):
                    asked = await self._ask_caller(call, request)
                    if asked.reply is not None:
                        return asked.reply
                    request = await self._decision(call, request, asked)
            if request.state == "refused":
                self._note(call, request)
                raise _refused(request, request.decided_by, request.reason)
            if request.state == "open":
                self._note(call, request)
                raise self._pending(request)
            self._check_rules(call)
            if await approvals.use(request):
                self._note(call, request)
                if self._approval.first_use:
                    await approvals.remember_server(request)
                return request.id
            # Another identical call was faster: this one needs an approval of its own.
            wanted.id = secrets.token_hex(8)
            wanted.link = self._approvals.link(wanted.id)
        raise self._pending(wanted)

    def _check_rules(self, call: Call) -> None:
        """Reject the call if the rules have changed while it waited."""
        verdict = self._find_verdict(call.caller.principal)
        approval = None if verdict is None or verdict.effect != "allow" else verdict.approval
        if approval is None or approval.approvers != self._approval.approvers:
            raise NotApproved(
                f"{self._tool.name} did not run: the rules of this server have changed since it was called; call it again",
                "approval_pending",
            )

    def _note(self, call: Call, request: ApprovalRequest) -> None:
        """Add the approval to the record of the call."""
        noted = {"id": request.id, "decision": request.state, "rule": self._approval.rule}
        call.note(approval=noted | ({"by": request.decided_by} if request.decided_by else {}))

    async def _decision(self, call: Call, request: ApprovalRequest, asked: _Asked) -> ApprovalRequest:
        """The request after its caller was asked, and was waited for; still open if it is not decided."""
        if asked.approve is False:
            # The user may want it later: the next call asks again.
            await self._approvals.withdraw(request)
            raise _refused(request, "the user", asked.reason)
        if asked.approve:
            await self._approvals.approve_own(request.id)
        current = await self._approvals.get(request.id) or request
        if current.state == "open" and asked.waits:
            current = await self._wait(call, current) or current
        return current

    # -- asking the caller -------------------------------------------------------------------------------------------

    async def _ask_caller(self, call: Call, request: ApprovalRequest) -> _Asked:
        question = self._question(call, request)
        if question is None:
            return _UNDECIDED
        origin = call.origin
        if origin.ticket is None:
            # An answer counts only with the ticket of its question.
            origin.answers = None
        rounds, key = Rounds(origin, self._tickets, self._limits), f"approval-{request.id}"
        asking = asyncio.ensure_future(rounds.ask({key: question}))
        deciding = asyncio.ensure_future(self._approvals.wait(request.id, math.inf))
        try:
            await asyncio.wait({asking, deciding}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                # Decided elsewhere, while the caller was asked.
                await deciding
                return _UNDECIDED
            return _read((await asking)[key], question)
        except NeedInput:
            return _Asked(reply=rounds.required())
        except QuestionFailed:
            return _UNDECIDED
        finally:
            for waiting in (asking, deciding):
                waiting.cancel()
            await asyncio.gather(asking, deciding, return_exceptions=True)

    def _question(self, call: Call, request: ApprovalRequest) -> Elicit | None:
        """The question to the caller: a form if it may decide itself, else a page; None if its client has neither."""
        needed = f"{request.place} needs an approval before it runs"
        if request.approval.by == "self" and len(request.arguments) <= _MAX_SHOWN and _can(call, "form"):
            return Elicit(f"{needed}. Do you approve this call? Its arguments:\n{request.arguments}", _FORM)
        if request.link and _can(call, "url"):
            return Elicit(f"{needed}: {request.wanted}. This page shows the call and its arguments", url=request.link)
        return None

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _wait(self, call: Call, request: ApprovalRequest) -> ApprovalRequest | None:
        """Wait for the decision of a person: as a task if the call can be one, else as long as clients wait."""
        await detach(call)
        seconds = request.expires - time.time() if is_detached(call) else self._limits.approval_wait_seconds
        if call.token is not None and call.origin._reached is None:
            call.origin._reached = 0
            params = {"progressToken": call.token, "progress": 0, "message": f"waiting for approval: {request.wanted}"}
            await call.channel.emit(Notification("notifications/progress", params))
        return await self._approvals.wait(request.id, seconds)

    def _pending(self, request: ApprovalRequest) -> NotApproved:
        where = f" at {request.link}" if request.link else ""
        figures: dict[str, Any] = {"approval": request.id} | ({"url": request.link} if request.link else {})
        return NotApproved(
            f"{self._tool.name} did not run: it waits for approval ({request.wanted}{where}, request {request.id}). Tell the "
            "user. Once it is approved, call it again with exactly the same arguments; other arguments need another approval",
            "approval_pending",
            retry_after=30,
            **figures,
        )


def _read(answer: Any, question: Elicit) -> _Asked:
    if question.url is not None:
        # The decision is made on the page.
        return _UNDECIDED if isinstance(answer, Accepted) else _CLOSED
    if isinstance(answer, Accepted):
        return _Asked(approve=answer.content["approve"] is True, reason=answer.content.get("reason") or "")
    return _Asked(approve=False) if isinstance(answer, Declined) else _CLOSED


def _refused(request: ApprovalRequest, by: str, reason: str) -> NotApproved:
    why = f": {printable(reason)}" if reason else ""
    return NotApproved(
        f"{request.place} did not run: the call was refused by {printable(by)}{why}. Do not repeat it unless the user asks "
        "for it",
        "approval_refused",
        approval=request.id,
    )


def _can(call: Call, mode: str) -> bool:
    try:
        check_capabilities(call.name, {"elicitation": {mode: {}}}, call.caller.capabilities)
    except MissingCapability:
        return False
    return True
