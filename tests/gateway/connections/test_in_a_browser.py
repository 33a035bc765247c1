"""The page where a user connects a server, in a real browser: its policies allow the whole way, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.chrome import open_page, start_chromium
from tests.gateway.connections.account_site import account_site

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[str]:
    with start_chromium() as address:
        yield address


async def test_a_user_signs_in_connects_and_returns(chromium: str, tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, open_page(chromium) as page:
        found = re.search(r"http\S+/connect/accounts\?link=[\w-]+", await gateway.call("ann"))
        assert found is not None
        # The authorization server is another site than the gateway, as it is in practice.
        accounts.issuer.metadata = {
            "authorization_endpoint": f"{accounts.issuer.url.replace('127.0.0.1', 'localhost')}/authorize"
        }
        await page.open(found[0])
        await page.fill("input[name=key]", accounts.keys["ann"])
        await page.click("button", "Sign in")
        await page.wait_for_text("You are")
        assert "key:ann" in await page.text()
        await page.click("button", "Connect")
        await page.wait_for_text("accounts is connected")
        assert not page.problems
        assert await gateway.call("ann") == "nobody"
