"""Connections to the server; the only module that knows the client library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from pegboard.errors import SetupError

Command: TypeAlias = Sequence[str | bytes | int]
Reply: TypeAlias = Any

_TIMEOUT_SECONDS: Final = 2.0
_OLDEST: Final = 7
_SCHEMES: Final = {"valkey": "redis", "valkeys": "rediss"}


class _LibraryConnection(Protocol):
    """The part of `redis.asyncio.Connection` that we use."""

    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = False) -> None: ...
    def pack_commands(self, commands: Sequence[Command]) -> list[bytes]: ...
    async def send_packed_command(self, command: list[bytes]) -> None: ...
    async def read_response(self, *, timeout: float | None = None) -> Reply: ...


class RedisConnection:
    """One connection; the first command opens it, and the first one after a failure opens it again."""

    def __init__(self, connection: _LibraryConnection, refused: type[Exception]) -> None:
        self._connection = connection
        self._refused = refused

    async def exchange(self, commands: Sequence[Command], within: float | None = None) -> list[Reply]:
        """The replies to some commands, in one round trip; the reply to a rejected command is the exception."""
        await self.send(commands)
        answers: list[Reply] = []
        for _ in commands:
            try:
                answers.append(await self.read(within))
            except self._refused as refusal:
                answers.append(refusal)
        return answers

    async def connect(self) -> None:
        """Connect now, for a caller that reads before it sends."""
        await self._connection.connect()

    async def send(self, commands: Sequence[Command]) -> None:
        await self._connection.send_packed_command(self._connection.pack_commands(commands))

    async def read(self, within: float | None = None) -> Reply:
        """The next reply; None if there is none within that time."""
        return await self._connection.read_response(timeout=within)

    async def disconnect(self) -> None:
        await self._connection.disconnect(nowait=True)


class RedisServer:
    """The server at a URL, which may contain a password and is therefore never shown."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._url = parts._replace(scheme=_SCHEMES.get(parts.scheme, parts.scheme)).geturl()
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._library = _load(self.shown)
        self.failures = self._library.failures
        self.refusal = self._library.refusal

    def line(self, *, patient: bool = False) -> RedisConnection:
        """A new connection; with `patient`, reads wait as long as the caller of `read` allows."""
        try:
            pool: Any = self._library.pool.from_url(
                self._url,
                protocol=2,
                socket_timeout=None if patient else _TIMEOUT_SECONDS,
                socket_connect_timeout=_TIMEOUT_SECONDS,
                **({} if self._url.startswith("unix:") else {"socket_keepalive": True}),
                # The sender of a command decides whether it can be sent again.
                retry=self._library.retry(self._library.no_backoff(), 0),
            )
            return RedisConnection(cast(_LibraryConnection, pool.make_connection()), self.refusal)
        except (ValueError, TypeError) as problem:
            raise SetupError(f"store {self.shown}: {problem}; use redis://host:6379/0") from None

    async def check(self, line: RedisConnection) -> None:
        """Raise SetupError if there is no server, or if it cannot be used."""
        try:
            answers = await line.exchange([("INFO", "server"), ("INFO", "cluster")])
        except self.failures as problem:
            # If authentication fails, the library reports that in the cause.
            if not any(isinstance(error, self._library.unauthorized) for error in (problem, problem.__cause__)):
                reason = str(problem) or type(problem).__name__
                raise SetupError(f"store {self.shown}: {reason}; start the server, or name another store") from None
            answers = [problem]
        for answer in answers:
            if isinstance(answer, Exception):
                raise SetupError(f"store {self.shown}: the server rejected the login: {answer}; check the password")
        about = dict(line.split(":", 1) for line in b"\n".join(answers).decode().splitlines() if ":" in line)
        version = about.get("redis_version", "0")
        if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < _OLDEST:
            raise SetupError(f"store {self.shown}: Redis {version} is too old; use Redis 7, Valkey 8 or newer")
        if about.get("cluster_enabled") == "1":
            raise SetupError(f"store {self.shown}: this is one node of a cluster; use a standalone server")


class _Library:
    def __init__(self) -> None:
        from redis.asyncio import BlockingConnectionPool  # noqa: PLC0415 — redis is an optional extra
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import (  # noqa: PLC0415
            AuthenticationError,
            ConnectionError,  # noqa: A004 — the library's name
            ResponseError,
            TimeoutError,  # noqa: A004 — the library's name
        )

        self.pool = BlockingConnectionPool
        self.retry = Retry
        self.no_backoff = NoBackoff
        self.refusal: type[Exception] = ResponseError
        self.failures: tuple[type[Exception], ...] = (ConnectionError, TimeoutError, OSError)
        self.unauthorized: type[Exception] = AuthenticationError


def _load(shown: str) -> _Library:
    try:
        return _Library()
    except ImportError:
        raise SetupError(f"store {shown}: install the extra `pegboard[redis]` to use it") from None
