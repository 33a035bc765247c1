"""The stores that processes share, as in the tests of stores."""

from __future__ import annotations

from tests.stores.conftest import server, shared_backend

__all__ = ["server", "shared_backend"]
