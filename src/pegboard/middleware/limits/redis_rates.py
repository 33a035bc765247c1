"""Rate limits shared by several processes, in Redis or Valkey."""

from __future__ import annotations

import asyncio
import time
from hashlib import blake2b
from typing import Any

from pegboard.errors import SetupError
from pegboard.middleware.limits.rate_limit import Microseconds, StoreUnavailable

# Read, compare and write in one step, with the server's own clock, so that workers need not agree on the time.
_TAKE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local price, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local paid_at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local early = paid_at + price - price * burst - now
if early > 0 then return early end
paid_at = paid_at + price
redis.call('SET', KEYS[1], string.format('%.0f', paid_at), 'PX', math.ceil((paid_at - now) / 1000))
return 0
"""
_LONGEST_KEY = 160


class RedisRates:
    """Accounts in the Redis or Valkey at a `redis://` URL, or behind your `redis.asyncio` client.

    A server that does not respond within `timeout` seconds is not contacted for `pause` seconds, so that an outage does
    not slow down every call. An account expires when nothing is owed any more. `prefix` begins the keys of accounts.
    """

    def __init__(
        self, server: Any, *, prefix: str = "pegboard:rate:", timeout: float = 0.25, pause: float = 1.0
    ) -> None:
        self._client = _connect(server) if isinstance(server, str) else server
        self._is_ours = isinstance(server, str)
        self._prefix = prefix
        self._timeout = timeout
        self._pause = pause
        self._asked_again_at = 0.0
        self._why = ""
        self._take = self._client.register_script(_TAKE)

    async def take(self, key: str, price: Microseconds, burst: int) -> Microseconds:
        """Charge one call; return 0, or the time until it is allowed."""
        if time.monotonic() < self._asked_again_at:
            raise StoreUnavailable(self._why)
        if len(key) > _LONGEST_KEY:
            key = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
        try:
            async with asyncio.timeout(self._timeout):
                return int(await self._take(keys=[self._prefix + key], args=[price, burst]))
        except _failures() as problem:
            self._why = (
                f"{type(problem).__name__}: {problem}" if str(problem) else f"no response in {self._timeout:g} s"
            )
            self._asked_again_at = time.monotonic() + self._pause
            raise StoreUnavailable(self._why) from problem

    async def close(self) -> None:
        """Close the connections, unless the client is yours."""
        if self._is_ours:
            await self._client.aclose()


def _connect(url: str) -> Any:
    try:
        from redis.asyncio import Redis  # noqa: PLC0415 — an extra: needed by those who share accounts
    except ImportError:
        raise SetupError(f"{url.partition('@')[2] or url}: install the extra `pegboard[redis]` to use it") from None
    return Redis.from_url(url)


def _failures() -> tuple[type[BaseException], ...]:
    from redis.exceptions import RedisError  # noqa: PLC0415 — as above; installed if a client was passed

    return (RedisError, OSError, TimeoutError)
