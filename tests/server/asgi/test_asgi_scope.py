"""From ASGI scopes to heads, and when one is known again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.limits import Limits
from pegboard.server.asgi.asgi_scope import HeadCache
from pegboard.server.http_types import Answer, Head

FIELDS = [(b"host", b"x"), (b"content-length", b"3"), (b"accept", b"a")]


def heads(limits: Limits | None = None) -> HeadCache:
    return HeadCache({"/mcp": b"/mcp"}, {"/mcp": b"/mcp", "": b"/mcp"}, limits or Limits())


def scope(**changed: Any) -> dict[str, Any]:
    usual = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "client": ("192.0.2.7", 1),
        "server": ("192.0.2.1", 80),
        "headers": list(FIELDS),
    }
    return {**usual, **changed}


def with_length(length: bytes) -> list[tuple[bytes, bytes]]:
    return [(name, length if name == b"content-length" else value) for name, value in FIELDS]


def found(known: HeadCache, given: dict[str, Any]) -> Head:
    head = known.find(given)
    assert isinstance(head, Head)
    return head


def test_a_head_that_comes_again_carries_what_was_found_in_it() -> None:
    known = heads()
    found(known, scope()).verdict = "found"
    assert found(known, scope(client=("192.0.2.7", 2))).verdict == "found"
    for length in (b"10", b"3", b"12345"):
        head = found(known, scope(headers=with_length(length)))
        assert head.verdict == "found"
        assert head.headers == dict(with_length(length))


def test_credentials_that_were_removed_do_not_come_back_when_clients_order_their_fields_differently() -> None:
    known = heads()
    one = [(b"authorization", b"Bearer a"), (b"mcp-session-id", b"1"), (b"content-length", b"3")]
    for fields in (one, one[::-1]):
        head = found(known, scope(headers=fields))
        # As the authentication does once it has verified them.
        head.verdict, _ = "found", head.headers.pop(b"authorization")
    for session in (b"1", b"2"):
        for fields in (one, one[::-1]):
            again = [(name, session if name == b"mcp-session-id" else value) for name, value in fields]
            head = found(known, scope(headers=again))
            assert head.verdict == "found"
            assert head.headers == {b"mcp-session-id": session, b"content-length": b"3"}


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "PUT"},
        {"path": "/mcp/"},
        {"query_string": b"a=b"},
        {"root_path": "/mcp"},
        {"scheme": "https"},
        {"client": ("192.0.2.8", 1)},
        {"client": None},
        {"server": ("192.0.2.2", 80)},
        {"server": None},
        {"headers": [*FIELDS, (b"origin", b"http://elsewhere")]},
        {"headers": [(b"host", b"y"), *FIELDS[1:]]},
        {"headers": FIELDS[:2]},
        {"headers": [FIELDS[0], FIELDS[2]]},
        {"headers": [*FIELDS, FIELDS[2]]},
    ],
)
def test_whatever_differs_makes_another_head(changed: dict[str, Any]) -> None:
    known = heads()
    found(known, scope()).verdict = "found"
    other = found(known, scope(**changed))
    assert other.verdict is None
    assert other == found(heads(), scope(**changed))
    assert found(known, scope()).verdict == "found"


def test_the_sessions_of_a_proxy_share_what_was_found_in_their_head() -> None:
    known = heads()
    verdicts = []
    for session, length in ((b"one", b"3"), (b"two", b"4"), (b"one", b"4"), (b"three", b"3")):
        fields = [*with_length(length), (b"mcp-session-id", session)]
        head = found(known, scope(headers=fields))
        assert head.headers == dict(fields)
        verdicts.append(head.verdict)
        head.verdict = "found"
    assert verdicts == [None, "found", "found", "found"]
    assert found(known, scope()).verdict is None


def test_a_known_head_is_refused_with_a_length_over_the_limit() -> None:
    known = heads(Limits(body_bytes=8))
    found(known, scope())
    refused = known.find(scope(headers=with_length(b"9")))
    assert isinstance(refused, Answer)
    assert refused.status == 413


@pytest.mark.parametrize("length", [b"", b"-1", b"+3", b"3 4", b"1" * 5000, b"\xb2"])
def test_a_known_head_is_refused_with_a_length_that_is_none(length: bytes) -> None:
    known = heads()
    found(known, scope())
    refused = known.find(scope(headers=with_length(length)))
    assert isinstance(refused, Answer)
    assert refused.status in (400, 413)


def test_a_server_may_write_lists_for_tuples() -> None:
    known = heads()
    for _ in range(3):
        head = found(
            known, scope(server=["192.0.2.1", 80], client=["192.0.2.7", 1], headers=[list(one) for one in FIELDS])
        )
        assert head == found(heads(), scope())


def test_few_heads_are_remembered_and_no_large_ones() -> None:
    known = heads()
    for number in range(3000):
        found(known, scope(path=f"/{number}"))
    assert len(known._known) <= 1024
    for _ in range(2):
        head = found(known, scope(headers=[*FIELDS, (b"x", b"y" * 5000)]))
        assert head.verdict is None
        head.verdict = "found"


@given(st.lists(st.permutations(FIELDS), min_size=1, max_size=6))
def test_the_order_of_fields_makes_no_difference_to_what_is_read(orders: list[list[tuple[bytes, bytes]]]) -> None:
    known = heads()
    for order in orders:
        assert found(known, scope(headers=order)).headers == dict(FIELDS)
