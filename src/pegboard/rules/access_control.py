"""The rules of one board, as its methods ask for them, and the error for what they deny."""

from __future__ import annotations

from typing import NoReturn, Protocol

from pegboard.auth.principal import Principal
from pegboard.errors import REFUSED, AccessDenied, InsufficientScope, ToolError
from pegboard.rules.verdicts import Rules, Verdict, View


class DeniedCaller(Protocol):
    """A caller, as far as an error depends on it: its principal, and the OAuth metadata of the endpoint it used."""

    @property
    def principal(self) -> Principal: ...

    @property
    def resource_metadata(self) -> str: ...


class AccessControl:
    """Finds the View of a caller. `restricted` is False as long as every caller may use everything."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._scoped = False
        self.restricted = len(rules) > 0

    def replace(self, rules: Rules) -> None:
        """Use other rules from now on."""
        self.rules = rules
        self.restricted = self._scoped or len(rules) > 0

    def require_scopes(self) -> None:
        """Some item requires scopes."""
        self._scoped = self.restricted = True

    def view(self, principal: Principal) -> View | None:
        """The verdicts for a caller; None if it may use everything."""
        return self.rules.view(principal) if self.restricted else None


def raise_denied(verdict: Verdict, caller: DeniedCaller, name: str) -> NoReturn:
    """Reject a request for something that exists and that the caller may not use.

    An authenticated caller learns which scopes to request; others get the reason.
    """
    message = f"Access to {name[:200]!r} is denied"
    needed = " ".join(verdict.scopes)
    if needed and caller.principal:
        raise InsufficientScope(f"{message}: it needs the scopes {needed}", verdict.scopes, caller.resource_metadata)
    if needed:
        raise AccessDenied(f"{message}: the credentials of this client lack scopes that it needs: {needed}")
    raise AccessDenied(f"{message}: the rules of this server do not allow it for this client")


def as_tool_error(denied: AccessDenied) -> ToolError:
    """The same as a result for the model."""
    return ToolError(f"{denied.message}. Do not retry; continue without it", meta={REFUSED: {"reason": "denied"}})
