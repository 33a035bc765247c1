"""Our HTTP/1.1 server on real sockets, under every event loop there is."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import stat
import subprocess
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard.errors import SetupError
from pegboard.limits import Limits
from pegboard.server.http.listener import Http1Server, bind_unix, listen
from pegboard.server.http_types import Answer, Head, Sink
from tests.server.fake_transport import Script, Scripted, echo, get, post, until

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    # uvloop does not exist on every platform; the server has to work without it.
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a scene within a bound, under one loop after the other."""

    def run_scene(scene: Coroutine[Any, Any, None]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(30):
                await scene

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(bounded())

    return run_scene


@asynccontextmanager
async def serving(script: Script = echo, limits: Limits | None = None, **options: Any) -> Any:
    server = await listen(Scripted(script), limits or Limits(), **options)
    try:
        yield server
    finally:
        await server.close()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split()[1])
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    return status, await reader.readexactly(length)


async def connect(server: Http1Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def leave(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            pass


def test_a_server_answers_over_tcp(run: Run) -> None:
    async def scene() -> None:
        async with serving() as server:
            reader, writer = await connect(server)
            for number in range(3):
                writer.write(post(b"body %d" % number, "/p"))
                assert await read_answer(reader) == (200, b"/p body %d" % number)
            assert len(server.connections.live) == 1
            await leave(writer)
            await until(lambda: not server.connections.live)

    run(scene())


def test_a_name_with_several_addresses_is_served_on_all_of_them(run: Run) -> None:
    async def scene() -> None:
        async with serving(host="localhost") as server:
            assert len({one.getsockname()[1] for one in server.sockets}) == 1
            for one in server.sockets:
                reader, writer = await asyncio.open_connection(one.getsockname()[0], server.port)
                writer.write(get("/a"))
                assert (await read_answer(reader))[0] == 200
                await leave(writer)

    run(scene())


def test_a_port_in_use_is_a_setup_error_that_names_it(run: Run) -> None:
    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(SetupError, match=rf"127\.0\.0\.1:{port}.*choose another port"):
                await listen(Scripted(echo), Limits(), port=port)
        with pytest.raises(SetupError, match=r"no\.such\.host\.invalid"):
            await listen(Scripted(echo), Limits(), host="no.such.host.invalid")

    run(scene())


def test_a_socket_file_is_the_owners_and_goes_with_the_server(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def scene() -> None:
        async with serving(uds=str(path)) as server:
            assert server.port == 0
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(get("/a"))
            assert await read_answer(reader) == (200, b"/a ")
            await leave(writer)
        assert not path.exists()

    run(scene())


def test_a_socket_file_left_behind_is_replaced_but_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "s"
    (left,) = bind_unix(str(path))
    left.close()
    (ours,) = bind_unix(str(path))
    ours.listen()
    with pytest.raises(SetupError, match="Another server is listening"):
        bind_unix(str(path))
    ours.close()
    (tmp_path / "file").write_text("precious")
    with pytest.raises(SetupError, match="is not a socket"):
        bind_unix(str(tmp_path / "file"))
    with pytest.raises(SetupError, match="Cannot listen"):
        bind_unix(str(tmp_path / "missing" / "s"))
    assert (tmp_path / "file").read_text() == "precious"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    assert shutil.which("openssl"), "the TLS test makes its certificate with the `openssl` command: install it"
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return paths


def test_tls_is_served_and_the_endpoint_knows(run: Run, certificate: tuple[Path, Path]) -> None:
    async def stream(sink: Sink) -> None:
        sink.start(200, ())
        for _ in range(20):
            sink.write(b"x" * 10_000)
            await sink.drain()
        sink.end()

    async def scene() -> None:
        ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ours.load_cert_chain(*certificate)
        theirs = ssl.create_default_context(cafile=str(certificate[0]))
        async with serving(
            lambda head, body, sink: (
                stream(sink) if head.path == b"/stream" else Answer(200, str(head.secure).encode())
            ),
            ssl=ours,
        ) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=theirs)
            writer.write(get("/"))
            assert await read_answer(reader) == (200, b"True")
            writer.write(get("/stream", "Connection: close"))
            assert (await reader.read()).count(b"x") >= 200_000
            await leave(writer)
            reader, writer = await connect(server)
            writer.write(get("/plain"))
            assert b"200" not in await reader.read()
            await leave(writer)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=theirs)
            writer.write(b"\0")
            assert (await read_answer(reader))[0] == 400
            await leave(writer)

    run(scene())


def test_a_refusal_reaches_a_client_that_is_still_sending(run: Run) -> None:
    async def scene() -> None:
        async with serving(limits=Limits(body_bytes=1000)) as server:
            for _ in range(5):
                reader, writer = await connect(server)
                writer.write(post(b"x" * 3_000_000))
                assert (await read_answer(reader))[0] == 413
                await leave(writer)
            reader, writer = await connect(server)
            writer.write(get("/next"))
            assert (await read_answer(reader))[0] == 200
            await leave(writer)

    run(scene())


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="this kernel takes what it likes")
def test_the_kernel_takes_little_for_a_reader_that_reads_nothing(run: Run) -> None:
    async def scene() -> None:
        written = 0

        async def pour(head: Head, body: bytes, sink: Sink) -> None:
            nonlocal written
            sink.start(200, ())
            while True:
                if not sink.write(bytes(16_384)):
                    await sink.drain()
                written += 16_384

        async with serving(pour) as server:
            idle = socket.socket()
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.connect(("127.0.0.1", server.port))
            idle.sendall(get("/"))
            await until(lambda: written)
            before = -1
            while before != written:
                before = written
                await asyncio.sleep(0.2)
            assert 0 < written < 500_000
            idle.close()

    run(scene())


