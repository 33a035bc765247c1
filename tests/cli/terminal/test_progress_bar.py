"""What takes longer than a moment is shown on a terminal, and nowhere else."""

from __future__ import annotations

import asyncio
import sys

import pytest

from pegboard.cli.terminal.output import CLEAR_LINE
from pegboard.cli.terminal.progress_bar import waiting


async def wait_until_shown(capsys: pytest.CaptureFixture[str]) -> str:
    shown = ""
    async with asyncio.timeout(30), waiting("connecting to 2 servers", 0.01):
        while "servers" not in shown:
            await asyncio.sleep(0.01)
            shown += capsys.readouterr().err
    return shown + capsys.readouterr().err


def test_a_wait_is_shown_on_a_terminal_and_removed_at_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = asyncio.run(wait_until_shown(capsys))
    assert f"{CLEAR_LINE}connecting to 2 servers … 0 s" in shown
    assert shown.endswith(CLEAR_LINE)


def test_a_wait_is_not_shown_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    async def wait() -> None:
        async with waiting("connecting", 0.0):
            await asyncio.sleep(0.05)

    asyncio.run(wait())
    assert capsys.readouterr().err == ""
