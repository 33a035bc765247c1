"""HTTP underneath: redirects that carry no secret away, TLS, proxies, and what may stand in a header."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from pegboard import Client
from pegboard.client.http.address import Address, Proxy, read_address
from pegboard.client.http.http_pool import HttpPool, PooledRequest, header_lines
from pegboard.errors import ConnectionLost, MalformedMessage, SetupError, Unreachable
from tests.client.conftest import served
from tests.client.fakes import Asked, Fake, faking, modern, reply, text
from tests.client.process_leftovers import nothing_left
from tests.waiting import until


@asynccontextmanager
async def web(**how: object) -> AsyncIterator[HttpPool]:
    made = HttpPool(**how)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.close()


def get(fake: Fake, path: str = "/start") -> PooledRequest:
    address = read_address(f"http://127.0.0.1:{fake.port}{path}")
    return PooledRequest("GET", address, b"X-Open: 1\r\n", b"Authorization: Bearer secret\r\n")


# -- redirects -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_keeps_the_method_the_body_and_within_its_origin_the_secrets(status: int) -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.target == "/mcp":
            reply(writer, b"", f"{status} Moved", Location="/mcp/")
        else:
            modern(lambda asked, writer: reply(writer, text(asked, "here")))(asked, writer)

    async with nothing_left(), faking(answer) as fake:
        async with Client(fake.url, headers={"Authorization": "Bearer secret"}) as client:
            assert (await client.call("any")).text == "here"
        assert fake.asked[-1].target == "/mcp/"
        assert fake.asked[-1].headers["authorization"] == "Bearer secret"


async def test_a_redirect_to_another_origin_carries_no_secret() -> None:
    def elsewhere(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, b"", "307 Moved", Location=f"http://127.0.0.1:{other.port}/there")

    async with (
        nothing_left(),
        faking(lambda asked, writer: reply(writer, b"ok")) as other,
        faking(elsewhere) as fake,
        web() as browser,
    ):
        response = await browser.send(get(fake))
        assert await response.read_all(10) == b"ok"
        assert other.asked[0].headers["x-open"] == "1"
        assert "authorization" not in other.asked[0].headers


async def test_a_session_goes_to_no_other_origin() -> None:
    def elsewhere(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, b"", "307 Moved", Location=f"http://127.0.0.1:{other.port}/there")

    def first(asked: Asked, writer: asyncio.StreamWriter) -> None:
        match asked.message.get("method"):
            case "initialize":
                info = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "serverInfo": {"name": "f", "version": "1"},
                }
                reply(writer, {"jsonrpc": "2.0", "id": asked.message["id"], "result": info}, Mcp_Session_Id="sesame")
            case "tools/call":
                elsewhere(asked, writer)
            case _:
                reply(writer, b"", "202 Accepted" if asked.method == "POST" else "405 No")

    async with faking(lambda asked, writer: reply(writer, text(asked, "stolen?"))) as other, faking(first) as fake:
        async with Client(fake.url, version="2025-11-25", headers={"X-Api-Key": "k"}) as client:
            await client.call("any")
        assert "mcp-session-id" not in other.asked[0].headers
        assert "x-api-key" not in other.asked[0].headers


@pytest.mark.parametrize(
    ("status", "location", "told"),
    [
        (307, "/start", "redirected more than 5 times"),
        (307, "http://[", "redirected to an invalid URL"),
        (307, "file:///etc/passwd", "redirected to an invalid URL"),
    ],
)
async def test_redirects_are_bounded_and_lead_to_addresses(status: int, location: str, told: str) -> None:
    async with nothing_left(), faking(lambda _, writer: reply(writer, b"", f"{status} X", Location=location)) as fake:
        async with web() as browser:
            with pytest.raises(MalformedMessage, match=told):
                await browser.send(get(fake))
        assert len(fake.asked) <= 6


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_post_is_not_turned_into_a_get(status: int) -> None:
    async with faking(lambda _, writer: reply(writer, b"", f"{status} X", Location="/other")) as fake:
        with pytest.raises(MalformedMessage, match=r"has moved to .*/other"):
            async with Client(fake.url):
                pass


# -- TLS -----------------------------------------------------------------------------------------------------------


async def test_tls_is_spoken_with_an_authority_of_ones_own(certificate: tuple[Path, Path]) -> None:
    answer = modern(lambda asked, writer: reply(writer, text(asked, "safe")))
    async with (
        nothing_left(),
        faking(answer, ssl=served(certificate)) as fake,
        Client(f"https://localhost:{fake.port}/mcp", ca=certificate[0]) as client,
    ):
        results = await asyncio.gather(*(client.call("any") for _ in range(20)))
        assert {result.text for result in results} == {"safe"}


async def test_an_untrusted_certificate_is_rejected(certificate: tuple[Path, Path]) -> None:
    async with nothing_left(), faking(lambda asked, writer: None, ssl=served(certificate)) as fake:
        with pytest.raises(Unreachable, match="Pass its CA bundle with ca="):
            async with Client(f"https://localhost:{fake.port}/mcp"):
                pass
        with pytest.raises(Unreachable, match="Cannot reach"):
            async with Client(f"https://127.0.0.1:{fake.port}/mcp", ca=certificate[0]):
                pass
        assert fake.asked == []


async def test_a_bundle_that_is_none_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is not a certificate bundle"):
        async with Client("https://localhost:1/mcp", ca=tmp_path / "nowhere.pem"):
            pass


# -- proxies -------------------------------------------------------------------------------------------------------


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def proxying(
    port: int, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
) -> AsyncIterator[tuple[int, list[str]]]:
    """A proxy that leads every tunnel to one port; its port, and the heads it was sent."""
    heads: list[str] = []
    tasks: set[asyncio.Task[object]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError):
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(answer)
            if b" 200 " in answer[:16]:
                there, back = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(pump(reader, back), pump(there, writer))
        writer.close()
        tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_https_goes_through_a_tunnel_of_the_proxy(certificate: tuple[Path, Path]) -> None:
    async with (
        faking(lambda asked, writer: reply(writer, b"inside"), ssl=served(certificate)) as fake,
        proxying(fake.port) as (port, heads),
        web(ca=certificate[0], find_proxy=lambda _: Proxy("127.0.0.1", port, "Basic abc")) as browser,
    ):
        address = Address("https", "inside.example", 443, "/x")
        for _ in range(2):
            response = await browser.send(PooledRequest("GET", address, b"", b"Authorization: secret\r\n"))
            assert await response.read_all(10) == b"inside"
        assert len(heads) == 1
        assert heads[0].startswith("CONNECT inside.example:443 HTTP/1.1\r\n")
        assert "Proxy-Authorization: Basic abc\r\n" in heads[0]
        assert "secret" not in heads[0]
        assert "proxy-authorization" not in fake.asked[0].headers


@pytest.mark.parametrize("answer", [b"HTTP/1.1 407 Authenticate\r\n\r\n", b"", b"x" * 20_000])
async def test_a_proxy_that_refuses_is_said_so(answer: bytes) -> None:
    async with (
        nothing_left(),
        proxying(1, answer) as (port, _),
        web(find_proxy=lambda _: Proxy("127.0.0.1", port)) as browser,
    ):
        with pytest.raises(Unreachable, match=r"Cannot reach https://inside\.example/"):
            await browser.send(PooledRequest("GET", Address("https", "inside.example", 443, "/")))


async def test_plain_http_names_its_address_whole_to_a_proxy() -> None:
    async with (
        faking(lambda asked, writer: reply(writer, b"ok")) as fake,
        web(find_proxy=lambda _: Proxy("127.0.0.1", fake.port, "Basic abc")) as browser,
    ):
        await browser.send(PooledRequest("GET", Address("http", "inside.example", 8080, "/x?y=1")))
        assert fake.asked[0].target == "http://inside.example:8080/x?y=1"
        assert fake.asked[0].headers["host"] == "inside.example:8080"
        assert fake.asked[0].headers["proxy-authorization"] == "Basic abc"


# -- the rest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{"X": "a\r\nY: b"}, {"X": "a\n"[:2]}, {"X": "\0"}, {"": "x"}, {"a b": "x"}, {"a:": "x"}, {"é": "x"}]
)
def test_no_header_can_end_its_line_early(fields: dict[str, str]) -> None:
    with pytest.raises(SetupError, match="header"):
        header_lines(fields, "there")


def test_headers_are_written_one_a_line() -> None:
    assert header_lines({"A": " b ", "C": "d"}, "") == b"A: b\r\nC: d\r\n"


async def test_a_client_that_is_closed_sends_nothing() -> None:
    async with faking(lambda asked, writer: reply(writer, b"ok")) as fake:
        async with web() as browser:
            pass
        with pytest.raises(ConnectionLost, match="closed"):
            await browser.send(get(fake))
        assert fake.asked == []


async def test_what_waits_for_room_is_let_in_in_turn_and_urgent_things_at_once() -> None:
    gate = asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.target != "/urgent":
            await gate.wait()
        reply(writer, b"ok")

    async with nothing_left(), faking(answer) as fake, web(connections=2) as browser:
        waiting = [asyncio.create_task(browser.send(get(fake))) for _ in range(6)]
        response = await browser.send(get(fake, "/urgent"), urgent=True)
        assert response.status == 200
        assert fake.connections == 3
        gate.set()
        assert [response.status for response in await asyncio.gather(*waiting)] == [200] * 6
        assert fake.connections == 3


async def test_a_request_cancelled_while_it_waits_leaves_its_place_to_others() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.target == "/slow":
            await asyncio.sleep(30)
        reply(writer, b"ok")

    async with nothing_left(), faking(answer) as fake, web(connections=1) as browser:
        for _ in range(3):
            slow = asyncio.create_task(browser.send(get(fake, "/slow")))
            queued = asyncio.create_task(browser.send(get(fake, "/slow")))
            await until(lambda: bool(fake.asked) and fake.asked[-1].target == "/slow")
            for task in (queued, slow):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            assert (await browser.send(get(fake, "/fast"))).status == 200


async def test_a_body_that_comes_a_few_bytes_at_a_time_weighs_about_what_it_is_long() -> None:
    count = 60_000

    def drip(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"2\r\nab\r\n" * count + b"0\r\n\r\n")

    async with nothing_left(), faking(drip) as fake, web() as browser:
        response = await browser.send(get(fake))
        tracemalloc.start()
        try:
            await until(lambda: response.ended)
            held = tracemalloc.get_traced_memory()[0]
            assert await response.read_all(2 * count) == b"ab" * count
        finally:
            tracemalloc.stop()
        assert held < 2 * (2 * count) + 600_000


@pytest.mark.parametrize("endless", [b"0\r\nX: ", b"5;"], ids=["trailer", "extension"])
async def test_what_follows_a_body_is_bounded_as_its_head_is(endless: bytes) -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n" + endless + b"a" * 1_000_000)

    async with nothing_left(), faking(answer) as fake, web() as browser:
        response = await browser.send(get(fake))
        with pytest.raises(MalformedMessage, match="the trailer of a response of more than 65536 bytes"):
            await response.read_all(1_000)


async def test_a_reader_that_is_slow_holds_the_server_back() -> None:
    sent = 0

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(500):
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    async with nothing_left(), faking(answer) as fake, web() as browser:
        response = await browser.send(get(fake))
        await asyncio.sleep(0.3)
        assert sent < 20_000_000
        assert len(await response.read_all(60_000_000)) == 50_000_000
