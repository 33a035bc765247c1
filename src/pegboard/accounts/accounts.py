"""The accounts of all callers of a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol, TypeAlias

from pegboard.accounts.account import Account, Shares
from pegboard.accounts.quota import NOTHING_SET, PUBLIC, Quota, Quotas, quota_of_limits
from pegboard.auth.principal import ANONYMOUS, Principal
from pegboard.limits import Limits

MAX_ACCOUNTS: Final = 10_000
"""Accounts that are kept at the same time; beyond that, new callers share one."""
SWEEP_SECONDS: Final = 10.0
# No principal has a control character in its id.
_ADDRESS: Final = "\x1f"
_OTHERS: Final = "\x1f(others)"

Units: TypeAlias = Callable[[str, str, int], int]
"""The units of an amount that an account may use in this process, from its key, the name of the amount and the amount."""


class CountedCaller(Protocol):
    """The sender of a request, as far as accounts are concerned."""

    @property
    def account(self) -> str: ...

    @property
    def principal(self) -> Principal: ...


class Accounts:
    """An account for each caller that is counted, as long as it uses something.

    Callers without an account, such as those on this machine, are limited by `Limits` alone.
    """

    def __init__(
        self, limits: Limits, quotas: Quotas | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._limits = quota_of_limits(limits)
        self._general = self._limits
        self._quotas = quotas or Quotas()
        self._open: dict[str, Account] = {}
        self._swept_at = clock()
        self._units: Units = lambda _, __, amount: amount
        self._shares: Shares | None = None
        self.by_address = self._limits_anonymous()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def counts_tokens(self) -> bool:
        """Whether a quota limits the tokens of results."""
        return any(isinstance(quota.tokens, str) for quota in self._quotas.all)

    def configure(self, quotas: Quotas) -> None:
        """Apply other quotas, also to callers that are known."""
        self._quotas = quotas
        self._refresh()
        if self._shares is not None:
            self._shares.forget_claims()

    def open_to_network(self) -> None:
        """Apply the defaults of a server that other machines can reach."""
        self._general = PUBLIC.over(self._limits)
        self.by_address = True
        self._refresh()

    def share(self, shares: Shares | None, units: Units) -> None:
        """Share all amounts with other processes, or with `units` alone."""
        self._shares, self._units = shares, units
        for account in self._open.values():
            account.use_shares(shares)
        self._refresh()

    def divide(self, processes: int) -> None:
        """Use an equal part of all amounts, as one of several processes that know nothing of each other."""
        self._units = lambda _, __, amount: divided(amount, processes)
        self._refresh()

    def of(self, caller: CountedCaller) -> Account | None:
        """The account of a caller; None if it is not counted."""
        # Without a transport, as in tests, a caller may have a principal only.
        key = caller.account or caller.principal.id
        if not key:
            return None
        account = self._open.get(key)
        if account is None:
            return self._add(key, caller.principal)
        if account.roles is not caller.principal.roles and caller.principal:
            self._change_roles(account, caller.principal)
        return account

    def named(self, key: str) -> Account | None:
        """The account of that name; None if the name is empty."""
        return None if not key else self._open.get(key) or self._add(key, _principal(key))

    def find(self, key: str) -> Account | None:
        """The account of that name, if it is in use."""
        return self._open.get(key)

    def quota_of(self, principal: Principal) -> Quota:
        """The whole quota of a principal."""
        return self._quotas.of(principal, self._general)

    def forget_idle(self, seconds: float = 1.0) -> list[Account]:
        """Drop the accounts that have not been used for that time; returns them."""
        self._swept_at = now = self._clock()
        idle = [account for account in self._open.values() if now - account.used_at >= seconds and account.idle]
        for account in idle:
            del self._open[account.key]
        return idle

    def _add(self, key: str, principal: Principal) -> Account:
        now = self._clock()
        full = len(self._open) >= MAX_ACCOUNTS
        # With shares, their background task does it.
        if self._shares is None and now - self._swept_at >= (1.0 if full else SWEEP_SECONDS):
            self.forget_idle()
        if len(self._open) >= MAX_ACCOUNTS and key != _OTHERS:
            return self._open.get(_OTHERS) or self._add(_OTHERS, ANONYMOUS)
        account = self._open[key] = Account(key, self.quota_of(principal), self._clock, self._shares)
        account.roles = principal.roles
        self.apply(account, account.quota)
        return account

    def _change_roles(self, account: Account, principal: Principal) -> None:
        changed = account.roles != principal.roles
        account.roles = principal.roles
        if changed:
            quota = self.quota_of(principal)
            if quota != account.quota:
                self.apply(account, quota)

    def apply(self, account: Account, quota: Quota) -> None:
        """Set the quota of an account, and its units here."""
        account.apply(quota, partial(self._units, account.key))

    def _refresh(self) -> None:
        self.by_address = self.by_address or self._limits_anonymous()
        for account in self._open.values():
            known = _principal(account.key)
            principal = Principal(known.id, roles=account.roles) if known else known
            self.apply(account, self.quota_of(principal))

    def _limits_anonymous(self) -> bool:
        return self._quotas.everyone != NOTHING_SET or self._quotas.anonymous != NOTHING_SET


def divided(amount: int, processes: int) -> int:
    """The equal part of one of several processes; at least 1, or a small amount would be none."""
    return max(min(1, amount), amount // max(1, processes))


def address_account(peer: str) -> str:
    """The account of an anonymous caller at that address; empty on this machine, or if it has no valid address.

    A whole IPv6 network of 64 bits is one caller, since a host may use all addresses of it.
    """
    try:
        address = ip_address(peer)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            if address.is_loopback:
                return ""
            return f"{_ADDRESS}{IPv6Address(int(address) >> 64 << 64)}/64"
        address = address.ipv4_mapped
    return "" if address.is_loopback else f"{_ADDRESS}{address}"


def account_name(key: str) -> str:
    """The name of an account, for people: a principal, or an address."""
    return key.removeprefix(_ADDRESS)


def _principal(key: str) -> Principal:
    return ANONYMOUS if key == _OTHERS or key.startswith(_ADDRESS) else Principal(key)
