"""What a client makes of an HTTP rejection."""

from __future__ import annotations

import pytest

from pegboard import Board, Client, Limits, Principal, Quota, Quotas, Refusal
from pegboard.client.transports.http_endpoint import parse_retry_after
from pegboard.testing import fixed_tokens
from tests.auth.serving import serving


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        ("30", 30.0),
        ("99999", 99999.0),
        ("-1", None),
        ("1e9", None),
        ("nan", None),
        ("inf", None),
        ("9" * 400, None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("", None),
        ("١", None),
    ],
)
def test_a_retry_after_that_is_negative_enormous_or_not_a_number_is_ignored(header: str, seconds: float | None) -> None:
    assert parse_retry_after(header) == seconds


async def test_the_error_of_a_caller_beyond_its_quota_says_when_to_retry() -> None:
    board = Board(
        "b", auth=fixed_tokens({"ann": Principal("ann")}), limits=Limits(), quotas=Quotas(everyone=Quota(rate="3/hour"))
    )

    @board.tool
    async def echo() -> str:
        return "hello"

    async with serving(board) as site, Client(f"{site.url}/mcp", headers={"Authorization": "Bearer ann"}) as client:
        await client.call("echo")
        with pytest.raises(Refusal, match="3 requests per hour") as refused:
            await client.call("echo")
    assert refused.value.retry_after is not None
    assert 1000 < refused.value.retry_after <= 1200