def test_a_slow_reader_blocks_only_its_own_stream(run: Run) -> None:
    progress: list[int] = []

    async def flood(sink: Sink) -> None:
        sink.start(200, ())
        for number in range(400):
            sink.write(b"x" * 100_000)
            await sink.drain()
            progress.append(number)
        sink.end()

    async def scene() -> None:
        progress.clear()
        async with serving(lambda head, body, sink: flood(sink) if head.path == b"/flood" else Answer(200)) as server:
            reader, writer = await connect(server)
            writer.write(get("/flood", "Connection: close"))
            await until(lambda: progress)
            seen = -1
            while seen != len(progress):
                seen = len(progress)
                other_reader, other = await connect(server)
                other.write(get("/"))
                assert (await read_answer(other_reader))[0] == 200
                await leave(other)
                await asyncio.sleep(0.05)
            assert seen < 400
            total = 0
            while chunk := await reader.read(1 << 20):
                total += chunk.count(b"x")
            assert total == 400 * 100_000 + 0
            await leave(writer)

    run(scene())


def test_a_client_that_leaves_is_noticed_before_the_first_byte(run: Run) -> None:
    told: list[str] = []

    async def wait(sink: Sink) -> Answer:
        sink.on_gone(lambda: told.append("gone"))
        await asyncio.Event().wait()
        return Answer(200)

    async def scene() -> None:
        told.clear()
        async with serving(lambda head, body, sink: wait(sink)) as server:
            _, writer = await connect(server)
            writer.write(get())
            await until(lambda: server.busy)
            await leave(writer)
            await until(lambda: told)
            assert told == ["gone"]

    run(scene())


def test_at_the_limit_newcomers_wait_until_somebody_leaves(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with serving(limits=Limits(connections=2)) as server:
            first, second, third = [await connect(server) for _ in range(3)]
            for reader, writer in (first, second):
                writer.write(get("/1"))
                assert (await read_answer(reader))[0] == 200
            third[1].write(get("/3"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(third[0].read(1), 0.1)
            assert len(server.connections.live) == 2
            await leave(first[1])
            assert await read_answer(third[0]) == (200, b"/3 ")
            await leave(second[1], third[1])

    with caplog.at_level(logging.WARNING):
        run(scene())
    assert "2 connections are open" in caplog.text


def test_the_sweep_runs_by_itself(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.server.http.listener.SWEEP_SECONDS", 0.02)

    async def scene() -> None:
        async with serving(limits=Limits(head_seconds=0.01)) as server:
            # It sends nothing: a sweep could come before the first bytes of one that does.
            reader, writer = await connect(server)
            assert await reader.read() == b""
            await leave(writer)

    run(scene())


def test_draining_waits_for_what_is_in_flight_and_closes_what_it_answers(run: Run) -> None:
    async def scene() -> None:
        gate = asyncio.Event()

        async def wait() -> Answer:
            await gate.wait()
            return Answer(200, b"done")

        def route(head: Head, body: bytes, sink: Sink) -> Answer | Awaitable[Answer]:
            return wait() if head.path == b"/wait" else Answer(503)

        async with serving(route) as server:
            assert await server.drain(1)
            server.connections.keep = True
            reader, writer = await connect(server)
            writer.write(get("/wait"))
            await until(lambda: server.busy)
            assert not await server.drain(0.01)
            draining = asyncio.create_task(server.drain(10))
            await asyncio.sleep(0)
            late_reader, late = await connect(server)
            late.write(get("/late"))
            assert (await read_answer(late_reader))[0] == 503
            assert await late_reader.read() == b""
            gate.set()
            assert await draining
            assert await read_answer(reader) == (200, b"done")
            await leave(writer, late)

    run(scene())


def test_closing_ends_every_connection_and_frees_the_port(run: Run) -> None:
    async def scene() -> None:
        async with serving(lambda *_: asyncio.Event().wait()) as server:
            _, idle = await connect(server)
            _, busy = await connect(server)
            busy.write(get())
            await until(lambda: server.busy)
            port = server.port
            await server.close()
            assert not server.connections.live
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            async with serving(port=port):
                pass
            await leave(idle, busy)

    run(scene())
