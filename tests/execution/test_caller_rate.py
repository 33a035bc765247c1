"""The rate at which one caller may send costly requests."""

from __future__ import annotations

import pytest

from pegboard import Principal
from pegboard.call import Caller
from pegboard.errors import Busy
from pegboard.execution.catalog_methods import CallerRate
from pegboard.protocol.revisions import MODERN


def caller(principal: str, session: str = "") -> Caller:
    kind = "token" if principal else "anonymous"
    return Caller(version=MODERN, transport="http", principal=Principal(principal, kind=kind), session=session)


def test_the_sessions_of_one_principal_count_together() -> None:
    rate = CallerRate("completions", 2, clock=lambda: 7.0)
    rate.check(caller("ann", "one"))
    rate.check(caller("ann", "two"))
    with pytest.raises(Busy):
        rate.check(caller("ann", "three"))
    rate.check(caller("bob", "one"))


def test_anonymous_callers_count_by_session() -> None:
    rate = CallerRate("completions", 1, clock=lambda: 7.0)
    rate.check(caller("", "one"))
    rate.check(caller("", "two"))
    with pytest.raises(Busy):
        rate.check(caller("", "two"))
