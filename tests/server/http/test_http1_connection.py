"""One connection of our own HTTP/1.1 door, on a transport and a clock that do as they are told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Any

import pytest

from pegboard.limits import Limits
from pegboard.server.http.http1_connection import FLUSH_BYTES
from pegboard.server.http_types import Answer, Head, Headers, Sink
from tests.server.fake_transport import Wire, echo, get, post
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here
from tests.waiting import until

SSE: Headers = ((b"content-type", b"text/event-stream"),)


async def settle() -> None:
    """Let everything that can run, run."""
    for _ in range(5):
        await asyncio.sleep(0)


class Gates:
    """Coroutines that wait, each by its path, until they are let go."""

    def __init__(self) -> None:
        self.gates: dict[bytes, asyncio.Future[Answer | None]] = {}

    def __call__(self, head: Head, body: bytes, sink: Sink) -> asyncio.Future[Answer | None]:
        async def wait() -> Answer | None:
            return await self.gates.setdefault(head.path, asyncio.get_running_loop().create_future())

        return wait()  # type: ignore[return-value]  # a coroutine, as the endpoint's contract says

    def open(self, path: bytes) -> None:
        self.gates[path].set_result(Answer(200, path))


# Answers.


async def test_an_answer_is_one_write_with_length_date_and_type() -> None:
    wire = Wire(lambda *_: Answer(200, b'{"a":1}', headers=((b"mcp-session-id", b"7"),)))
    wire.receive(get("/a"))
    assert wire.writes == 1
    assert wire.responses() == [
        (
            200,
            {
                b"date": b"Thu, 01 Jan 1970 00:00:00 GMT",
                b"mcp-session-id": b"7",
                b"content-type": b"application/json",
                b"content-length": b"7",
            },
            b'{"a":1}',
        )
    ]


async def test_a_head_tells_both_ends_of_the_connection() -> None:
    wire = Wire()
    wire.receive(post(b"body", "/a?b"))
    (head,) = wire.endpoint.heads
    assert (head.method, head.path, head.query, head.peer, head.server, head.secure) == (
        b"POST", b"/a", b"b", "192.0.2.7", "192.0.2.1", False)  # fmt: skip
    assert wire.endpoint.bodies == [b"body"]


async def test_a_connection_serves_request_after_request() -> None:
    wire = Wire()
    for number in range(5):
        wire.receive(get(f"/{number}"))
    assert [body for _, _, body in wire.responses()] == [b"/%d " % number for number in range(5)]
    assert not wire.closed


async def test_a_coroutine_that_does_not_wait_is_answered_like_an_answer() -> None:
    async def at_once() -> Answer:
        return Answer(202)

    wire = Wire(lambda *_: at_once())
    wire.receive(get())
    await settle()
    assert [status for status, _, _ in wire.responses()] == [202]


async def test_a_connection_closes_when_its_client_says_so() -> None:
    wire = Wire()
    wire.receive(get("/", "Connection: close"))
    assert wire.closed
    assert wire.responses()[0][1][b"connection"] == b"close"


async def test_a_connection_closes_when_the_answer_says_so() -> None:
    wire = Wire(lambda *_: Answer(200, close=True))
    wire.receive(get("/1") + get("/2"))
    assert wire.closed
    assert [headers[b"connection"] for _, headers, _ in wire.responses()] == [b"close"]
    assert [head.path for head in wire.endpoint.heads] == [b"/1"]


async def test_http_1_0_closes_unless_asked_to_stay() -> None:
    wire = Wire()
    wire.receive(get("/", "Connection: keep-alive", version="1.0"))
    assert not wire.closed
    assert wire.responses()[0][1][b"connection"] == b"keep-alive"
    wire.receive(get("/", version="1.0"))
    assert wire.closed


async def test_the_answer_to_head_has_no_body() -> None:
    wire = Wire()
    wire.receive(get("/a").replace(b"GET", b"HEAD") + get("/b"))
    assert [(headers[b"content-length"], body) for _, headers, body in wire.responses()] == [
        (b"3", b""),
        (b"3", b"/b "),
    ]


async def test_a_status_without_a_name_is_sent() -> None:
    wire = Wire(lambda *_: Answer(299))
    wire.receive(get())
    assert wire.responses()[0][0] == 299


# Failures.


def fail(head: Head, body: bytes, sink: Sink) -> Answer:
    raise LookupError("a secret path")


async def fail_later() -> Answer:
    await asyncio.sleep(0)
    raise LookupError("a secret path")


async def leave_the_house() -> Answer:
    raise SystemExit(3)


async def cancel_itself() -> Answer:
    raise asyncio.CancelledError


async def answer_nothing() -> None:
    return None


@pytest.mark.parametrize(
    "script",
    [
        fail,
        lambda *_: fail_later(),
        lambda *_: cancel_itself(),
        lambda *_: answer_nothing(),
        lambda *_: Answer(200, headers=((b"x-a", b"b\r\nset-cookie: c"),)),
        lambda *_: Answer(200, headers=((b"x-a: b\nx-c", b"d"),)),
    ],
)
async def test_a_failing_endpoint_is_a_500_with_an_id_and_the_log_has_the_rest(
    script: object, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire(script)  # type: ignore[arg-type]  # each of them is an endpoint's function
    wire.receive(get())
    await settle()
    ((status, _, body),) = wire.responses()
    assert status == 500
    found = re.fullmatch(
        rb'{"jsonrpc":"2.0","error":{"code":-32603,"message":"Internal error, error id ([0-9a-f]{8})"}}', body
    )
    assert found is not None
    assert found[1].decode() in caplog.text
    assert not wire.closed


def test_system_exit_ends_the_request_alone() -> None:
    async def scene() -> None:
        wire = Wire(lambda head, *_: leave_the_house() if head.path == b"/exit" else Answer(200))
        wire.receive(get("/exit"))
        await settle()
        wire.receive(get("/"))
        await settle()
        assert [status for status, _, _ in wire.responses()] == [500, 200]

    loop = asyncio.new_event_loop()
    task = loop.create_task(scene())
    while not task.done():
        try:
            loop.run_until_complete(task)
        except SystemExit:
            # Before Python 3.12 it leaves the loop, and whoever runs the loop enters it again.
            continue
    loop.close()
    task.result()


# Pipelining.


async def test_answers_keep_the_order_of_the_requests() -> None:
    gates = Gates()
    wire = Wire(lambda head, body, sink: gates(head, body, sink) if head.path == b"/slow" else echo(head, body, sink))
    wire.receive(get("/slow") + get("/fast") + get("/slow2"))
    await settle()
    assert wire.written == b""
    assert [head.path for head in wire.endpoint.heads] == [b"/slow"]
    gates.open(b"/slow")
    await settle()
    assert [body for _, _, body in wire.responses()] == [b"/slow", b"/fast ", b"/slow2 "]


async def test_one_connection_yields_after_a_number_of_answers() -> None:
    wire = Wire(limits=Limits(inline_answers=3, pipelined=100))
    wire.receive(get() * 7)
    assert len(wire.responses()) == 3
    await asyncio.sleep(0)
    assert len(wire.responses()) == 6
    await asyncio.sleep(0)
    assert len(wire.responses()) == 7


async def test_reading_stops_while_enough_requests_wait() -> None:
    gates = Gates()
    wire = Wire(lambda head, body, sink: gates(head, body, sink) if head.path == b"/slow" else echo(head, body, sink),
                Limits(pipelined=3))  # fmt: skip
    wire.receive(get("/slow") + get("/1") + get("/2"))
    await settle()
    assert wire.reading
    wire.receive(get("/3"))
    assert not wire.reading
    gates.open(b"/slow")
    await settle()
    assert wire.reading
    assert len(wire.responses()) == 4


async def test_very_many_requests_at_once_are_answered_in_order_a_few_in_each_turn() -> None:
    wire = Wire()
    wire.receive(b"".join(get(f"/{number}") for number in range(500)))
    assert not wire.reading
    assert len(wire.responses()) <= wire.connections.limits.inline_answers
    await until(lambda: wire.reading)
    assert [body for _, _, body in wire.responses()] == [b"/%d " % number for number in range(500)]


async def test_a_refusal_behind_more_requests_than_may_wait_comes_last() -> None:
    wire = Wire(limits=Limits(pipelined=2))
    wire.receive(b"".join(get(f"/{number}") for number in range(5)) + b"nonsense\r\n\r\n")
    await until(lambda: wire.half_closed)
    assert [status for status, _, _ in wire.responses()] == [200] * 5 + [400]


async def test_a_client_that_leaves_while_much_of_it_waits_costs_nothing_more() -> None:
    gates = Gates()
    wire = Wire(gates, Limits(pipelined=2))
    wire.receive(get("/slow") + get("/next") * 1000)
    await settle()
    assert wire.connections.weight > 20_000
    wire.lose()
    assert wire.connections.weight == 0
    gates.open(b"/slow")
    await settle()
    assert len(wire.endpoint.heads) == 1


async def test_reading_stops_while_the_waiting_bodies_weigh_too_much() -> None:
    gates = Gates()
    wire = Wire(gates, Limits(pipelined=100, body_bytes=1000))
    wire.receive(get("/slow") + post(b"x" * 600))
    assert wire.reading
    wire.receive(post(b"x" * 600))
    assert not wire.reading
    await settle()
    gates.open(b"/slow")
    await settle()
    gates.open(b"/")
    await settle()
    assert wire.reading


async def test_nothing_more_is_served_while_the_client_does_not_read() -> None:
    wire = Wire()
    wire.clog(100_000)
    wire.receive(get("/1") + get("/2"))
    assert not wire.endpoint.heads
    wire.unclog()
    assert len(wire.responses()) == 2


# Refusals.


async def test_a_refusal_follows_the_answers_before_it_and_ends_the_connection() -> None:
    gates = Gates()
    wire = Wire(gates)
    wire.receive(get("/1") + b"GET / HTTP/1.1\r\n\r\n")
    await settle()
    assert wire.written == b""
    gates.open(b"/1")
    await settle()
    (first, second) = wire.responses()
    assert (first[0], second[0]) == (200, 400)
    assert second[1][b"connection"] == b"close"
    assert wire.half_closed
    wire.receive(get("/2"))
    assert len(wire.endpoint.heads) == 1


async def test_after_a_refusal_the_rest_is_read_and_dropped_for_a_moment() -> None:
    wire = Wire(limits=Limits(body_bytes=10))
    wire.receive(post(b"x" * 50))
    assert [status for status, _, _ in wire.responses()] == [413]
    assert not wire.closed
    wire.receive(b"x" * 1000)
    wire.pass_time(1)
    assert not wire.closed
    wire.pass_time(2)
    assert wire.aborted


async def test_a_refusal_is_said_once_the_client_reads_again() -> None:
    wire = Wire()
    wire.clog(100_000)
    wire.receive(b"\0")
    assert wire.written == b""
    wire.unclog()
    assert [status for status, _, _ in wire.responses()] == [400]


# Expectations.


async def test_a_hesitant_body_is_asked_for_once() -> None:
    wire = Wire()
    request = post(b"abc", "/", "Expect: 100-continue")
    wire.receive(request[:-3])
    assert wire.written == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.receive(request[-3:-1])
    wire.receive(request[-1:])
    assert wire.written.count(b"100 Continue") == 1
    assert [body for _, _, body in wire.responses()] == [b"/ abc"]


async def test_a_body_that_came_along_is_not_asked_for() -> None:
    wire = Wire()
    wire.receive(post(b"abc", "/", "Expect: 100-continue"))
    assert b"100 Continue" not in wire.written


async def test_a_hesitant_body_is_asked_for_after_the_answer_before_it() -> None:
    gates = Gates()
    wire = Wire(gates)
    wire.receive(get("/1") + post(b"abc", "/2", "Expect: 100-continue")[:-3])
    await settle()
    assert wire.written == b""
    gates.open(b"/1")
    await settle()
    assert wire.written.endswith(b"/1HTTP/1.1 100 Continue\r\n\r\n")


# Time.


async def test_a_head_has_its_time() -> None:
    wire = Wire(limits=Limits(head_seconds=10))
    wire.receive(b"GET / HT")
    wire.pass_time(9)
    wire.receive(b"TP/1.1\r\n")
    assert wire.written == b""
    wire.pass_time(2)
    assert [status for status, _, _ in wire.responses()] == [408]


async def test_a_body_has_its_time() -> None:
    wire = Wire(limits=Limits(body_seconds=30, body_rate=1))
    wire.receive(post(b"x" * 1000)[:-900])
    wire.pass_time(29)
    assert wire.written == b""
    wire.pass_time(2)
    assert [status for status, _, _ in wire.responses()] == [408]


async def test_a_body_has_its_rate_after_a_grace() -> None:
    wire = Wire(limits=Limits(body_seconds=30, body_rate=1000))
    wire.receive(post(b"x" * 10_000)[:-9_999])
    wire.pass_time(4.9)
    assert wire.written == b""
    wire.receive(b"x" * 2000)
    wire.pass_time(1)
    wire.pass_time(1)
    assert wire.written == b""
    wire.pass_time(1)
    assert [status for status, _, _ in wire.responses()] == [408]


async def test_an_idle_connection_is_closed_without_a_word() -> None:
    wire = Wire(limits=Limits(idle_seconds=75))
    wire.receive(get())
    before = bytes(wire.written)
    wire.pass_time(74)
    assert not wire.closed
    wire.pass_time(2)
    assert wire.closed
    assert wire.written == before


async def test_a_connection_that_says_nothing_is_closed_sooner() -> None:
    wire = Wire(limits=Limits(head_seconds=10))
    wire.receive(b"\r\n")
    wire.pass_time(9)
    wire.receive(b"\r\n")
    wire.pass_time(2)
    assert wire.closed
    assert wire.written == b""


async def test_a_request_at_work_has_no_deadline_here() -> None:
    gates = Gates()
    wire = Wire(gates)
    wire.receive(get("/1") + b"GET / HT")
    await settle()
    wire.pass_time(3600)
    assert not wire.closed
    gates.open(b"/1")
    await settle()
    wire.pass_time(9)
    assert len(wire.responses()) == 1
    wire.pass_time(2)
    assert [status for status, _, _ in wire.responses()] == [200, 408]


async def test_a_client_that_reads_too_slowly_is_cut() -> None:
    wire = Wire(limits=Limits(write_seconds=30, write_buffer=1000))
    wire.receive(get())
    wire.clog(5000)
    wire.pass_time(29)
    wire.backlog = 4001
    wire.pass_time(1)
    assert not wire.aborted
    wire.pass_time(1)
    assert wire.aborted


async def test_a_client_that_reads_slowly_but_enough_is_not_cut() -> None:
    wire = Wire(limits=Limits(write_seconds=30, write_buffer=1000))
    wire.receive(get())
    wire.clog(5000)
    for _ in range(4):
        wire.pass_time(29)
        wire.backlog -= 1000
        wire.pass_time(1)
    assert not wire.aborted


async def test_a_closing_connection_whose_client_does_not_read_is_cut() -> None:
    wire = Wire(limits=Limits(write_seconds=30))
    wire.receive(get("/", "Connection: close"))
    wire.backlog = 10
    wire.pass_time(29)
    assert not wire.aborted
    wire.pass_time(2)
    assert wire.aborted


# Streams.


async def test_a_stream_is_chunked_and_the_connection_stays() -> None:
    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        sink.write(b"data: 1\n\n")
        await sink.drain()
        sink.write(b"")
        await asyncio.sleep(0)
        sink.write(b"data: 2\n\n")
        sink.end()

    wire = Wire(lambda head, body, sink: stream(sink))
    wire.receive(get() + get())
    await settle()
    await settle()
    assert [body for _, _, body in wire.responses()] == [b"data: 1\n\ndata: 2\n\n"] * 2
    assert wire.responses()[0][1][b"transfer-encoding"] == b"chunked"
    assert not wire.closed


async def test_a_stream_that_never_waits_is_one_write() -> None:
    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        assert sink.write(b"data: 1\n\n")
        assert sink.write(b"data: 2\n\n")
        sink.end()

    wire = Wire(lambda head, body, sink: stream(sink))
    wire.receive(get())
    await settle()
    assert [body for _, _, body in wire.responses()] == [b"data: 1\n\ndata: 2\n\n"]
    assert wire.writes == 1


async def test_what_was_written_before_a_wait_is_sent_before_it_ends() -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        for number, gate in enumerate(gates):
            sink.write(b"data: %d\n\n" % number)
            await gate.wait()
        sink.end()

    wire = Wire(lambda head, body, sink: stream(sink))
    wire.receive(get())
    await settle()
    assert wire.written.endswith(b"9\r\ndata: 0\n\n\r\n")
    gates[0].set()
    await settle()
    assert wire.written.endswith(b"9\r\ndata: 1\n\n\r\n")
    gates[1].set()
    await settle()
    assert wire.written.endswith(b"0\r\n\r\n")


async def test_a_stream_is_not_held_back_beyond_a_size() -> None:
    seen: list[int] = []

    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        for _ in range(5):
            sink.write(b"x" * FLUSH_BYTES)
            seen.append(len(wire.written))
        sink.end()

    wire = Wire(lambda head, body, sink: stream(sink))
    wire.receive(get())
    await settle()
    assert seen[0] == 0
    assert seen[1] > 2 * FLUSH_BYTES
    assert [body for _, _, body in wire.responses()] == [b"x" * (5 * FLUSH_BYTES)]


async def test_a_stream_in_http_1_0_ends_with_the_connection() -> None:
    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        sink.write(b"data: 1\n\n")
        sink.end()

    wire = Wire(lambda head, body, sink: stream(sink))
    wire.receive(get("/", "Connection: keep-alive", version="1.0"))
    await settle()
    assert b"chunked" not in wire.written
    assert wire.written.endswith(b"connection: close\r\n\r\ndata: 1\n\n")
    assert wire.closed


async def test_a_stream_may_outlive_the_coroutine_that_opened_it() -> None:
    sinks: list[Sink] = []

    async def follow(sink: Sink) -> None:
        sink.start(200, SSE)
        sinks.append(sink)

    wire = Wire(lambda head, body, sink: follow(sink) if head.path == b"/follow" else Answer(204))
    wire.receive(get("/follow") + get("/"))
    await settle()
    assert wire.protocol.busy
    sinks[0].write(b"data: 1\n\n")
    assert b"204" not in wire.written
    sinks[0].end()
    await settle()
    assert [status for status, _, _ in wire.responses()] == [200, 204]


async def test_a_stream_that_fails_is_cut_before_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        sink.write(b"data: 1\n\n")
        await asyncio.sleep(0)
        raise LookupError("lost")

    wire = Wire(lambda head, body, sink: stream(sink))
    wire.receive(get())
    await settle()
    assert wire.closed
    assert not wire.aborted
    assert wire.responses() == []
    assert not wire.written.endswith(b"0\r\n\r\n")
    assert "lost" in caplog.text


async def test_a_stream_of_http_1_0_that_fails_is_reset() -> None:
    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        raise LookupError("lost")

    wire = Wire(lambda head, body, sink: stream(sink))
    wire.receive(get(version="1.0"))
    await settle()
    assert wire.aborted


async def test_an_answer_after_a_stream_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def both(sink: Sink) -> Answer:
        sink.start(200, SSE)
        return Answer(200)

    wire = Wire(lambda head, body, sink: both(sink))
    wire.receive(get())
    await settle()
    assert wire.closed
    assert "no response, or with two" in caplog.text


async def test_a_sink_refuses_what_is_out_of_order() -> None:
    async def stream(sink: Sink) -> None:
        with pytest.raises(RuntimeError):
            sink.write(b"x")
        with pytest.raises(RuntimeError):
            sink.end()
        with pytest.raises(ValueError, match="control"):
            sink.start(200, ((b"a", b"b\r\nc: d"),))
        sink.start(200, ())
        with pytest.raises(RuntimeError):
            sink.start(200, ())
        sink.end()
        with pytest.raises(RuntimeError):
            sink.write(b"x")
        with pytest.raises(RuntimeError):
            sink.end()

    wire = Wire(lambda head, body, sink: stream(sink))
    wire.receive(get())
    await settle()
    assert [(status, body) for status, _, body in wire.responses()] == [(200, b"")]


async def test_a_sink_of_a_past_request_cannot_write_into_the_next_response() -> None:
    sinks: list[Sink] = []

    def keep(head: Head, body: bytes, sink: Sink) -> Answer:
        sinks.append(sink)
        return Answer(200)

    wire = Wire(keep)
    wire.receive(get())
    with pytest.raises(RuntimeError):
        sinks[0].start(200, ())
    with pytest.raises(RuntimeError):
        sinks[0].write(b"x")


async def test_drain_waits_while_the_client_does_not_read() -> None:
    steps: list[str] = []

    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        await sink.drain()
        steps.append("free")
        wire.clog(100_000)
        await sink.drain()
        steps.append("drained")
        sink.end()

    wire = Wire(lambda head, body, sink: stream(sink), Limits(write_buffer=4321))
    assert wire.high == 4321
    wire.receive(get())
    await settle()
    assert steps == ["free"]
    wire.unclog()
    await settle()
    assert steps == ["free", "drained"]
    assert len(wire.responses()) == 1


async def test_drain_raises_when_the_client_is_cut() -> None:
    caught: list[BaseException] = []

    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        wire.clog(100_000)
        try:
            await sink.drain()
        except ConnectionError as error:
            caught.append(error)

    wire = Wire(lambda head, body, sink: stream(sink), Limits(write_seconds=30))
    wire.receive(get())
    await settle()
    wire.pass_time(31)
    assert wire.aborted
    wire.lose()
    await settle()
    assert len(caught) == 1


# Leaving.


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("end_of_file", [False, True])
async def test_a_disconnect_callback_is_called_once(started: bool, end_of_file: bool) -> None:
    told: list[str] = []
    over = asyncio.Event()

    async def wait(sink: Sink) -> None:
        sink.on_gone(lambda: told.append("gone"))
        if started:
            sink.start(200, SSE)
        await over.wait()

    wire = Wire(lambda head, body, sink: wait(sink))
    wire.receive(get())
    await settle()
    if end_of_file:
        assert not wire.protocol.eof_received()
        assert told == ["gone"]
    wire.lose()
    assert told == ["gone"]
    assert not wire.connections.live
    over.set()


async def test_a_disconnect_after_the_end_of_the_response_is_not_reported() -> None:
    told: list[str] = []

    def answer(head: Head, body: bytes, sink: Sink) -> Answer:
        sink.on_gone(lambda: told.append("gone"))
        return Answer(200)

    wire = Wire(answer)
    wire.receive(get())
    wire.lose()
    assert told == []


async def test_a_callback_registered_after_the_disconnect_is_called() -> None:
    told: list[str] = []
    sinks: list[Sink] = []
    over = asyncio.Event()

    async def wait(sink: Sink) -> None:
        sinks.append(sink)
        await over.wait()

    wire = Wire(lambda head, body, sink: wait(sink))
    wire.receive(get())
    await settle()
    wire.lose()
    sinks[0].on_gone(lambda: told.append("gone"))
    await settle()
    assert told == ["gone"]
    over.set()


async def test_a_failing_callback_does_not_prevent_the_other_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    over = asyncio.Event()

    def stumble() -> None:
        raise LookupError("stumbled")

    async def wait(sink: Sink) -> None:
        sink.on_gone(stumble)
        sink.on_gone(lambda: told.append("gone"))
        await over.wait()

    wire = Wire(lambda head, body, sink: wait(sink))
    wire.receive(get())
    await settle()
    wire.lose()
    assert told == ["gone"]
    assert "stumbled" in caplog.text
    over.set()


async def test_what_is_written_to_a_client_that_left_goes_nowhere() -> None:
    gate = asyncio.Event()
    caught: list[BaseException] = []

    async def stream(sink: Sink) -> None:
        await gate.wait()
        sink.start(200, SSE)
        sink.write(b"x")
        try:
            await sink.drain()
        except ConnectionError as error:
            caught.append(error)
        sink.end()

    wire = Wire(lambda head, body, sink: stream(sink))
    wire.receive(get())
    await settle()
    wire.closed = True
    wire.lose()
    gate.set()
    await settle()
    assert wire.written == b""
    assert len(caught) == 1


@pytest.mark.parametrize("ending", ["answer", "nothing", "failure"])
async def test_however_a_call_ends_after_its_client_left_nothing_is_written(ending: str) -> None:
    gate = asyncio.Event()

    async def wait() -> Answer | None:
        await gate.wait()
        if ending == "failure":
            raise LookupError("late")
        return Answer(200) if ending == "answer" else None

    wire = Wire(lambda *_: wait())
    wire.receive(get() + get())
    await settle()
    wire.closed = True
    wire.lose()
    gate.set()
    await settle()
    assert wire.written == b""
    assert len(wire.endpoint.heads) == 1


async def test_the_rest_of_a_burst_is_dropped_when_its_client_leaves() -> None:
    wire = Wire(limits=Limits(inline_answers=2))
    wire.receive(get() * 4)
    wire.closed = True
    wire.lose()
    await settle()
    assert len(wire.endpoint.heads) == 2


async def test_a_stream_that_outlives_its_call_goes_on_and_so_does_its_connection() -> None:
    sinks: list[Sink] = []

    def script(head: Head, body: bytes, sink: Sink) -> Coroutine[Any, Any, Answer | None] | Answer:
        async def open_stream() -> None:
            sink.start(200, ())
            sinks.append(sink)

        return open_stream() if head.path == b"/stream" else Answer(200, head.path)

    wire = Wire(script)
    wire.receive(b"POST /stream HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok")
    await until(lambda: bool(sinks) and wire.written != b"")
    wire.receive(b"GET /after HTTP/1.1\r\nHost: x\r\n\r\n")
    sinks[0].write(b"late")
    sinks[0].end()
    await until(lambda: b"/after" in wire.written)
    first, second = wire.responses()
    assert first[2] == b"late"
    assert second[2] == b"/after"
