"""The store of a server, for verbs that read or change what the server keeps in it."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pegboard.config.gateway_config import find_config, read_config
from pegboard.config.source_file import decode_source, read_bytes
from pegboard.errors import SetupError
from pegboard.gateway.state_folder import store_path
from pegboard.limits import Limits
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store import Store
from pegboard.stores.store_url import open_store


def add_store_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that name the store of a server: by its configuration, or by its address."""
    store = parser.add_mutually_exclusive_group()
    store.add_argument("--config", metavar="CONFIG", help="the configuration file that `pegboard up` serves")
    add_store_flag(store)


def add_store_flag(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--store", metavar="ADDRESS", help="the store of the server: sqlite:PATH or redis://HOST")


def store_of(config: str | None) -> str:
    """The address of the store that a server of this configuration uses unless it is given another one."""
    given = os.environ.get("PEGBOARD_STORE")
    if given and config is None:
        return given
    path = Path(config or find_config(os.environ)).expanduser()
    if path.suffix == ".py":
        raise SetupError(f"{path} is not a configuration; for a board, name the store of its server: --store ADDRESS")
    # The store of a file that no gateway can serve would be created, and never used. The text alone reads no secret.
    read_config(path, text=decode_source(read_bytes(path), path)[0])
    return f"sqlite:{store_path(str(path))}"


@asynccontextmanager
async def open_server_store(address: str, what: str) -> AsyncIterator[Store]:
    """Open the store at an address; `what` is kept there."""
    store = open_store(address, Limits())
    if isinstance(store, MemoryStore):
        raise SetupError(
            f"{what} are kept in a store that outlives this command: use --store sqlite:PATH or redis://HOST"
        )
    await store.start()
    try:
        yield store
    finally:
        await store.close()
