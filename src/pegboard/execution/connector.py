"""The streams of a tool: what its caller sends in chunks, and what it sends back."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec
from msgspec import UNSET

from pegboard.call import Call, CallScoped, CallStream, Json, OutboundStream
from pegboard.errors import ToolError
from pegboard.execution.context import Context
from pegboard.media import Content
from pegboard.schema.plain_json import as_plain
from pegboard.tools.tool_result import unwrap_yielded

Chunk: TypeAlias = Any
"""Bytes on a binary stream, any JSON value on a text stream."""

_NOTHING: Mapping[str, Json] = {}
_NO_INPUT = "this tool reads a stream, and the call has none; start the call with a stream over /ws"
_NO_BYTES = "This call carries text only, and the tool sends bytes; start the call with a stream over /ws"


class ToolConnector(CallScoped):
    """Exchanges chunks between a tool and its caller before the result; like Context, it blocks in a thread.

    Read the caller's stream with `async for chunk in connector`, or with plain `for` in a thread. Chunks that are
    written go to a stream that the first chunk of its kind opens, or to streams that `open` opens. Only a caller over
    `/ws` that started the call with a stream has all of this. Other callers get text chunks as progress notifications,
    if they asked for progress; reading, and writing bytes that are not text, is rejected. The return value is still the
    whole result.
    """

    __slots__ = ("_outputs", "_stream", "context")
    awaited = True

    def __init__(self, context: Context, duplex: CallStream | None = None) -> None:
        self.context = context
        self._stream = duplex
        # Keyed by whether they are binary.
        self._outputs: dict[bool, OutputStream] = {}

    @property
    def closed(self) -> bool:
        """Whether the caller has disconnected."""
        return self.context.cancelled

    @property
    def streaming(self) -> bool:
        """Whether the caller started the call with a stream, so that bytes can be sent both ways."""
        return self._stream is not None

    @property
    def id(self) -> str:
        """The id of the caller's stream; empty if there is none."""
        return "" if self._stream is None else self._stream.id

    @property
    def binary(self) -> bool:
        """Whether the caller's stream is binary."""
        return self._stream is not None and self._stream.binary

    @property
    def meta(self) -> Mapping[str, Json]:
        """The caller's metadata of its stream: name, mime, totalSize and others."""
        return _NOTHING if self._stream is None else self._stream.meta

    @property
    def summary(self) -> Json:
        """The summary that the caller sent at the end of its stream."""
        return None if self._stream is None else self._stream.summary

    def read(self) -> Awaitable[Chunk]:
        """The next chunk; None at the end. On a text stream a chunk may be null too: iterate there instead."""
        return self.context._answered(self._read_or(None))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self._read_or(UNSET)
        if chunk is UNSET:
            raise StopAsyncIteration
        return chunk

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        chunk: Any = self.context._answered(self._read_or(UNSET))
        if chunk is UNSET:
            raise StopIteration
        return chunk

    async def _read_or(self, end: Any) -> Chunk:
        if self._stream is None:
            raise ToolError(f"{self.context.tool_name}: {_NO_INPUT}")
        chunk = await self._stream.read()
        return end if chunk is UNSET else chunk

    def write(self, chunk: Chunk) -> Awaitable[None]:
        """Send one chunk; waits only if the caller reads too slowly, and sends nothing once it has disconnected."""
        binary = isinstance(chunk, bytes | bytearray | memoryview)
        output = self._outputs.get(binary)
        if output is None:
            output = self._outputs[binary] = self.open(binary=binary)
        return output.write(chunk)

    def open(
        self,
        *,
        binary: bool = True,
        method: str | None = None,
        name: str | None = None,
        mime: str | None = None,
        total_size: int | None = None,
        compression: str | None = None,
        encoding: str | None = None,
    ) -> OutputStream:
        """Open a stream to the caller, until the `with` block or the call ends; the other options are its metadata.

        binary: whether chunks are bytes; otherwise they are JSON values.
        method: what the stream belongs to; without it, the name of the tool.
        name: the name of the file.
        mime: the media type.
        total_size: the size of all chunks in bytes, if it is known.
        compression: how the chunks are compressed.
        encoding: how text is encoded.
        """
        meta: dict[str, Json] = {
            "method": method or self.context.tool_name,
            "binary": binary,
            "name": name,
            "mime": mime,
            "totalSize": total_size,
            "compression": compression,
            "encoding": encoding,
        }
        given = {key: value for key, value in meta.items() if value is not None}
        return OutputStream(self.context, None if self._stream is None else self._stream.open(given), binary)


