"""What a server says that belongs to no call."""

from __future__ import annotations

import pytest

from pegboard.call import Notification
from pegboard.gateway.servers.unattributed import UnattributedChannel
from pegboard.log_allowance import LINES, SECONDS

BOO = Notification("notifications/message", {"level": "error", "data": "boo"})


async def test_a_server_that_logs_without_an_end_fills_no_log_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    channel = UnattributedChannel("bad", (), (), clock=lambda: now)
    for _ in range(10 * LINES):
        await channel.emit(BOO)
    assert len(caplog.records) == LINES
    now += SECONDS
    await channel.emit(BOO)
    assert [one.getMessage() for one in caplog.records[LINES:]] == [
        f"bad: {9 * LINES} log messages were omitted",
        "bad logged: boo",
    ]
