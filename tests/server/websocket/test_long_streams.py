"""Many megabytes through /ws: they come through whole, and next to nothing of them is held."""

from __future__ import annotations

import pytest
from bench.ws import measure


@pytest.mark.process
@pytest.mark.parametrize("megabytes", [16, pytest.param(256, marks=pytest.mark.slow)])
def test_memory_stays_flat_however_much_is_streamed(megabytes: int) -> None:
    speeds, grown = measure(megabytes)
    print(*(f"{name}: {speed:.0f} MB/s" for name, speed in speeds.items()), f"grown by {grown:.1f} MB", sep=", ")
    assert grown < 64
    assert set(speeds) == {"upload", "download", "echo", "raw echo"}
