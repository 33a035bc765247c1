"""Quotas: what a caller may use, as values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from pegboard.auth.principal import Principal
from pegboard.errors import DeclarationError
from pegboard.limits import Limits

Amount: TypeAlias = int | UnsetType | None
"""None: no limit. UNSET: the amount of the next more general quota."""
Flow: TypeAlias = str | UnsetType | None
"""An amount per period, such as `600/minute`."""

HELD: Final = ("calls", "streams", "sessions", "tasks", "task_bytes", "parked")
"""What a caller holds for a while and returns."""
FLOWS: Final = ("rate", "bytes", "tokens")
"""What a caller uses up, and gets again with time."""

LARGEST: Final = 10**15
_PERIODS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_UNITS: Final = {"": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}
_FLOW: Final = re.compile(r"([0-9]{1,16}) ?(?i:([KMG]i?B)?) ?/ ?(second|minute|hour|day)", re.ASCII)


class FlowLimit(Struct, frozen=True):
    """An amount, and the seconds that it is for."""

    amount: int
    seconds: int

    @property
    def per_second(self) -> float:
        return self.amount / self.seconds


def read_flow(text: object, name: str) -> FlowLimit | None:
    """The amount per period that a text states; None if there is no limit."""
    if text is UNSET or text is None:
        return None
    found = _FLOW.fullmatch(text) if isinstance(text, str) else None
    unit = (found[2] or "").upper() if found is not None else ""
    if found is None or (unit and name != "bytes"):
        example = "100MiB/minute" if name == "bytes" else "600/minute"
        raise DeclarationError(
            f'{name}={text!r:.80}: use an amount and one of {", ".join(_PERIODS)}, such as "{example}"'
        )
    amount = int(found[1]) * _UNITS[unit]
    if not 1 <= amount <= LARGEST:
        raise DeclarationError(f"{name}={text!r:.80}: use an amount from 1 to {LARGEST}")
    return FlowLimit(amount, _PERIODS[found[3]])


class Quota(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """What one caller may use; what is not set is that of a more general quota, and None means no limit.

    rate: requests, such as "600/minute".
    bytes: bytes of its requests, such as "100MiB/minute".
    tokens: tokens of the results that tools return to it, such as "2000000/day".
    calls: calls that run at the same time.
    streams: open streams: subscriptions, WebSockets and the like.
    sessions: open sessions of legacy clients.
    tasks: stored tasks.
    task_bytes: bytes of the requests and results of its tasks.
    parked: calls of a gateway that wait for an answer of the caller.
    """

    rate: Flow = UNSET
    bytes: Flow = UNSET
    tokens: Flow = UNSET
    calls: Amount = UNSET
    streams: Amount = UNSET
    sessions: Amount = UNSET
    tasks: Amount = UNSET
    task_bytes: Amount = UNSET
    parked: Amount = UNSET

    def __post_init__(self) -> None:
        for name in FLOWS:
            read_flow(getattr(self, name), name)
        for name in HELD:
            amount: object = getattr(self, name)
            if amount is UNSET or amount is None:
                continue
            if not isinstance(amount, int) or not 0 <= amount <= LARGEST:
                raise DeclarationError(f"{name}={amount!r}: use a whole number of at least 0, or None for no limit")

    def over(self, general: Quota) -> Quota:
        """This quota, with the amounts of a more general one where it has none."""
        found = {name: getattr(self, name) for name in (*FLOWS, *HELD)}
        return Quota(**{name: getattr(general, name) if own is UNSET else own for name, own in found.items()})

    def flow(self, name: str) -> FlowLimit | None:
        """One of the amounts per period; None if there is no limit."""
        return read_flow(getattr(self, name), name)

    def amount(self, name: str) -> int | None:
        """One of the other amounts; None if there is no limit."""
        found: Amount = getattr(self, name)
        return None if found is UNSET else found


NOTHING_SET: Final = Quota()
PUBLIC: Final = Quota(rate="200/second", bytes="64MiB/second", sessions=1_000)
"""The defaults of a server that other machines can reach: far above what people and agents need."""


class Quotas(Struct, frozen=True, kw_only=True):
    """Quotas for all callers, by role, and by principal; the most specific one that sets an amount decides.

    everyone: for every caller, each on its own.
    anonymous: for callers without a principal, each by its address; what it does not set is that of `everyone`.
    roles: by the name of a role; a caller with several gets the largest amount.
    principals: by the id of a principal.
    """

    everyone: Quota = NOTHING_SET
    anonymous: Quota = NOTHING_SET
    roles: Mapping[str, Quota] = {}
    principals: Mapping[str, Quota] = {}

    @property
    def all(self) -> Iterable[Quota]:
        """Every quota that is set."""
        return (self.everyone, self.anonymous, *self.roles.values(), *self.principals.values())

    def of(self, principal: Principal, general: Quota) -> Quota:
        """The quota of a caller; `general` is that of the server."""
        everyone = self.everyone.over(general)
        if not principal:
            return self.anonymous.over(everyone)
        roles = [self.roles[role] for role in principal.roles if role in self.roles]
        own = self.principals.get(principal.id, NOTHING_SET)
        return own.over(_largest(roles)).over(everyone)


def quota_of_limits(limits: Limits) -> Quota:
    """What `Limits` say about one caller."""
    return Quota(
        calls=limits.calls_per_caller,
        streams=limits.subscribers_per_caller,
        tasks=limits.tasks_per_caller,
        task_bytes=limits.task_bytes_per_caller,
        parked=limits.parked_per_caller,
    )


def _largest(quotas: list[Quota]) -> Quota:
    """The largest amount of each kind that one of them sets."""
    if len(quotas) == 1:
        return quotas[0]
    chosen: dict[str, Any] = {}
    for name in (*FLOWS, *HELD):
        amounts = [getattr(quota, name) for quota in quotas if getattr(quota, name) is not UNSET]
        if None in amounts:
            chosen[name] = None
        elif amounts:
            chosen[name] = max(amounts, key=lambda text: _size(text, name))
    return Quota(**chosen)


def _size(amount: int | str, name: str) -> float:
    found = read_flow(amount, name) if isinstance(amount, str) else None
    return float(amount) if found is None else found.per_second
