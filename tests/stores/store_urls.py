"""Addresses of stores that other processes can open."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from tests.middleware.valkey import Valkey
from tests.stores.backends import folder


@contextmanager
def address(kind: str, server: Valkey) -> Iterator[str]:
    if kind == "redis":
        yield f"{server.url}?prefix=test-{secrets.token_hex(4)}"
    else:
        with folder() as where:
            yield f"sqlite:{where}/store.db"
