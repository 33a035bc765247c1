"""Opens the store that a URL names."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from pegboard.errors import SetupError
from pegboard.limits import Limits
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store import Store

_SERVERS: Final = ("redis", "rediss", "valkey", "valkeys", "unix")
_EXAMPLES: Final = "memory, sqlite:PATH, redis://HOST:6379/0, rediss://… or valkey://…"


def open_store(url: str, limits: Limits | None = None) -> Store:
    """The store at a URL, to be started by the caller; SetupError if the URL is invalid.

    `memory`; `sqlite:PATH`, with `?sync=full` to survive a power failure at the cost of one disk sync for each commit;
    `redis://`, `rediss://`, `valkey://`, `valkeys://` or `unix://`, with `?prefix=NAME` for the names of its keys.
    """
    scheme, colon, rest = url.strip().partition(":")
    scheme = scheme.lower()
    if scheme == "memory" and not rest:
        return MemoryStore(limits)
    if scheme == "sqlite" and colon:
        return _sqlite(rest, limits)
    if scheme in _SERVERS and rest.startswith("//"):
        return _redis(f"{scheme}:{rest}", limits)
    # A malformed URL may contain a password: only show its scheme.
    raise SetupError(f"store: {scheme[:20]!r} is not a supported store; use one of {_EXAMPLES}")


def _sqlite(rest: str, limits: Limits | None) -> Store:
    from pegboard.stores.sqlite.sqlite_store import SqliteStore  # noqa: PLC0415 — start faster without it

    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    sync = options.pop("sync", "normal")
    if options or sync not in {"normal", "full"}:
        raise SetupError(f"store sqlite:{path}: the only option is ?sync=normal or ?sync=full, not ?{query}")
    path = path.removeprefix("//")
    if not path or path.startswith(":memory:"):
        raise SetupError("store sqlite: the file is missing; use sqlite:PATH, or memory to store nothing on disk")
    return SqliteStore(Path(path).expanduser(), limits, sync="full" if sync == "full" else "normal")


def _redis(url: str, limits: Limits | None) -> Store:
    from pegboard.stores.redis.redis_store import RedisStore  # noqa: PLC0415 — as above

    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", "pegboard")
    if not prefix or "{" in prefix or "}" in prefix:
        raise SetupError("store: ?prefix= must be a name without braces, such as ?prefix=pegboard")
    return RedisStore(parts._replace(query=urlencode(options)).geturl(), limits, prefix=prefix)
