"""Runs the `pegboard` command in the process of the tests, without the quarter of a second in which a process starts."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from pegboard.cli.main import main


def run_here(*words: str | Path) -> tuple[int, str, str]:
    """The exit code of a command, and what it wrote on stdout and stderr; its stdin is empty."""
    out, err = io.StringIO(), io.StringIO()
    with (
        Path(os.devnull).open() as nothing,
        pytest.MonkeyPatch.context() as patch,
        logging_restored(),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        patch.setattr(sys, "stdin", nothing)
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, words)))
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


@contextmanager
def logging_restored() -> Iterator[None]:
    """A command sets up the logging of its process, which here is that of all tests."""
    level, handlers = logging.root.level, list(logging.root.handlers)
    try:
        yield
    finally:
        logging.root.setLevel(level)
        logging.root.handlers[:] = handlers
        logging.captureWarnings(False)
