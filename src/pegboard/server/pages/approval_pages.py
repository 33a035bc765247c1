"""The pages at `/approvals`, where people approve and refuse calls, and the same as JSON for programs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from pegboard.approvals.approval_request import ApprovalRequest
from pegboard.approvals.approval_store import ApprovalEvent, Approvals
from pegboard.errors import AccessDenied, InvalidParams, Refusal, StoreDown
from pegboard.server.endpoint_names import APPROVALS
from pegboard.server.http_types import Answer, EndpointResult, Head, Sink
from pegboard.server.pages.plain_page import (
    PLAIN_HEADERS,
    FormButton,
    FormField,
    PageCode,
    PageFacts,
    PageForm,
    PageLink,
    PagePart,
    PageText,
    plain_page,
    redirect,
)
from pegboard.server.pages.sign_in import SignIn, Visitor, root_of

_SHOWN: Final = 20
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ApprovalPages:
    """The approvals of one server for people; `accept` is its route."""

    def __init__(self, approvals: Approvals, sign_in: SignIn) -> None:
        self._approvals = approvals
        self._sign_in = sign_in

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        """Answer a request below `/approvals`."""
        return self._serve(head, body)

    async def _serve(self, head: Head, body: bytes) -> Answer:
        visitor = await self._sign_in.visitor(head, APPROVALS)
        if isinstance(visitor, Answer):
            return visitor
        path = f"{root_of(head, APPROVALS)}{APPROVALS}"
        request_id = unquote(head.path.decode("latin-1").rpartition(APPROVALS)[2]).strip("/")
        try:
            match head.method:
                case b"GET" if request_id:
                    return await self._show(visitor, head, path, request_id)
                case b"GET":
                    return await self._list(visitor, head, path)
                case b"POST" if request_id:
                    return await self._decide(visitor, head, body, path, request_id)
        except StoreDown:
            return _problem(head, 503, "The approvals cannot be read now; try again later.")
        return _problem(head, 405, "This page does not take this request.")

    async def _list(self, visitor: Visitor, head: Head, path: str) -> Answer:
        principal = visitor.principal
        waiting = await self._approvals.open_for(principal)
        own = await self._approvals.made_by(principal)
        history = await self._approvals.history(principal, _SHOWN)
        if _wants_json(head):
            documents = {"open": [*map(describe_request, waiting)], "own": [*map(describe_request, own)]}
            return _json({**documents, "history": [*map(describe_event, history)]})
        parts: list[PagePart] = [PageText(f"You are {principal.id or 'not signed in'}.", "quiet")]
        parts += [_link_to(request, path) for request in waiting]
        if not waiting:
            parts.append(PageText("No call waits for your approval."))
        others = [request for request in own if request not in waiting]
        if others:
            parts.append(PageText("Your own calls that need an approval:"))
            parts += [_link_to(request, path) for request in others]
        if history:
            parts.append(PageText("The latest steps:"))
            parts.append(PageFacts([(_time(event.at), _in_words(event)) for event in history]))
        leave = self._sign_in.sign_out_form(visitor, head, APPROVALS)
        return plain_page("Approvals", *parts, *([] if leave is None else [leave]))

    async def _show(self, visitor: Visitor, head: Head, path: str, request_id: str) -> Answer:
        request = await self._approvals.get(request_id)
        if request is None or not request.concerns(visitor.principal):
            return _problem(
                head, 404, "There is no such approval request, it has expired, or it is not for you to see.", path
            )
        if _wants_json(head):
            return _json(describe_request(request))
        return plain_page(_TITLES[request.state].format(request.tool), *self._parts(request, visitor, path))

    def _parts(self, request: ApprovalRequest, visitor: Visitor, path: str) -> list[PagePart]:
        facts = [
            ("who", request.requester or "an anonymous caller"),
            ("with", request.client or "an unnamed client"),
            ("tool", request.tool),
            ("server", "/".join(part for part in (request.toolbox, request.server) if part) or "this one"),
            ("asked" if request.state == "open" else request.state, _time(request.since)),
            ("until", _time(request.expires)),
            ("because of", request.approval.rule),
        ]
        if request.decided_by:
            facts.append(("decided by", request.decided_by))
        if request.reason:
            facts.append(("reason", request.reason))
        parts: list[PagePart] = [PageFacts(facts), PageText("The arguments, as they will run:")]
        parts.append(PageCode(request.arguments))
        if request.approval.first_use:
            parts.append(PageText("With this approval, later calls of the same server need none.", "warning"))
        objection = request.objection(visitor.principal)
        if request.state != "open":
            parts.append(PageText(_NEXT[request.state], "quiet"))
        elif objection:
            parts.append(
                PageText(f"{objection[:1].upper()}{objection[1:]}. Send the address of this page to them.", "warning")
            )
        else:
            buttons = [FormButton("Approve", "approve"), FormButton("Refuse", "refuse", "danger")]
            # Of several lines, since the Enter key in a field of one line would approve.
            reason = FormField("reason", "Reason", "lines", hint="optional; the model reads it if you refuse")
            parts.append(PageForm(f"{path}/{request.id}", visitor.csrf, buttons, [reason]))
        return [*parts, PageLink("All approvals", path)]

    async def _decide(self, visitor: Visitor, head: Head, body: bytes, path: str, request_id: str) -> Answer:
        fields = self._read(visitor, head, body)
        if isinstance(fields, Answer):
            return fields
        action = fields.get("action")
        if action not in ("approve", "refuse"):
            return _problem(head, 400, 'The action must be "approve" or "refuse".', path)
        try:
            decided = await self._approvals.decide(
                request_id,
                visitor.principal,
                approve=action == "approve",
                reason=str(fields.get("reason") or ""),
                how="http",
            )
        except Refusal as refusal:
            status = 403 if isinstance(refusal, AccessDenied) else 409 if isinstance(refusal, InvalidParams) else 503
            return _problem(head, status, f"{refusal.message}.", path)
        return _json(describe_request(decided)) if _wants_json(head) else redirect(f"{path}/{decided.id}")

    def _read(self, visitor: Visitor, head: Head, body: bytes) -> Mapping[str, Any] | Answer:
        if not head.headers.get(b"content-type", b"").startswith(b"application/json"):
            return self._sign_in.read_form(visitor, head, body)
        if not self._sign_in.may_change(visitor, head):
            return _problem(head, 403, "This request was not sent by one of our pages.")
        try:
            return _decode(body)
        except msgspec.MsgspecError:
            return _problem(head, 400, "The body must be a JSON object.")


def describe_request(request: ApprovalRequest) -> dict[str, Any]:
    """A request as JSON."""
    members: tuple[str, ...] = ("id", "state", "tool", "toolbox", "server", "requester", "client", "arguments")
    described = {name: getattr(request, name) for name in members}
    described |= {"wanted": request.wanted, "rule": request.approval.rule}
    described |= {"since": request.since, "expires": request.expires}
    if request.decided_by:
        described |= {"decidedBy": request.decided_by, "reason": request.reason}
    return described


def describe_event(event: ApprovalEvent) -> dict[str, Any]:
    """A step of the history as JSON."""
    about = {"id": event.request.id, "call": event.request.place, "requester": event.request.requester}
    return {"at": event.at, "step": event.step, "by": event.by, "how": event.how, "reason": event.reason, **about}


_TITLES: Final = {
    "open": "Approve {}?",
    "approved": "{} is approved",
    "refused": "{} is refused",
    "used": "{} was approved",
}
_NEXT: Final = {
    "approved": "The call runs when its caller repeats it, or has run already if it was waiting.",
    "refused": "The call does not run. Its caller gets the reason.",
    "used": "The approval was for one call, and that call has run. The next one needs another approval.",
}


def _link_to(request: ApprovalRequest, path: str) -> PageLink:
    who = request.requester or "an anonymous caller"
    return PageLink(f"{request.place} for {who} ({request.state})", f"{path}/{request.id}")


def _in_words(event: ApprovalEvent) -> str:
    reason = f": {event.reason}" if event.reason else ""
    return f"{event.request.place} was {event.step} by {event.by or 'an anonymous caller'}{reason}"


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))


def _wants_json(head: Head) -> bool:
    accept = head.headers.get(b"accept", b"")
    return b"application/json" in accept and b"text/html" not in accept


def _problem(head: Head, status: int, text: str, path: str = "") -> Answer:
    if _wants_json(head):
        return _json({"error": text}, status)
    back = [PageLink("All approvals", path)] if path else []
    return plain_page("Approvals", PageText(text, "error"), *back, status=status)


def _json(document: Mapping[str, Any], status: int = 200) -> Answer:
    return Answer(status, _encode(document), headers=PLAIN_HEADERS)
