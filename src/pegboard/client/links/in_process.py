"""The links to a board in the same process: direct, or over messages as on a wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Raw

from pegboard.auth.principal import OWN_PROCESS
from pegboard.call import (
    EMPTY_OBJECT,
    Call,
    Caller,
    Channel,
    EncodedResult,
    Handler,
    Json,
    Notification,
    Question,
    Subscribed,
    ask_in_result,
)
from pegboard.client.links.duplex_link import DuplexLink
from pegboard.client.links.link import Identity, LinkOptions, OutgoingRequest
from pegboard.client.links.server_messages import read_values
from pegboard.errors import ServerFault
from pegboard.protocol.params import PREFIX
from pegboard.protocol.revisions import CHANGE_METHODS, MODERN, NAMED

_encode = msgspec.json.Encoder().encode


class InProcessServer(Protocol):
    """A server in the same process: a board."""

    @property
    def handler(self) -> Handler: ...

    @property
    def info(self) -> Mapping[str, Json]: ...
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class _RoundsChannel:
    """The channel of a caller that is asked in the result of its request, as over HTTP."""

    __slots__ = ("close_stream", "emit")

    def __init__(self, channel: Channel) -> None:
        self.emit = channel.emit
        self.close_stream = channel.close_stream

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        await ask_in_result(questions)


class InProcessLink:
    """A link to a board; encodes only what must be encoded.

    A tool that asks waits for the answer, or with `rounds` ends and runs again.
    """

    name = "the board"
    transport = "direct"
    authorizer = None
    version = MODERN
    mirrors = False

    def __init__(self, board: InProcessServer, identity: Identity, *, rounds: bool = False) -> None:
        self.is_open = False
        self._board = board
        self._rounds = rounds
        self._caller = _caller(identity)
        self._ids = 0

    async def open(self) -> None:
        await self._board.start()
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False
        await self._board.stop()

    async def request(self, out: OutgoingRequest) -> Mapping[str, Json]:
        self._ids += 1
        method, params = out.method, out.params
        call = Call(
            method=method,
            caller=out.caller or (self._caller if out.identity is None else _caller(out.identity)),
            channel=_RoundsChannel(out) if self._rounds else out,
            id=self._ids,
            token=self._ids if out.wants_progress else None,
        )
        member = NAMED.get(method)
        if member is not None:
            call.name = params.get(member, "")
        arguments = params.get("arguments")
        if arguments is not None:
            call.raw = arguments if isinstance(arguments, Raw) else Raw(_encode(arguments))
        if member is None or len(params) > 1 + (arguments is not None):
            call.params = Raw(_encode(params)) if params else EMPTY_OBJECT
            if "inputResponses" in params:
                call.answers = Raw(_encode(params["inputResponses"]))
            call.ticket = params.get("requestState")
        reply = await self._board.handler(call)
        if isinstance(reply, Subscribed):
            await _forward_changes(reply, out.channel)
        result = reply.result
        if not isinstance(result, EncodedResult):
            return result if out.read is read_values else out.read(Raw(_encode(result)))
        # The cached value belongs to the board; the caller gets a copy, as from a remote server.
        written = Raw(_encode(result.value))
        if method != "server/discover":
            return out.read(written)
        copy = read_values(written)
        copy["_meta"] = {PREFIX + "serverInfo": dict(self._board.info), **copy.get("_meta", {})}
        return copy


def _caller(identity: Identity) -> Caller:
    return Caller(
        version=MODERN,
        transport="direct",
        principal=OWN_PROCESS,
        client=identity.client,
        capabilities=identity.capabilities,
        log_level=identity.log_level,
    )


async def _forward_changes(reply: Subscribed, channel: Channel) -> None:
    """Forward the changes of a board until the listener is cancelled."""
    wanted = reply.filter
    changed = asyncio.Event()
    end = reply.changes.watch(changed.set, lambda: wanted.uris)
    reply.changes.uris_changed()
    after = reply.changes.last
    try:
        await channel.emit(Notification("notifications/subscriptions/acknowledged", {}))
        while True:
            changed.clear()
            for number, change in reply.changes.read(after):
                after = max(after, number)
                is_update = change.kind == "updated"
                if reply.visible is not None and not reply.visible.admits(change):
                    continue
                if change.kind == "notification":
                    if wanted.notification:
                        await channel.emit(Notification(change.uri, read_values(Raw(change.params.encode()))))
                elif change.uri in wanted.uris if is_update else getattr(wanted, change.kind):
                    params = {"uri": change.uri} if is_update else {}
                    await channel.emit(Notification(CHANGE_METHODS[change.kind], params))
            await changed.wait()
    finally:
        end()
        reply.changes.uris_changed()


class ServerLine(Protocol):
    """The server's end of a line in memory."""

    def send(self, message: bytes) -> None: ...

    async def close(self) -> None: ...


class LineServer(InProcessServer, Protocol):
    """A board or a gateway, which can also be reached over messages."""

    def open_line(self, receive: Callable[[bytes], None]) -> ServerLine: ...


class MemoryLink(DuplexLink):
    """A link over messages in memory; the board is started and stopped with it."""

    def __init__(self, board: LineServer, identity: Identity, unattributed: Channel, options: LinkOptions) -> None:
        super().__init__("the board", "memory", identity, unattributed, options)
        self._board = board

    async def open(self) -> None:
        await self._board.start()
        try:
            await super().open()
        except BaseException:
            await self._board.stop()
            raise

    async def close(self) -> None:
        await super().close()
        await self._board.stop()

    async def _connect(self, _again: bool, version: str | None) -> None:
        await self._speak(_MemoryPipe(self._board), version or MODERN)


class _MemoryPipe:
    """The client's end."""

    name = "the board"
    transport = "memory"

    def __init__(self, board: LineServer) -> None:
        self._board = board
        self._line: ServerLine

    async def open(self, receive: Callable[[bytes], None], _lost: Callable[[ServerFault], None]) -> None:
        self._line = self._board.open_line(receive)

    def send(self, message: bytes) -> None:
        self._line.send(message)

    def send_now(self, message: bytes) -> None:
        self._line.send(message)

    async def close(self) -> None:
        await self._line.close()
