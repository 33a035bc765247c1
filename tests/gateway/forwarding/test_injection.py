"""What a caller sends through a gateway reaches a server on stdio as one message, whatever stands between its tokens."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest
from websockets.asyncio.client import ClientConnection, connect

from pegboard import Gateway, Limits
from pegboard.config.config_keys import ToolOverride
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.protocol.headers import encode_value
from pegboard.protocol.jsonrpc import has_line_break
from pegboard.protocol.members import repeated_member
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from pegboard.tools.argument_mapping import ArgumentOverride
from tests.client.process_leftovers import nothing_left
from tests.depth import deeper, pairs
from tests.server.http_clients import Line
from tests.server_processes import META, MODERN, PEGBOARD

SERVER = Path(__file__).parent.parent / "lines_server.py"
LEGACY = "2025-11-25"
HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
GUESSES = 40
ids = count(1)


class Door(Protocol):
    """How a client reaches the gateway; `breaks` are the line breaks that a message can hold there.

    `heard` are the messages that came, as they were written.
    """

    breaks: tuple[str, ...]
    heard: list[bytes]

    async def send(self, method: str, params: str) -> Any:
        """Send a request, whose params are text, and return the response to it."""


def written(method: str, params: str, request_id: int) -> bytes:
    return f'{{"jsonrpc":"2.0","id":{request_id},"method":"{method}","params":{params}}}'.encode()


def with_meta(params: str) -> str:
    """The params with the envelope of a modern request."""
    meta = json.dumps(META)
    if '"_meta":{' in params:
        return params.replace('"_meta":{', f'"_meta":{meta[:-1]},')
    return f'{{"_meta":{meta},{params[1:]}' if params != "{}" else f'{{"_meta":{meta}}}'


class OverHttp:
    breaks = ("\n", "\r", "\r\n")

    def __init__(self, port: int, era: str) -> None:
        self.heard: list[bytes] = []
        self._port = port
        self._era = era
        self._session = ""

    async def open(self) -> None:
        if self._era == LEGACY:
            reply = await self._post(written("initialize", json.dumps(HELLO), 0), {})
            self._session = reply.headers["mcp-session-id"]

    async def send(self, method: str, params: str) -> Any:
        request_id = next(ids)
        if self._era == LEGACY:
            headers = {"mcp-session-id": self._session, "mcp-protocol-version": LEGACY}
            return (await self._post(written(method, params, request_id), headers)).json
        headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
        about = json.loads(params)
        if "name" in about or "uri" in about:
            headers["mcp-name"] = encode_value(about.get("name") or about["uri"]).decode()
        return (await self._post(written(method, with_meta(params), request_id), headers)).json

    async def _post(self, body: bytes, headers: dict[str, str]) -> Any:
        line = Line(*await asyncio.open_connection("127.0.0.1", self._port))
        fields = {
            "host": f"127.0.0.1:{self._port}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "content-length": str(len(body)),
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        try:
            reply = await line.ask(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
            streamed = reply.headers["content-type"] == "text/event-stream"
            self.heard += [part for part in reply.body.split(b"\n\n") if part] if streamed else [reply.body]
            return reply
        finally:
            line.hang_up()


class OnALine:
    """A client on one line of messages; answers are told apart by their ids."""

    breaks: tuple[str, ...] = ()

    def __init__(self, era: str) -> None:
        self.heard: list[bytes] = []
        self._era = era
        self._waiting: dict[Any, asyncio.Future[Any]] = {}

    async def write(self, message: bytes) -> None:
        raise NotImplementedError

    async def open(self) -> None:
        if self._era == LEGACY:
            await self._ask(written("initialize", json.dumps(HELLO), 0), 0)

    async def send(self, method: str, params: str) -> Any:
        request_id = next(ids)
        sent = params if self._era == LEGACY else with_meta(params)
        return await self._ask(written(method, sent, request_id), request_id)

    async def _ask(self, message: bytes, request_id: int) -> Any:
        answer = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        await self.write(message)
        return await answer

    def take(self, written: bytes) -> None:
        self.heard.append(written)
        message = json.loads(written)
        answer = self._waiting.pop(message.get("id"), None)
        if answer is not None:
            answer.set_result(message)


class OverWebSocket(OnALine):
    breaks = ("\n", "\r", "\r\n")

    def __init__(self, socket: ClientConnection, era: str) -> None:
        super().__init__(era)
        self._socket = socket

    async def write(self, message: bytes) -> None:
        await self._socket.send(message.decode())

    async def read(self) -> None:
        async for message in self._socket:
            self.take(message.encode() if isinstance(message, str) else message)


class OverStdio(OnALine):
    # A line feed ends the message.
    breaks = ("\r",)

    def __init__(self, process: asyncio.subprocess.Process, era: str) -> None:
        super().__init__(era)
        self._process = process

    async def write(self, message: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(message + b"\n")
        await self._process.stdin.drain()

    async def read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.take(line.removesuffix(b"\n"))


def config(era: str) -> GatewayConfig:
    server = ServerConfig(
        name="one",
        kind="stdio",
        command=(sys.executable, "-S", str(SERVER), era),
        tool_filters=("*", "!secret"),
        tools={"write": ToolOverride(arguments={"mode": ArgumentOverride(value="ro")})},
    )
    toolbox = ToolboxConfig(name="dev", description="For development", servers={"one": server})
    return GatewayConfig(path="gateway.json", lock="off", toolboxes={"dev": toolbox})


def config_file(era: str, folder: Path) -> Path:
    server = {
        "command": sys.executable,
        "args": ["-S", str(SERVER), era],
        "toolFilters": ["*", "!secret"],
        "tools": {"write": {"arguments": {"mode": {"value": "ro"}}}},
    }
    path = folder / "pegboard.json"
    toolbox = {"description": "For development", "mcpServers": {"one": server}}
    path.write_text(json.dumps({"lock": {"policy": "off"}, "toolboxes": {"dev": toolbox}}))
    return path


@asynccontextmanager
async def opened(door: str, client_era: str, server_era: str, folder: Path) -> AsyncIterator[Door]:
    async with nothing_left(), AsyncExitStack() as stack:
        if door == "stdio":
            process = await asyncio.create_subprocess_exec(
                *PEGBOARD,
                *("up", str(config_file(server_era, folder)), "--stdio"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=2**24,
            )
            over_stdio = OverStdio(process, client_era)
            reading = asyncio.create_task(over_stdio.read())
            stack.push_async_callback(process.wait)
            assert process.stdin is not None
            stack.callback(process.stdin.close)
            await over_stdio.open()
            yield over_stdio
            process.stdin.close()
            await reading
            return
        gateway = Gateway(config(server_era))
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        endpoint = HttpEndpoint(gateway.handler, {"name": "gateway", "version": "1"}, limits=Limits(), guard=Guard())
        server = await listen(endpoint, Limits())
        stack.push_async_callback(server.close)
        if door == "http":
            over_http = OverHttp(server.port, client_era)
            await over_http.open()
            yield over_http
            return
        async with connect(f"ws://127.0.0.1:{server.port}/ws", proxy=None, compression=None) as socket:
            over_socket = OverWebSocket(socket, client_era)
            reading = asyncio.create_task(over_socket.read())
            await over_socket.open()
            yield over_socket
        await reading


def lines(message: dict[str, Any], line_break: str) -> str:
    """A JSON array which, split at its line breaks, holds that request under many ids."""
    guesses = (json.dumps({"jsonrpc": "2.0", "id": guess, **message}) for guess in range(1, GUESSES))
    return f"[{line_break}" + f"{line_break},{line_break}".join(guesses) + f"{line_break}]"


def calling(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def received(way: Door) -> list[Any]:
    """What the server has read: method, id and params of each message."""
    answer = await way.send("tools/call", '{"name":"dev__one__received"}')
    told: list[Any] = json.loads(answer["result"]["content"][0]["text"])
    return told


async def until_received(way: Door, text: str) -> None:
    while text not in str(await received(way)):
        pass


Carrier = Callable[[str], tuple[str, str]]
TOOL = '"name":"dev__one__echo"'
REF = '{"type":"ref/resource","uri":"memo://one.dev.pegboard/:{name}"}'
CARRIERS: dict[str, Carrier] = {
    "arguments": lambda told: ("tools/call", f'{{{TOOL},"arguments":{{"x":{told}}}}}'),
    "a member of params": lambda told: ("tools/call", f'{{{TOOL},"arguments":{{}},"zzz":{told}}}'),
    "_meta": lambda told: ("tools/call", f'{{{TOOL},"arguments":{{}},"_meta":{{"com.example/x":{told}}}}}'),
    "inputResponses": lambda told: ("tools/call", f'{{{TOOL},"arguments":{{}},"inputResponses":{{"a":{told}}}}}'),
    "repaired arguments": lambda told: (
        "tools/call",
        f'{{"name":"dev__one__write","arguments":{{"text":1,"x":{told}}}}}',
    ),
    "arguments of a prompt": lambda told: (
        "prompts/get",
        f'{{"name":"dev__one__review","arguments":{{"code":{told}}}}}',
    ),
    "params of a prompt": lambda told: ("prompts/get", f'{{"name":"dev__one__review","zzz":{told}}}'),
    "params of a resource": lambda told: ("resources/read", f'{{"uri":"memo://one.dev.pegboard/:one","zzz":{told}}}'),
    "the argument of a completion": lambda told: (
        "completion/complete",
        f'{{"ref":{{"type":"ref/prompt","name":"dev__one__review"}},"argument":{{"name":"code","value":"","x":{told}}}}}',
    ),
    "the context of a completion": lambda told: (
        "completion/complete",
        f'{{"ref":{REF},"argument":{{"name":"name","value":""}},"context":{{"arguments":{told}}}}}',
    ),
    "the uri of a resource": lambda told: (
        "resources/read",
        json.dumps({"uri": "memo://one.dev.pegboard/:" + told}),
    ),
    "a cursor": lambda told: ("tools/list", json.dumps({"cursor": told})),
}
WAYS = pairs(("http", "ws", "stdio"), (MODERN, LEGACY), [("modern",), ("legacy",)])


@pytest.mark.process
@deeper
@pytest.mark.parametrize(("door", "client", "server"), WAYS)
async def test_a_line_embedded_in_a_request_does_not_reach_a_server_as_a_message(
    door: str, client: str, server: str, tmp_path: Path
) -> None:
    async with opened(door, client, server, tmp_path) as way:
        for line_break in way.breaks:
            for name, carry in CARRIERS.items():
                for stray in (calling("secret"), calling("write", mode="rw")):
                    answer = await way.send(*carry(lines(stray, line_break)))
                    assert "the secret" not in json.dumps(answer), name
        told = await way.send("tools/call", '{"name":"dev__one__write","arguments":{"text":"end"}}')
        assert "result" in told, told
        assert json.loads(told["result"]["content"][0]["text"]) == {"text": "end", "mode": "ro"}
        messages = await received(way)
    assert [found for found in messages if found[0] == "unreadable"] == []
    calls = [params for method, _, params in messages if method == "tools/call"]
    assert {params["name"] for params in calls} == {"echo", "write", "received"}
    assert {params["arguments"]["mode"] for params in calls if params["name"] == "write"} == {"ro"}


@pytest.mark.process
@deeper
@pytest.mark.parametrize(("door", "client", "server"), WAYS)
async def test_a_line_within_a_request_answers_no_call_of_another_client(
    door: str, client: str, server: str, tmp_path: Path
) -> None:
    async with opened(door, client, server, tmp_path) as way:
        pending = asyncio.create_task(way.send("tools/call", '{"name":"dev__one__wait"}'))
        await until_received(way, "'wait'")
        strays = [lines(calling("echo", chosen="text"), line_break) for line_break in way.breaks]
        attacks = [way.send("tools/call", f'{{{TOOL},"arguments":{{}},"zzz":{stray}}}') for stray in strays]
        attacking = [asyncio.create_task(attack) for attack in attacks]
        await until_received(way, "chosen")
        await way.send("tools/call", '{"name":"dev__one__release"}')
        assert (await pending)["result"]["content"][0]["text"] == "waited"
        await asyncio.gather(*attacking)


@pytest.mark.process
@deeper
@pytest.mark.parametrize(("door", "client", "server"), WAYS)
async def test_what_a_server_writes_reaches_a_client_on_one_line_and_with_each_member_once(
    door: str, client: str, server: str, tmp_path: Path
) -> None:
    async with opened(door, client, server, tmp_path) as way:
        told = await way.send("tools/call", '{"name":"dev__one__pretty","_meta":{"progressToken":"t"}}')
        refused = await way.send("tools/call", '{"name":"dev__one__pretty_error","_meta":{"progressToken":"u"}}')
        heard = [
            message.removeprefix(b"data: ") for message in way.heard if b"stray" in message or b"pretty" in message
        ]
    assert told["result"]["structuredContent"]["stray"] == "last"
    assert refused["error"]["message"] == "[dev/one/pretty_error] Error: pretty"
    assert len(heard) == 4, heard
    for message in heard:
        text = message.rpartition(b"data: ")[2]
        assert not has_line_break(text)
        assert repeated_member(text) is None
        assert b"first" not in text


async def test_what_a_caller_sends_arrives_whole_and_with_its_numbers_as_they_were_written(tmp_path: Path) -> None:
    async with opened("http", MODERN, "legacy", tmp_path) as way:
        arguments = '{"price" : 1.10,\n "many":[ 1e2 ,123456789012345678901234567890 ],"text":"\\u00e9 \\n \\""}'
        answer = await way.send(
            "tools/call", f'{{"name":"dev__one__line","arguments":{arguments},"zzz":{{ "later":[\r\n true ] }}}}'
        )
    line = answer["result"]["content"][0]["text"]
    assert '"arguments":{"price":1.10,"many":[1e2,123456789012345678901234567890],"text":"\\u00e9 \\n \\""}' in line
    assert '"zzz":{"later":[true]}' in line


async def test_ids_towards_a_server_cannot_be_guessed(tmp_path: Path) -> None:
    firsts = set()
    for _ in range(2):
        async with opened("http", MODERN, "legacy", tmp_path) as way:
            numbers = [request_id for _, request_id, _ in await received(way) if request_id is not None]
        assert len(set(numbers)) == len(numbers)
        # Some servers read an id as a number of 32 bits.
        assert all(type(number) is int and GUESSES < number < 2**31 for number in numbers)
        firsts.add(numbers[0])
    assert len(firsts) == 2