class OutputStream:
    """One stream from a tool to its caller."""

    __slots__ = ("_binary", "_context", "_ended", "_outflow")

    def __init__(self, context: Context, outflow: OutboundStream | None, binary: bool) -> None:
        self._context = context
        self._outflow = outflow
        self._binary = binary
        self._ended = False

    def write(self, chunk: Chunk) -> Awaitable[None]:
        """Send one chunk: bytes on a binary stream (split if they are many), else text or any JSON value."""
        if isinstance(chunk, bytes | bytearray | memoryview) is not self._binary:
            kind = "bytes" if self._binary else "text or JSON"
            raise TypeError(f"This stream carries {kind}, got {type(chunk).__name__}; open another stream for it")
        if self._ended:
            raise ValueError("This stream has ended")
        text = "" if self._outflow is not None else _as_text(chunk)
        return self._context._await_on_loop(self._write(chunk, text))

    async def _write(self, chunk: Chunk, text: str) -> None:
        if self._context.cancelled:
            return
        if self._outflow is None:
            await report_step(self._context, text)
        else:
            await self._outflow.write(chunk)

    def done(self, summary: Json = None) -> None:
        """End the stream, with an optional summary; from any thread."""
        self._end(lambda outflow: outflow.finish(summary))

    def fail(self, message: str, code: int = -32000, data: Json = None) -> None:
        """Abort the stream with an error; from any thread."""
        self._end(lambda outflow: outflow.fail(message, code, data))

    def _end(self, end: Any) -> None:
        outflow = self._outflow
        if not self._ended:
            self._ended = True
            if outflow is not None:
                self._context._run_on_loop(lambda: end(outflow))

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            self.done()
        else:
            # The caller sees the text only if it was written for callers; the log has all of it.
            self.fail(error.message if isinstance(error, ToolError) else "The tool failed before the end of the stream")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._leave(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._leave(error)


def report_step(context: Context, message: str) -> Awaitable[None]:
    """Report the next step of progress, with its text."""
    reached = context._call.origin._reached
    return context.progress(1 if reached is None else math.floor(reached) + 1, None, message)


def _as_text(chunk: Chunk) -> str:
    if isinstance(chunk, str):
        return chunk
    if not isinstance(chunk, bytes | bytearray | memoryview):
        return msgspec.json.encode(chunk).decode()
    try:
        return bytes(chunk).decode()
    except UnicodeDecodeError as problem:
        raise ToolError(_NO_BYTES) from problem


async def collect_async(yielded: AsyncGenerator[Any, None], call: Call, context: Context) -> list[Any]:
    """Collect what a generator yields, and send each value on the call's stream or as progress."""
    items = []
    stream = _stream(call, context)
    async with aclosing(yielded):
        async for value in yielded:
            for item in unwrap_yielded(value, call.id):
                if stream is not None:
                    await stream.write(_chunk(item))
                if stream is None or not isinstance(item, bytes):
                    items.append(item)
                if call.token is not None:
                    await report_step(context, _text(item))
    return items


def collect(yielded: Generator[Any, None, None], call: Call, context: Context, left: Sequence[object]) -> list[Any]:
    """The same in a thread; it stops at the next value once the call is cancelled."""
    items = []
    stream = _stream(call, context)
    with closing(yielded):
        for value in yielded:
            if left:
                break
            for item in unwrap_yielded(value, call.id):
                if stream is not None:
                    stream.write(_chunk(item))
                if stream is None or not isinstance(item, bytes):
                    items.append(item)
                if call.token is not None:
                    report_step(context, _text(item))
    return items


def _stream(call: Call, context: Context) -> ToolConnector | None:
    return None if call.stream is None else ToolConnector(context, call.stream)


def _chunk(item: Any) -> Any:
    if isinstance(item, Content):
        item = item.to_block()
    return item if isinstance(item, bytes | str) else as_plain(item)


def _text(item: Any) -> str:
    if isinstance(item, Content):
        return str(item.to_block().get("text", ""))[:200]
    return item if isinstance(item, str) else repr(item)[:200]
