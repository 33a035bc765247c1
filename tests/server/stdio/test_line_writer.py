"""Messages on a line: what is written is whole lines, and each call has an answer."""

from __future__ import annotations

import asyncio
import json
from io import BytesIO

import pytest
from msgspec import Raw

from pegboard.call import Call, Caller, Done, Reply
from pegboard.limits import Limits
from pegboard.protocol.modern_codec import ModernCodec
from pegboard.protocol.revisions import MODERN
from pegboard.server.exchange.exchanges import LineExchange, run_call
from pegboard.server.stdio.stdio_server import LineWriter


class Output(BytesIO):
    """A file whose content can be read after it was closed, and the other direction, which is never read."""

    def resume_if_room(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


def writer_to(output: Output) -> LineWriter:
    writer = LineWriter(Limits(), asyncio.get_running_loop(), output)
    writer.write_to(output)
    return writer


@pytest.mark.parametrize("message", [b"[\n]", b"[\r]", b"{}\r\n"])
async def test_a_message_of_several_lines_is_refused(message: bytes) -> None:
    output = Output()
    with pytest.raises(ValueError, match="one line"):
        writer_to(output).write(message)
    assert output.getvalue() == b""


async def test_a_call_whose_answer_would_be_several_lines_is_answered_by_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    output = Output()
    exchange = LineExchange(writer_to(output), ModernCodec({"name": "t", "version": "1"}), 7)

    async def handler(call: Call) -> Reply:
        return Done({"content": Raw(b'[\n{"jsonrpc":"2.0","id":8,"result":{}}\n]')})

    caller = Caller(version=MODERN, transport="stdio")
    await run_call(handler, Call(method="tools/call", caller=caller, channel=exchange, id=7), exchange)
    (line,) = output.getvalue().splitlines()
    answer = json.loads(line)
    assert (answer["id"], answer["error"]["code"]) == (7, -32603)
    assert "one line" in caplog.text
