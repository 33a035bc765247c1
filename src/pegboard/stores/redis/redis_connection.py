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
    """What we use of `redis.asyncio.Connection`."""

    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = False) -> None: ...
    def pack_commands(self, commands: Sequence[Command]) -> list[bytes]: ...
    async def send_packed_command(self, command: list[bytes]) -> None: ...
    async def read_response(self, *, timeout: float | None = None) -> Reply: ...


class RedisConnection:
    """One connection; made by the first thing that is sent, and anew by the first after it broke."""

    def __init__(self, connection: _LibraryConnection, refused: type[Exception]) -> None:
        self._connection = connection
        self._refused = refused

    async def exchange(self, commands: Sequence[Command], within: float | None = None) -> list[Reply]:
        """The answers to some commands, in one round trip; what a command was refused with is its answer."""
        await self.send(commands)
        answers: list[Reply] = []
        for _ in commands:
            try:
                answers.append(await self.read(within))
            except self._refused as refusal:
                answers.append(refusal)
        return answers

    async def connect(self) -> None:
        """Make the connection now, for one who reads before anything is sent."""
        await self._connection.connect()

    async def send(self, commands: Sequence[Command]) -> None:
        await self._connection.send_packed_command(self._connection.pack_commands(commands))

    async def read(self, within: float | None = None) -> Reply:
        """The next answer; None where none came in that time."""
        return await self._connection.read_response(timeout=within)

    async def disconnect(self) -> None:
        await self._connection.disconnect(nowait=True)


class RedisServer:
    """The server at an address, which may hold a password and is therefore never shown."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._url = parts._replace(scheme=_SCHEMES.get(parts.scheme, parts.scheme)).geturl()
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._library = _load(self.shown)
        self.failures = self._library.failures
        self.refusal = self._library.refusal

    def line(self, *, patient: bool = False) -> RedisConnection:
        """A new connection; a patient one waits for answers for as long as it is told to."""
        try:
            pool: Any = self._library.pool.from_url(
                self._url,
                protocol=2,
                socket_timeout=None if patient else _TIMEOUT_SECONDS,
                socket_connect_timeout=_TIMEOUT_SECONDS,
                **({} if self._url.startswith("unix:") else {"socket_keepalive": True}),
                # Whether a command may be sent again is known to whoever sent it.
                retry=self._library.retry(self._library.no_backoff(), 0),
            )
            return RedisConnection(cast(_LibraryConnection, pool.make_connection()), self.refusal)
        except (ValueError, TypeError) as problem:
            raise SetupError(f"store {self.shown}: {problem}; use redis://host:6379/0") from None

    async def check(self, line: RedisConnection) -> None:
        """SetupError where there is no server, or none that can be used."""
        try:
            answers = await line.exchange([("INFO", "server"), ("INFO", "cluster")])
        except self.failures as problem:
            # Where it is not let in, the library says so in the cause.
            if not any(isinstance(one, self._library.unauthorized) for one in (problem, problem.__cause__)):
                told = str(problem) or type(problem).__name__
                raise SetupError(f"store {self.shown}: {told}; start the server, or name another store") from None
            answers = [problem]
        for answer in answers:
            if isinstance(answer, Exception):
                raise SetupError(f"store {self.shown}: the server refuses us: {answer}; mend its user or password")
        about = dict(line.split(":", 1) for line in b"\n".join(answers).decode().splitlines() if ":" in line)
        version = about.get("redis_version", "0")
        if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < _OLDEST:
            raise SetupError(f"store {self.shown}: Redis {version} is too old; use Redis 7, Valkey 8 or newer")
        if about.get("cluster_enabled") == "1":
            raise SetupError(f"store {self.shown}: this is one node of a cluster; name a server that stands alone")


class _Library:
    def __init__(self) -> None:
        from redis.asyncio import BlockingConnectionPool  # noqa: PLC0415 — an extra: for those who keep things there
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import (  # noqa: PLC0415
            AuthenticationError,
            ConnectionError,  # noqa: A004 — its own name
            ResponseError,
            TimeoutError,  # noqa: A004 — its own name
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
