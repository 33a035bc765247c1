"""Quotas: how amounts are written, and which one holds for whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Principal
from pegboard.accounts.quota import FlowLimit, Quota, Quotas, quota_of_limits, read_flow
from pegboard.auth.principal import ANONYMOUS
from pegboard.errors import DeclarationError
from pegboard.limits import Limits

GENERAL = quota_of_limits(Limits())


@pytest.mark.parametrize(
    ("text", "name", "amount", "seconds"),
    [
        ("600/minute", "rate", 600, 60),
        ("5 / second", "rate", 5, 1),
        ("100MiB/hour", "bytes", 100 * 1024**2, 3600),
        ("2 GB/day", "bytes", 2 * 1000**3, 86400),
        ("1/second", "tokens", 1, 1),
    ],
)
def test_an_amount_per_period_is_a_text(text: str, name: str, amount: int, seconds: int) -> None:
    assert read_flow(text, name) == FlowLimit(amount, seconds)


@pytest.mark.parametrize(
    "wrong", ["", "600", "600/week", "-1/minute", "0/minute", "1e9/day", "9" * 17 + "/day", 600, "١/minute"]
)
def test_any_other_amount_is_rejected_with_an_example(wrong: object) -> None:
    with pytest.raises(DeclarationError, match=r"rate=.*(600/minute|from 1 to)"):
        Quota(rate=wrong)  # type: ignore[arg-type]


def test_only_bytes_have_units() -> None:
    with pytest.raises(DeclarationError, match="tokens="):
        Quota(tokens="1MB/day")


@pytest.mark.parametrize("wrong", [-1, 1.5, "many", 10**18])
def test_other_amounts_are_whole_numbers(wrong: object) -> None:
    with pytest.raises(DeclarationError, match=r"calls=.* whole number"):
        Quota(calls=wrong)  # type: ignore[arg-type]


def test_the_most_specific_quota_that_sets_an_amount_decides() -> None:
    quotas = Quotas(
        everyone=Quota(rate="60/minute", calls=10),
        anonymous=Quota(rate="6/minute"),
        roles={"batch": Quota(calls=100), "admin": Quota(rate=None, calls=50)},
        principals={"key:ci": Quota(rate="1000/minute")},
    )

    def of(principal: Principal) -> tuple[object, object]:
        quota = quotas.of(principal, GENERAL)
        return quota.rate, quota.calls

    assert of(ANONYMOUS) == ("6/minute", 10)
    assert of(Principal("ann")) == ("60/minute", 10)
    assert of(Principal("ann", roles=frozenset({"batch", "unknown"}))) == ("60/minute", 100)
    assert of(Principal("ann", roles=frozenset({"batch", "admin"}))) == (None, 100)
    assert of(Principal("key:ci", roles=frozenset({"batch"}))) == ("1000/minute", 100)
    assert quotas.of(Principal("ann"), GENERAL).tasks == Limits().tasks_per_caller


@given(st.permutations(["1/second", "61/minute", "3599/hour", "86399/day"]))
def test_of_several_roles_the_fastest_rate_holds(rates: list[str]) -> None:
    quotas = Quotas(roles={rate: Quota(rate=rate) for rate in rates})
    assert quotas.of(Principal("ann", roles=frozenset(rates)), GENERAL).rate == "61/minute"
