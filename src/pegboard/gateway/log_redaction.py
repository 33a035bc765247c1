"""Keeps the secrets of a configuration out of the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from pegboard.config.mistakes import redact
from pegboard.logs.log_lines import server_of

# A filter applies only to records of the logger that it is added to.
_LOGGERS: Final = tuple(map(logging.getLogger, ("pegboard.gateway", "pegboard.client", "pegboard.client.websocket")))


class LogRedaction(logging.Filter):
    """Redacts the given secrets while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self._secrets: frozenset[str] = frozenset()
        self._lines = logging.Formatter()

    def learn(self, secrets: Iterable[str]) -> None:
        """Redact these too; earlier ones may still be logged."""
        self._secrets = self._secrets.union(secrets)

    def begin(self) -> None:
        for logger in _LOGGERS:
            logger.addFilter(self)

    def end(self) -> None:
        for logger in _LOGGERS:
            logger.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if self._secrets:
            record.server = server_of(record)
            record.msg, record.args = redact(record.getMessage(), self._secrets), ()
            if record.exc_info:
                record.exc_text = redact(record.exc_text or self._lines.formatException(record.exc_info), self._secrets)
        return True
