"""What tests of the gateway share."""

from __future__ import annotations

import pytest

from pegboard.client.links import era_cache


@pytest.fixture(autouse=True)
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server is known from another test, which may have had another one at the same address."""
    monkeypatch.setattr(era_cache, "_eras", {})
