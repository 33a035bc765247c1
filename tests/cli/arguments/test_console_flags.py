"""Where the console of a launch is served."""

from __future__ import annotations

import argparse
import logging

import pytest

from pegboard import Board
from pegboard.cli.arguments.console_flags import add_console, add_console_flags
from pegboard.errors import SetupError
from pegboard.server.serving_options import resolve_options


def add_to(*flags: str, workers: int = 1) -> object:
    parser = argparse.ArgumentParser()
    add_console_flags(parser)
    return add_console(Board("b"), parser.parse_args(flags), resolve_options({"workers": workers}, {}))


def test_several_workers_have_no_console_and_the_log_says_what_to_use(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert add_to() is not None
    assert caplog.messages == []
    assert add_to(workers=2) is None
    assert "pegboard history --follow" in caplog.text
    with pytest.raises(SetupError, match="--open: the console needs a single worker"):
        add_to("--open", workers=2)
    caplog.clear()
    assert add_to("--no-console", workers=2) is None
    assert caplog.messages == []
