"""Charges the tokens of results to the accounts of callers."""

from __future__ import annotations

from collections.abc import Mapping

from pegboard.accounts.accounts import Accounts
from pegboard.call import Call, Json
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.observability.token_count import count_tokens, measure, texts_of


class TokenMeter(Middleware):
    """Counts the tokens of each result of a tool for its caller; part of a server with a quota of tokens.

    A result is never rejected for it: what exceeds the quota delays the next request.
    """

    # Outside of TokenCount, which has counted them already.
    order = 90
    kinds = ("tool",)

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def after(self, call: Call, result: Mapping[str, Json], elapsed_ms: float) -> None:
        account = self._accounts.of(call.caller)
        if account is None or "tokens" not in account.meters:
            return
        counted = call.state.get("tokens_out")
        tokens = counted if isinstance(counted, int) else await measure("\n".join(texts_of(result)), count_tokens)
        account.spend("tokens", tokens)
