"""The contracts of a link and of its credentials: a request out, notifications and questions back, then a result.

All links use revision 2026-07-28 towards their owner; a link to an older server translates. Its handshake answers
`server/discover`, its unsolicited notifications answer `subscriptions/listen`, and its questions go to the channel of
the request. A link owns the ids and progress tokens of its requests.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from pegboard import config
from pegboard.bounded_dict import BoundedDict
from pegboard.call import Caller, Channel, Json, Notification, Question
from pegboard.client import http
from pegboard.client.http.address import CONNECTIONS, Address
from pegboard.client.links.server_messages import Read, read_values
from pegboard.deadline import Deadline, paused
from pegboard.errors import LoginFailed, ServerFault, Unauthorized
from pegboard.limits import Limits
from pegboard.protocol.params import PREFIX

CANCEL_SECONDS: Final = 1.0
"""How long a link waits at most while it notifies a server of a cancellation."""

PROGRESS_NOTIFICATION: Final = "notifications/progress"

_FIRST_IDS: Final = 2**30

_MAX_IDENTITIES: Final = 256

_OPENING: Final = b'{"jsonrpc":"2.0","id":'

_encode = msgspec.json.Encoder().encode

T = TypeVar("T")


class CredentialAttempt(Protocol):
    """One request that needs credentials: limits how often new ones are requested for it."""

    async def renew(self, status: int, challenge: str) -> bool:
        """Get new credentials after a 401 or 403; returns whether another attempt is worthwhile.

        Raises LoginFailed if the credentials could not be obtained.
        """


class Authorizer(Protocol):
    """The credentials for one server: adds them to every request, and gets new ones after a rejection."""

    def lines(self) -> bytes | Coroutine[Any, Any, bytes]:
        """Header lines for a request, sent only to the server's own origin; empty if there are no credentials yet.

        They are awaited only if they have to be loaded or renewed first.
        """

    def entry(self) -> CredentialAttempt: ...

    @property
    def context(self) -> Hashable:
        """Identifies the current credentials: data received with one set may not be valid for another."""


async def credential_lines(authorizer: Authorizer | None) -> bytes:
    """The header lines of an authorizer, if there is one."""
    lines = b"" if authorizer is None else authorizer.lines()
    return lines if isinstance(lines, bytes) else await lines


class ClientAuth(Protocol):
    """How a client gets its credentials; one instance can serve many clients."""

    def authorizer(self, server: Address, pool: http.HttpPool) -> Authorizer:
        """Return the Authorizer for one server; the client calls this."""


async def with_credentials(
    work: Callable[[], Awaitable[T]], authorizer: Authorizer, hold: Callable[[], AbstractContextManager[None]]
) -> T:
    """Run `work`, and run it again with new credentials if the server requires them; `hold` pauses the deadlines."""
    entry = authorizer.entry()
    while True:
        try:
            return await work()
        except LoginFailed:
            raise
        except Unauthorized as refused:
            with hold():
                renewed = await entry.renew(refused.status, refused.challenge)
            if not renewed:
                raise


class Identity(Struct, frozen=True):
    """What a client declares, in a handshake or with every request, and the limits on what it accepts."""

    client: Mapping[str, Json]
    capabilities: Mapping[str, Json]
    log_level: str | None = None
    limits: Limits = Limits()


class LinkOptions(Struct, frozen=True, kw_only=True):
    """How a server is reached; a link reads the options that concern its transport.

    `server` is the name of the server in the log, where an operator gave it one. `restarts` limits how often a process is started again within a minute; None if the owner of the link limits it.
    """

    server: str = ""
    headers: Mapping[str, str] | None = None
    env: Mapping[str, str] | None = None
    cwd: str | Path | None = None
    confine: config.Confinement | None = None
    resources: config.ChildResources | None = None
    version: str | None = None
    ca: str | Path | None = None
    connect_timeout: float = 10.0
    start_timeout: float | None = None
    connections: int = CONNECTIONS
    auth: ClientAuth | None = None
    restarts: int | None = 5
    rounds: bool = False


DEFAULT_OPTIONS: Final = LinkOptions()


class Releasable(Protocol):
    """Something a request holds that others may use while the caller answers a question."""

    def released(self, owner: str) -> AbstractContextManager[None]: ...


class OutgoingRequest(Struct, kw_only=True, eq=False):
    """One request on its way, and the channel of everything that the server sends for it.

    `mirrors` are the arguments to repeat in headers (name → path), `wants_progress` asks the server for progress, `read`
    decodes the result. A request on behalf of another client has that client as its `owner`, and its capabilities as
    `identity`: a modern server gets them with each request, a legacy one got the link's own in the handshake. A board in
    this process gets the `caller` itself. Progress extends the `deadline`. While the caller is asked, the deadline is paused
    and the slots in `held`, which count for an `account`, are released; `asked` counts the questions that are open.
    """

    method: str
    params: Mapping[str, Any]
    channel: Channel
    mirrors: Mapping[str, Sequence[str]] = {}
    wants_progress: bool = False
    read: Read = read_values
    identity: Identity | None = None
    owner: Hashable = None
    caller: Caller | None = None
    deadline: Deadline | None = None
    held: Sequence[Releasable] = ()
    account: str = ""
    asked: int = 0
    far: float = -math.inf

    async def deliver(self, notice: Notification, token: int) -> None:
        """Forward a notification, unless it is progress of another request or does not increase."""
        if notice.method == PROGRESS_NOTIFICATION:
            done = notice.params.get("progress")
            # "The progress value MUST increase with each notification" (Progress Flow)
            if notice.params.get("progressToken") != token or not isinstance(done, int | float) or done <= self.far:
                return
            self.far = done
        await self.emit(notice)

    async def emit(self, notice: Notification) -> None:
        if self.deadline is not None and notice.method == PROGRESS_NOTIFICATION:
            self.deadline.extend()
        await self.channel.emit(notice)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        with ExitStack() as released:
            if self.deadline is not None:
                released.enter_context(paused((self.deadline,)))
            if not self.asked:
                for slot in self.held:
                    released.enter_context(slot.released(self.account))
            self.asked += 1
            try:
                return await self.channel.ask(questions)
            finally:
                self.asked -= 1

    async def close_stream(self, retry_ms: int) -> None:
        await self.channel.close_stream(retry_ms)


class ServerLink(Protocol):
    """A connection to one server; `name` identifies it in errors."""

    @property
    def name(self) -> str: ...

    @property
    def transport(self) -> str: ...

    @property
    def version(self) -> str:
        """The negotiated revision, once it is known."""

    @property
    def mirrors(self) -> bool:
        """Whether arguments must be repeated in headers."""

    @property
    def is_open(self) -> bool:
        """Whether a request could be sent now, without opening or starting anything."""

    @property
    def authorizer(self) -> Authorizer | None:
        """Gets credentials if the server requires them."""

    async def open(self) -> None:
        """Find out the era of the server, and perform its handshake if it has one."""

    async def close(self) -> None:
        """Release everything: tasks, sockets, processes."""

    async def request(self, out: OutgoingRequest) -> Mapping[str, Json]:
        """Send a request and return the result; raises a Refusal for an error response, a ServerFault if the server
        fails.

        Messages before the result go to the request's channel, in order; a question that names no request goes to the
        channel of the link. If it is cancelled, it notifies the server.
        """


def request_ids() -> Iterator[int]:
    """The ids of one connection's requests, starting at random, so that no other process can guess them.

    They start as integers of 31 bits, since some servers do not accept strings as ids, or more than 32 bits.
    """
    return count(1 + secrets.randbelow(_FIRST_IDS))


class RequestMetadata:
    """The metadata of modern requests, encoded once for each identity."""

    def __init__(self, identity: Identity, version: str) -> None:
        self._version = version
        self._own = _Metadata(identity, version)
        self._by_identity: BoundedDict[int, _Metadata] = BoundedDict(_MAX_IDENTITIES)

    def write(self, out: OutgoingRequest, request_id: int) -> bytes:
        """The request with its metadata, as JSON; the id is also the token for its progress."""
        identity, params = out.identity, out.params
        metadata = self._own if identity is None else self._by_identity.get(id(identity))
        # The entry holds the identity, so that no other object can get its `id()`.
        if metadata is None or (identity is not None and metadata.identity is not identity):
            metadata = self._by_identity[id(identity)] = _Metadata(out.identity or self._own.identity, self._version)
        if out.wants_progress or "_meta" in params:
            meta = {**params.get("_meta", {}), **metadata.members}
            if out.wants_progress:
                meta["progressToken"] = request_id
            written = _encode({**params, "_meta": meta})
        else:
            written = _encode(params)
            written = (written[:-1] + b"," if len(written) > 2 else b"{") + metadata.member
        return b"".join((_OPENING, _encode(request_id), _method_member(out.method), written, b"}"))


class _Metadata:
    """The encoded metadata of one identity: its members, and as the last member of the params."""

    __slots__ = ("identity", "member", "members")

    def __init__(self, identity: Identity, version: str) -> None:
        self.identity = identity
        values: dict[str, Any] = {
            PREFIX + "protocolVersion": version,
            PREFIX + "clientInfo": identity.client,
            PREFIX + "clientCapabilities": identity.capabilities,
        }
        if identity.log_level is not None:
            values[PREFIX + "logLevel"] = identity.log_level
        self.members = {name: Raw(_encode(value)) for name, value in values.items()}
        self.member = b'"_meta":%b}' % _encode(values)


def write_legacy(out: OutgoingRequest, request_id: int) -> bytes:
    """A request of the legacy revisions, as JSON; the id is also the token for its progress."""
    params = out.params
    if out.wants_progress:
        params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": request_id}}
    return b"".join((_OPENING, _encode(request_id), _method_member(out.method), _encode(params), b"}"))


@lru_cache(maxsize=64)
def _method_member(method: str) -> bytes:
    """What is between the id of a request and its params."""
    return b',"method":%b,"params":' % _encode(method)


def with_server_name(fault: ServerFault, name: str) -> ServerFault:
    """The same fault, with the name of the server in its message."""
    if name not in str(fault):
        fault.args = (f"{name}: {fault}", *fault.args[1:])
    return fault
