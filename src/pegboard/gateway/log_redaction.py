"""Keeps the secrets of a configuration out of the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from pegboard.config.mistakes import redact

# A filter is asked only for what is logged by the very logger that it is added to.
_LOGGERS: Final = tuple(map(logging.getLogger, ("pegboard.gateway", "pegboard.client", "pegboard.client.websocket")))


class LogRedaction(logging.Filter):
    """Hides what it was told is secret, while it is in force."""

    def __init__(self) -> None:
        super().__init__()
        self._secrets: frozenset[str] = frozenset()
        self._lines = logging.Formatter()

    def learn(self, secrets: Iterable[str]) -> None:
        """Hide these too; those of before may still be said."""
        self._secrets = self._secrets.union(secrets)

    def begin(self) -> None:
        for logger in _LOGGERS:
            logger.addFilter(self)

    def end(self) -> None:
        for logger in _LOGGERS:
            logger.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if self._secrets:
            record.msg, record.args = redact(record.getMessage(), self._secrets), ()
            if record.exc_info:
                record.exc_text = redact(record.exc_text or self._lines.formatException(record.exc_info), self._secrets)
        return True
