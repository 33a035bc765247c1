"""Who may do what in the console: rights that are scopes, unless the rules decide.

The rights are `read`, `operate` and `administer`; each includes the ones before it. The scope of a right is
`console.<right>`. A rule that names the kind `console` grants or denies rights without scopes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from pegboard.auth.principal import Principal
from pegboard.rules.rule import Item
from pegboard.rules.verdicts import UNMATCHED, Verdict
from pegboard.server.http_types import Answer, Headers
from pegboard.server.pages.plain_page import PageForm, PageText, plain_page

Right: TypeAlias = Literal["read", "operate", "administer"]
RIGHTS: Final[tuple[Right, ...]] = ("read", "operate", "administer")

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src data:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Final[Headers] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class ConsoleAccess:
    """Asks the rules of a server for the rights of a principal."""

    def __init__(self, judge: Callable[[Principal, Item], Verdict]) -> None:
        self._judge = judge

    def rights(self, principal: Principal) -> frozenset[Right]:
        """What a principal may do; a right includes the ones before it."""
        highest = max((RIGHTS.index(right) + 1 for right in RIGHTS if self._has(principal, right)), default=0)
        return frozenset(RIGHTS[:highest])

    def _has(self, principal: Principal, right: Right) -> bool:
        verdict = self._judge(principal, Item(kind="console", name=right))
        if verdict.named:
            return verdict.effect == "allow"
        # `*` allows every tool to many callers; that alone must not show them the calls of all others.
        if verdict.effect == "allow" or verdict.rule == UNMATCHED:
            return principal.kind == "local" or f"console.{right}" in principal.scopes
        return False


def refuse(principal: Principal, leave: PageForm | None) -> Answer:
    """The page for a person who may not open the console."""
    text = (
        f"You are signed in as {principal.id}. This account may not open the console: it needs the scope console.read."
    )
    return plain_page(
        "No access to the console",
        PageText(text),
        PageText("Ask the operator of this server for the scope, or for a rule that grants it.", "quiet"),
        *([leave] if leave else []),
        status=403,
    )
