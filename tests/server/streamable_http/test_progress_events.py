"""Notifications of a running call: the first is sent at once, later ones together if they can be."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from pegboard import Board, Context, Limits
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.test_walk import Connection


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_the_first_notification_is_sent_although_the_tool_then_blocks_the_event_loop(era: str) -> None:
    board = Board("blocking")
    seen = b""

    @board.tool
    async def load(ctx: Context) -> None:
        nonlocal seen
        await ctx.progress(0, 1, "loading")
        while b"loading" not in seen:
            seen += raw.recv(65536)

    server = await listen(HttpEndpoint(board.handler, board.info, limits=Limits(), guard=Guard()), Limits())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    client = Connection(reader, writer, era)
    await client.open()
    # The tool reads what its client would: while it blocks, nothing else does.
    raw: socket.socket = socket.fromfd(writer.get_extra_info("socket").fileno(), socket.AF_INET, socket.SOCK_STREAM)
    raw.settimeout(20)
    client.send_call("load", {}, token="t")
    await client.read_until(b"\r\n0\r\n\r\n")
    raw.close()
    await client.close()
    await server.close()
    assert b'"progress":0' in seen


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_tool_that_only_sends_notifications_leaves_the_event_loop_turns(era: str) -> None:
    board = Board("busy")
    turns = 0

    @board.tool
    async def send(ctx: Context) -> int:
        def turn() -> None:
            nonlocal turns
            turns += 1

        asyncio.get_running_loop().call_soon(turn)
        sent = 0
        while not turns:
            sent += 1
            await ctx.progress(sent)
        return sent

    server = await listen(HttpEndpoint(board.handler, board.info, limits=Limits(), guard=Guard()), Limits())
    client = Connection(*await asyncio.open_connection("127.0.0.1", server.port, limit=2**24), era)
    await client.open()
    client.send_call("send", {}, token="t")
    events = (await client.read_until(b"\r\n0\r\n\r\n")).split(b"data: ")
    await client.close()
    await server.close()
    messages = [json.loads(event.partition(b"\n")[0]) for event in events[1:] if event.startswith(b"{")]
    *notices, last = messages
    assert [notice["params"]["progress"] for notice in notices] == list(range(1, len(notices) + 1))
    assert last["result"]["content"][0]["text"] == str(len(notices))
