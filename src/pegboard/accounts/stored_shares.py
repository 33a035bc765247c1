"""The shares of this process in accounts that several processes serve.

Theory of operation. Every amount of a quota is a number of units, and the store has a record for each account with the
units that each process has claimed. A process uses only what it has claimed, and the claims never add up to more than the
quota, so the quota holds over all processes without a round trip per call. Nothing here reads a clock that processes
would have to agree on.

The first request of a caller claims an equal part for this process, and waits for the store. When the part is used up, the
next request claims more: what is free, and otherwise the other processes are asked to return what they do not need. That
happens at most once per second, and requests meanwhile are rejected. Units of an amount per period are returned with their
debt, which the next process that claims them takes over: what was used of them stays used. The claims of a process that
is gone do not count. A process returns all units of a caller that has not been seen for a while.

If the store cannot be reached, a process uses an equal part of each amount until it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pegboard.accounts.account import Account
from pegboard.accounts.accounts import SWEEP_SECONDS, Accounts, divided
from pegboard.accounts.quota import FLOWS, HELD, Quota
from pegboard.errors import StoreDown
from pegboard.stores.cluster import SharedStore
from pegboard.stores.store import digest

CLAIM_SECONDS: Final = 1.0
"""The longest time that a request waits for a claim."""
RETRY_SECONDS: Final = 1.0
"""The pause after a claim that got nothing."""
CLAIMS: Final = 64
"""Claims at once; further callers use an equal part meanwhile."""
_MESSAGE: Final = "account"
_ATTEMPTS: Final = 8
_KEPT_SECONDS: Final = 3600.0

_log = logging.getLogger("pegboard.limits")
_encode: Final = msgspec.msgpack.Encoder().encode


class StoredClaims(Struct, omit_defaults=True):
    """The record of an account: the units of each process, and the debt in seconds of those that were returned."""

    units: dict[str, dict[str, int]] = {}
    debts: dict[str, float] = {}


_decode: Final = msgspec.msgpack.Decoder(StoredClaims).decode


class AccountShare(Struct, eq=False):
    """What this process has of one account; `claimed` is False for units that the store does not know of."""

    account: Account
    units: dict[str, int] = {}
    claimed: bool = False
    again_at: float = -math.inf
    written_at: float = 0.0
    task: asyncio.Task[None] | None = None


class StoredShares:
    """Claims units of accounts in the store that processes share."""

    def __init__(self, accounts: Accounts, shared: SharedStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._accounts = accounts
        self._records = shared.store.records
        self._cluster = shared.cluster
        self._clock = clock
        self._shares: dict[str, AccountShare] = {}
        self._processes = 1
        self._claiming = 0
        self._reachable = True
        self._sweeping: asyncio.Task[None] | None = None
        accounts.share(self, self._units)
        self._cluster.on_message(_MESSAGE, self._on_shortage)
        self._cluster.on_lapse(self.forget_claims)

    def start(self) -> None:
        """Begin to return what is not used."""
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def close(self) -> None:
        """Stop; the claims end with the membership of this process."""
        tasks = [share.task for share in self._shares.values() if share.task is not None]
        if self._sweeping is not None:
            tasks.append(self._sweeping)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._accounts.share(None, lambda _, __, amount: amount)

    # -- claiming --------------------------------------------------------------------------------------------------------

    def borrow(self, account: Account) -> None:
        """Give an account an equal part of everything, and claim it meanwhile."""
        self._borrow(self._share_of(account))
        self.claim(account, "calls")

    def claim(self, account: Account, wanted: str) -> Awaitable[None] | None:
        """Try to get more of one amount; None if there is nothing to wait for."""
        key, share = digest(account.key), self._share_of(account)
        if share.task is None:
            if self._clock() < share.again_at:
                return None
            if self._claiming >= CLAIMS:
                if not share.units:
                    self._borrow(share)
                return asyncio.sleep(0)
            self._claiming += 1
            share.task = asyncio.get_running_loop().create_task(self._claim(key, share, wanted))
            share.task.add_done_callback(lambda _: self._end_claim(share))
        # A request that is cancelled does not cancel the claim, which others wait for.
        return asyncio.shield(share.task)

    def _share_of(self, account: Account) -> AccountShare:
        key = digest(account.key)
        share = self._shares.get(key)
        if share is None or share.account is not account:
            share = self._shares[key] = AccountShare(account)
        return share

    def _end_claim(self, share: AccountShare) -> None:
        self._claiming -= 1
        share.task = None

    async def _claim(self, key: str, share: AccountShare, wanted: str) -> None:
        grown = False
        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                grown = await self._write(key, share, wanted)
                if not grown and self._processes > 1:
                    await self._cluster.ask_others(_MESSAGE, f"{key} {wanted}".encode())
                    grown = await self._write(key, share, wanted)
        except (StoreDown, TimeoutError) as problem:
            if self._reachable:
                self._reachable = False
                _log.warning(
                    "the store cannot be reached, so each of %d processes applies its part of the limits per caller: %s",
                    self._processes,
                    str(problem) or "no answer in time",
                )
            if not share.claimed:
                self._borrow(share)
        else:
            if not self._reachable:
                self._reachable = True
                _log.info("the store can be reached again: the limits per caller hold for all processes together")
        share.again_at = -math.inf if grown else self._clock() + RETRY_SECONDS

    def _borrow(self, share: AccountShare) -> None:
        """Use an equal part of each amount, without the store."""
        amounts = _amounts(share.account.quota)
        self._set_units(share, {name: divided(amount, self._processes) for name, amount in amounts.items()})

    async def _write(self, key: str, share: AccountShare, wanted: str) -> bool:
        """Claim an equal part at first, then more of one amount; returns whether there is more of that now."""
        members = await self._cluster.members()
        self._processes = len(members)
        before = dict(share.units) if share.claimed else {}
        debts: dict[str, float] = {}

        def choose(stored: StoredClaims) -> dict[str, int]:
            units, taken = dict(before), _total(stored.units)
            debts.clear()
            for name, amount in _amounts(share.account.quota).items():
                own = units.get(name, 0)
                free = amount - taken.get(name, 0) - own
                if free < 0:
                    # The quota has become smaller.
                    more = max(free, -own)
                elif name not in units:
                    more = min(free, divided(amount, len(members)))
                else:
                    more = free if name == wanted else 0
                units[name] = own + more
                if more > 0 and name in stored.debts:
                    debts[name] = stored.debts[name]
                    if more == free:
                        del stored.debts[name]
            return units

        if not await self._update(key, share, members, choose):
            return False
        now = self._clock()
        for name, meter in share.account.meters.items():
            meter.mix(now, before.get(name, 0), debts.get(name, 0.0))
        return share.units.get(wanted, 0) > before.get(wanted, 0)

    async def _update(
        self,
        key: str,
        share: AccountShare,
        members: frozenset[str],
        choose: Callable[[StoredClaims], dict[str, int]],
    ) -> bool:
        """Write the units of this process, which `choose` derives from the record of all others."""
        me, name = self._cluster.me, f"account:{key}"
        for _ in range(_ATTEMPTS):
            record = await self._records.get(name)
            stored = StoredClaims() if record is None else _decode(record.value)
            stored.units = {
                worker: units for worker, units in stored.units.items() if worker != me and worker in members
            }
            units = choose(stored)
            if units:
                stored.units[me] = units
            version = await self._records.put(
                name,
                _encode(stored),
                ttl=_KEPT_SECONDS if stored.units else 1.0,
                if_version=0 if record is None else record.version,
            )
            if version is not None:
                share.claimed, share.written_at = True, self._clock()
                self._set_units(share, units)
                return True
        return False

    def _set_units(self, share: AccountShare, units: dict[str, int]) -> None:
        share.units = units
        share.account.unclaimed = not units
        self._accounts.apply(share.account, share.account.quota)

    def _units(self, key: str, name: str, amount: int) -> int:
        share = self._shares.get(digest(key))
        return 0 if share is None else min(amount, share.units.get(name, 0))

    # -- returning -------------------------------------------------------------------------------------------------------

    def _on_shortage(self, message: bytes) -> Awaitable[bytes] | None:
        key, _, wanted = message.decode("ascii", "replace").partition(" ")
        share = self._shares.get(key)
        if share is None or not share.claimed or wanted not in share.units:
            return None
        return self._return_some(key, share, wanted)

    async def _return_some(self, key: str, share: AccountShare, wanted: str) -> bytes:
        """Return units that are not needed."""
        members = await self._cluster.members()
        account, before, now = share.account, share.units, self._clock()
        equal = divided(_amounts(account.quota).get(wanted, 0), len(members))
        kept = {**before, wanted: _needed(account, wanted, before.get(wanted, 0), equal, now)}
        if kept == before:
            return b""
        meter = account.meters.get(wanted)
        debt = 0.0 if meter is None else meter.debt(now)

        def choose(stored: StoredClaims) -> dict[str, int]:
            stored.debts[wanted] = max(debt, stored.debts.get(wanted, 0.0))
            return kept

        # Not used from now on, whatever becomes of the record.
        self._set_units(share, kept)
        try:
            await self._update(key, share, members, choose)
        except StoreDown:
            self._set_units(share, before)
        return b""

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            idle = {digest(account.key) for account in self._accounts.forget_idle(SWEEP_SECONDS)}
            for key, share in list(self._shares.items()):
                with contextlib.suppress(StoreDown):
                    if key in idle:
                        del self._shares[key]
                        if share.claimed:
                            await self._update(key, share, await self._cluster.members(), lambda _: {})
                    elif share.claimed and self._clock() - share.written_at > _KEPT_SECONDS / 3:
                        await self._update(key, share, await self._cluster.members(), _keep(share.units))

    def forget_claims(self) -> None:
        """Claim everything again before the next use: others took this process for dead, or the quotas have changed."""
        for share in self._shares.values():
            share.claimed = False
            self._set_units(share, {})


def _keep(units: dict[str, int]) -> Callable[[StoredClaims], dict[str, int]]:
    return lambda _: units


def _amounts(quota: Quota) -> dict[str, int]:
    """The amounts of a quota that are limited."""
    flows = {name: quota.flow(name) for name in FLOWS}
    held = {name: quota.amount(name) for name in HELD}
    return {
        **{name: flow.amount for name, flow in flows.items() if flow is not None},
        **{name: amount for name, amount in held.items() if amount is not None},
    }


def _total(claims: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for units in claims.values():
        for name, amount in units.items():
            total[name] = total.get(name, 0) + amount
    return total


def _needed(account: Account, name: str, units: int, equal: int, now: float) -> int:
    """How many units an account keeps if another process has too few."""
    if name in account.held:
        held = account.held[name]
        return min(units, held + max(0, units - held) // 2)
    meter = account.meters.get(name)
    if meter is None:
        return 0
    busy = min(1.0, meter.debt(now) / meter.limit.seconds)
    return min(int(units * (1 + busy) / 2), max(equal, units // 2))
