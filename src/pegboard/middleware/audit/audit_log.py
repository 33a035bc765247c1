"""Makes records durable: each is in its file before `append` returns, or one sync of the disk serves many."""

from __future__ import annotations

import threading
from collections.abc import Awaitable

from pegboard.middleware.audit.chain_writer import ChainWriter
from pegboard.middleware.audit.journal import Journal


class AuditLog:
    """Appends records to a chain, for any thread and event loop.

    Without `sync`, a record is in the memory of the system when `append` returns: it survives the death of the process.
    With it, `append` returns something to await, and one sync of the disk serves all records that arrived meanwhile: at
    most `pending` of them wait.
    """

    def __init__(self, writer: ChainWriter, *, sync: bool, pending: int) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._journal = Journal(writer, pending) if sync else None

    def open(self) -> None:
        """Open the file, unless it is open; OSError or SetupError if that is not possible."""
        with self._lock:
            if not self._writer.chain:
                self._writer.open()

    def append(self, record: bytes) -> Awaitable[None] | None:
        """Append a record, a JSON object; OSError or SetupError if that is not possible."""
        if self._journal is not None:
            return self._journal.put(record)
        with self._lock:
            self._writer.append((record,))
        return None

    def rest(self) -> None:
        """Write pending records and close the file; the next record opens it again."""
        if self._journal is not None:
            self._journal.rest()
        else:
            with self._lock:
                self._writer.close()

    def release(self) -> None:
        """The same without waiting for pending records."""
        if self._journal is not None:
            self._journal.release()
        else:
            self.rest()

    def close(self) -> None:
        """Write pending records and close the file for good."""
        if self._journal is not None:
            self._journal.close()
        else:
            self.rest()
