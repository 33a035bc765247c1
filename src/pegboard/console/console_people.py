"""What the console shows about people: who calls, and what a principal sees and why."""

from __future__ import annotations

from collections.abc import Mapping

from pegboard.auth.auth import Auth
from pegboard.auth.principal import Principal
from pegboard.call import Json
from pegboard.console.console_access import RIGHTS, ConsoleAccess
from pegboard.console.console_subject import ConsoleSubject


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
