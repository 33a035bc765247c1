"""A request for the approval of one call, as it is stored, and who may decide it."""

from __future__ import annotations

import hashlib
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from pegboard.auth.local_user import local_user
from pegboard.auth.principal import Principal
from pegboard.logs.printable import printable_json
from pegboard.rules.rule import Approval

ApprovalState: TypeAlias = Literal["open", "approved", "refused", "used"]

_encode = msgspec.json.Encoder(order="sorted", enc_hook=str).encode


class ApprovalRequest(Struct, kw_only=True):
    """A request for the approval of one call.

    id: identifies the request; it is part of its link, so it is not a secret.
    digest: what the approval is bound to: the requester, the tool and its definition, the arguments and the approver.
    requester: the id of the principal that made the call; empty for an anonymous one.
    client: the name that its client states about itself.
    tool: the name of the tool at its own server; `toolbox` and `server` are those of a gateway.
    arguments: the arguments after their repair, as JSON text.
    approval: who has to approve.
    link: its page, as the process that made it is reached; the same in all questions about it. Empty without pages.
    since: when its state began; it ends at `expires`. Both are in seconds since the epoch.
    seconds: the time for a decision, and then for its use.
    decided_by: the principal that decided; `reason` is the reason it gave.
    """

    id: str
    digest: str
    requester: str
    client: str
    tool: str
    toolbox: str = ""
    server: str = ""
    arguments: str
    approval: Approval
    link: str = ""
    since: float
    expires: float
    seconds: float
    state: ApprovalState = "open"
    decided_by: str = ""
    reason: str = ""

    @property
    def place(self) -> str:
        """The tool with its toolbox and server, if it has them."""
        return "/".join(part for part in (self.toolbox, self.server, self.tool) if part)

    @property
    def wanted(self) -> str:
        """Who has to approve, in words."""
        return self.approval.wanted

    def objection(self, principal: Principal) -> str:
        """Why a principal may not decide the request; an empty text if it may.

        The operator of the server, who has its store, may decide for others and for anonymous callers, but never its own
        requests where others have to.
        """
        person, approval = person_id(principal), self.approval
        is_operator = principal.kind == "local"
        if not person:
            return "an anonymous caller cannot decide; sign in first"
        if approval.by == "self":
            is_own = person == self.requester or (is_operator and not self.requester)
            return "" if is_own else "only the caller itself can decide about this call"
        if person == self.requester:
            return "you made this call, and another person has to decide about it"
        if approval.by == "role" and not is_operator and principal.roles.isdisjoint(approval.roles):
            return f"only a person with the role {' or '.join(approval.roles)} can decide about this call"
        return ""

    def concerns(self, principal: Principal) -> bool:
        """Whether a principal may see the request: its own, and those that it may decide."""
        person = person_id(principal)
        return (person != "" and person == self.requester) or not self.objection(principal)


def person_id(principal: Principal) -> str:
    """The id that approvals are bound to: that of the principal, or of the user who runs this process."""
    return local_user().id if principal.kind == "local" and not principal.id else principal.id


def write_arguments(raw: Raw | bytes, repaired: object | None) -> str:
    """The arguments as a person reads them: JSON on several lines, with numbers exactly as they were sent.

    Of a member that is repeated, the last one counts, as for the tool. Characters that cannot be seen are escaped.
    """
    value = _decode_exactly(raw) if repaired is None else repaired
    return printable_json(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def digest_of(*parts: object, raw: Raw | bytes, repaired: object | None) -> str:
    """A digest of the parts and of the arguments, whatever the order of their members."""
    arguments = _decode_exactly(raw)
    # A Decimal distinguishes numbers that are the same float, so repaired arguments count together with those as sent.
    whole = [parts, arguments] if repaired is None else [parts, repaired, arguments]
    return hashlib.sha256(_encode(whole)).hexdigest()


def _decode_exactly(raw: Raw | bytes) -> object:
    """The value, with numbers as they were written; text that is not JSON as text."""
    try:
        return msgspec.json.Decoder(float_hook=lambda text: Raw(text.encode())).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return bytes(raw).decode("utf-8", "replace")
