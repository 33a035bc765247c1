"""What a server says that belongs to no call."""

from __future__ import annotations

import pytest

from pegboard.call import Notification
from pegboard.gateway.servers.unattributed import LOG_LINES, LOG_SECONDS, UnattributedChannel

BOO = Notification("notifications/message", {"level": "error", "data": "boo"})


async def test_a_server_that_logs_without_an_end_fills_no_log_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    channel = UnattributedChannel("bad", (), (), clock=lambda: now)
    for _ in range(10 * LOG_LINES):
        await channel.emit(BOO)
    assert len(caplog.records) == LOG_LINES
    now += LOG_SECONDS
    await channel.emit(BOO)
    assert [one.getMessage() for one in caplog.records[LOG_LINES:]] == [
        f"bad: {9 * LOG_LINES} of its log messages were omitted",
        "bad logged: boo",
    ]
