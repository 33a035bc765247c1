"""Each caller has an account while it uses something, and however many callers there are, memory is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Principal
from pegboard.accounts import accounts as accounts_module
from pegboard.accounts.account import Account
from pegboard.accounts.accounts import Accounts, address_account
from pegboard.accounts.quota import PUBLIC, Quota, Quotas
from pegboard.auth.principal import ANONYMOUS
from pegboard.errors import QuotaExceeded
from pegboard.limits import Limits
from pegboard.server.access import Access
from pegboard.testing import FakeClock


def make(clock: FakeClock | None = None, **quotas: Any) -> Accounts:
    return Accounts(Limits(), Quotas(**quotas), clock or FakeClock())


def account_of(accounts: Accounts, name: str = "ann", *roles: str) -> Account:
    account = accounts.of(Access(Principal(name, roles=frozenset(roles))))
    assert account is not None
    return account


def test_a_caller_without_an_account_is_not_counted() -> None:
    assert make(everyone=Quota(rate="1/day")).of(Access(ANONYMOUS)) is None


def test_a_request_beyond_the_rate_is_rejected_with_the_time_to_wait() -> None:
    clock = FakeClock()
    account = account_of(make(clock, everyone=Quota(rate="2/minute")))
    assert account.enter(10) is None
    assert account.enter(10) is None
    with pytest.raises(QuotaExceeded, match=r"2 requests per minute .* Try again in 30 s") as refused:
        account.enter(10)
    assert dict(refused.value.http_headers) == {
        b"retry-after": b"30",
        b"ratelimit-policy": b'"rate";q=2;w=60',
        b"ratelimit": b'"rate";r=0;t=30',
    }
    assert refused.value.data == {"reason": "rate", "retryAfter": 30}
    clock.advance(30)
    assert account.enter(10) is None


def test_a_rejected_request_costs_nothing() -> None:
    clock = FakeClock()
    account = account_of(make(clock, everyone=Quota(rate="10/minute", bytes="100/minute")))
    assert account.enter(90) is None
    for _ in range(15):
        with pytest.raises(QuotaExceeded, match="100 bytes of requests per minute"):
            account.enter(90)
    assert [account.enter(1) for _ in range(9)] == [None] * 9


def test_tokens_are_charged_afterwards_and_delay_the_next_request() -> None:
    clock = FakeClock()
    account = account_of(make(clock, everyone=Quota(tokens="1000/hour")))
    assert account.enter(1) is None
    account.spend("tokens", 1500)
    with pytest.raises(QuotaExceeded, match="1,000 tokens of results per hour") as refused:
        account.enter(1)
    assert refused.value.retry_after == 1800
    clock.advance(1800)
    assert account.enter(1) is None


def test_a_response_says_how_much_is_left_once_it_is_little() -> None:
    account = account_of(make(everyone=Quota(rate="8/minute")))
    said = []
    for _ in range(8):
        account.enter(1)
        said.append(dict(account.low_headers()).get(b"ratelimit"))
    assert said == [None] * 6 + [b'"rate";r=1;t=53', b'"rate";r=0;t=60']


def test_a_caller_that_repeats_rejected_requests_gets_its_rejections_slowly() -> None:
    clock = FakeClock()
    account = account_of(make(clock, everyone=Quota(rate="1/minute")))
    account.enter(1)
    for _ in range(20):
        with pytest.raises(QuotaExceeded):
            account.enter(1)
    held_back = account.enter(1)
    assert held_back is not None
    held_back.close()  # type: ignore[attr-defined]  # a coroutine
    clock.advance(1.1)
    with pytest.raises(QuotaExceeded):
        account.enter(1)


def test_what_is_held_counts_until_it_is_given_back() -> None:
    account = account_of(make(everyone=Quota(streams=2)))
    assert [account.take("streams") for _ in range(3)] == [True, True, False]
    account.give_back("streams")
    assert account.take("streams")


def test_other_quotas_and_other_roles_hold_at_once_and_forgive_nothing() -> None:
    accounts = make(everyone=Quota(rate="2/minute"), roles={"batch": Quota(rate="4/minute")})
    account = account_of(accounts)
    account.enter(1), account.enter(1)
    with pytest.raises(QuotaExceeded):
        account.enter(1)
    assert account_of(accounts, "ann", "batch") is account
    assert account.quota.rate == "4/minute"
    with pytest.raises(QuotaExceeded):
        account.enter(1)
    accounts.configure(Quotas())
    assert account.enter(1) is None


def test_thousands_of_made_up_callers_share_one_account_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts_module, "MAX_ACCOUNTS", 100)
    clock = FakeClock()
    accounts = make(clock, everyone=Quota(rate="5/hour"))
    account_of(accounts).enter(1)
    for number in range(5000):
        account_of(accounts, f"made up {number}").held["calls"] += number < 100
    assert len(accounts) <= 101
    others = account_of(accounts, "one more")
    assert others is account_of(accounts, "and another")
    assert others.quota.rate == "5/hour"
    assert account_of(accounts) is not others, "who was there before keeps its account"


def test_accounts_that_are_not_used_are_forgotten() -> None:
    clock = FakeClock()
    accounts = make(clock, everyone=Quota(rate="60/minute"))
    busy = account_of(accounts, "busy")
    assert busy.take("calls")
    for number in range(500):
        account_of(accounts, f"once {number}").enter(1)
    clock.advance(120)
    account_of(accounts, "new")
    assert len(accounts) == 2
    assert account_of(accounts, "busy") is busy


def test_the_defaults_beyond_this_machine_are_generous_and_count_anonymous_callers() -> None:
    assert not make().by_address
    accounts = make()
    assert account_of(accounts).quota.rate is not PUBLIC.rate
    accounts.open_to_network()
    assert accounts.by_address
    assert account_of(accounts).quota.rate == PUBLIC.rate
    assert account_of(accounts).quota.calls == Limits().calls_per_caller
    accounts.configure(Quotas(everyone=Quota(rate=None)))
    assert account_of(accounts).quota.rate is None


@pytest.mark.parametrize(
    ("peer", "account"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("", ""),
        ("unknown", ""),
        ("192.0.2.7:1234", ""),
        ("<script>" * 1000, ""),
    ],
)
def test_an_anonymous_caller_is_its_address(peer: str, account: str) -> None:
    assert address_account(peer).strip("\x1f") == account


def test_no_principal_shares_the_account_of_an_address() -> None:
    accounts = make(everyone=Quota(rate="1/day"), anonymous=Quota(rate="2/day"))
    by_address = accounts.of(Access(ANONYMOUS, address=address_account("192.0.2.7")))
    assert by_address is not None
    assert by_address.quota.rate == "2/day"
    assert account_of(accounts, "192.0.2.7") is not by_address
