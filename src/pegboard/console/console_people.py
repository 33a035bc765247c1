"""What the console shows about people: who calls, what waits for them, and what a principal sees and why."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from pegboard.approvals.approval_request import ApprovalRequest
from pegboard.auth.auth import Auth
from pegboard.auth.principal import Principal
from pegboard.call import Json
from pegboard.console.console_access import RIGHTS, ConsoleAccess
from pegboard.console.console_subject import ConsoleSubject
from pegboard.middleware.audit.chain_files import latest_records
from pegboard.server.hosting import Hosted
from pegboard.server.pages.sign_in import Visitor

_RECORDS: Final = 200


def list_principals(auth: Auth | None) -> Json:
    """The principals that were authenticated lately, with the rights that they had."""
    return [
        {
            "id": principal.id,
            "kind": principal.kind,
            "scopes": sorted(principal.scopes),
            "roles": sorted(principal.roles),
        }
        for principal in ([] if auth is None else tuple(auth.seen.values()))
    ]


async def list_approvals(served: Hosted, visitor: Visitor) -> Json:
    """What waits for the decision of a person, and what they have asked others for."""
    approvals, principal = served.approvals, visitor.principal
    return {
        "open": [_request(request) for request in await approvals.open_for(principal)],
        "mine": [_request(request) for request in await approvals.made_by(principal)],
    }


def _request(request: ApprovalRequest) -> Json:
    return {
        "id": request.id,
        "place": request.place,
        "requester": request.requester,
        "client": request.client,
        "arguments": request.arguments,
        "wanted": request.wanted,
        "rule": request.approval.rule,
        "state": request.state,
        "decided_by": request.decided_by,
        "reason": request.reason,
        "since": request.since,
        "expires": request.expires,
    }


async def list_records(served: Hosted) -> Json:
    """The latest records of the audit log; null without one."""
    folder = served.audit.folder
    if folder is None:
        return None
    return {"path": str(folder), "records": await asyncio.to_thread(latest_records, folder, _RECORDS)}


def view_as(subject: ConsoleSubject, access: ConsoleAccess, query: Mapping[str, str]) -> Json:
    """Each tool, prompt and resource with the verdict about a principal, and the rule that decided."""
    principal = Principal(
        query.get("principal", "")[:255],
        frozenset(query.get("scopes", "").split()),
        frozenset(query.get("roles", "").split()),
        kind=query.get("kind", "token") if query.get("kind") in ("token", "key", "proxy", "local") else "token",
    )
    return {
        "rights": sorted(access.rights(principal), key=RIGHTS.index),
        "items": [
            {
                "kind": called.item,
                "name": called.name,
                "lane": f"{called.toolbox}/{called.server}" if called.server else "",
                "effect": verdict.effect,
                "rule": verdict.rule,
                "scopes": list(verdict.scopes),
                "listed": verdict.listed,
            }
            for called, verdict in subject.board.verdicts(principal)
        ],
    }
