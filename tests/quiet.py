"""Watches that nothing goes wrong unseen."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def nothing_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Neither an error, nor what a loop tells of exceptions that were not retrieved."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        yield
    # A task or future that failed is told of when it is collected.
    gc.collect()
    assert told == [], told
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert messages == [], messages
