"""Mutated requests, read by us and by foreign parsers: the same bytes are the same requests, or we refuse.

We may be stricter than a judge, never looser: what we accept, a judge that accepts it must see in the same way, and what a
judge refuses although we accept it is one of the harmless differences named in EXPLAINED.
"""

from __future__ import annotations

import base64
import json
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h11
import pytest

from pegboard.limits import Limits
from pegboard.server.http.request_reader import ENDED, LISTS, RequestReader
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here

HERE = Path(__file__).parent
NODE = HERE.parents[2] / ".peers" / "bin" / "node"


class Seen(NamedTuple):
    """One request, as a parser saw it."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Verdict(NamedTuple):
    """All requests of a connection, whether the rest was refused, and whether the connection was left for good."""

    seen: list[Seen]
    refused: bool
    ended: bool


def fold(pairs: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Fields as we tell them: the first value of each, without blanks around."""
    first: dict[str, str] = {}
    for name, value in pairs:
        first.setdefault(name.lower(), value.strip(" \t"))
    if "transfer-encoding" in first:
        # Codings are case-insensitive, and h11 says so.
        first["transfer-encoding"] = first["transfer-encoding"].lower()
    return tuple(sorted(first.items()))


def tidy(target: str) -> str:
    """A target as we tell it: an empty query is no query."""
    path, _, query = target.partition("?")
    return f"{path}?{query}" if query else path


def ours(data: bytes) -> Verdict:
    reader = RequestReader(Limits(pipelined=1_000_000))
    reader.feed(data)
    seen = []
    for one in reader.ready:
        target = one.head.path + (b"?" + one.head.query if one.head.query else b"")
        pairs = []
        for name, value in one.head.headers.items():
            first = value.split(b", ")[0] if name in LISTS and name in one.head.repeated else value
            pairs.append((name.decode("latin-1"), first.decode("latin-1")))
        seen.append(Seen(one.head.method.decode(), target.decode(), fold(pairs), one.body))
    return Verdict(seen, reader.refusal is not None, reader.stage == ENDED)


def by_h11(data: bytes) -> Verdict:
    seen: list[Seen] = []
    # The one liberty we take with what it sees: it knows no blank lines before a request line.
    while data := data.lstrip(b"\r\n"):
        server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        server.receive_data(data)
        head: Any = None
        body = bytearray()
        try:
            while not isinstance(event := server.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    return Verdict(seen, False, False)
                if isinstance(event, h11.Request):
                    head = event
                else:
                    body += event.data
        except h11.RemoteProtocolError:
            return Verdict(seen, True, True)
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers]
        seen.append(Seen(head.method.decode(), tidy(head.target.decode("latin-1")), fold(pairs), bytes(body)))
        if server.their_state is h11.MUST_CLOSE:
            return Verdict(seen, False, True)
        data = server.trailing_data[0]
    return Verdict(seen, False, False)


def by_node(cases: list[bytes]) -> Iterator[Verdict]:
    assert NODE.exists(), "Node's parser is one of the judges: run `make setup`"
    lines = "".join(json.dumps(base64.b64encode(case).decode()) + "\n" for case in cases)
    ran = subprocess.run([NODE, HERE / "node_requests.mjs"], input=lines, capture_output=True, text=True, check=True)
    for line in ran.stdout.removesuffix("\n").split("\n"):
        answer = json.loads(line)
        seen = [
            Seen(
                one["method"],
                tidy(one["target"]),
                fold(list(zip(one["headers"][::2], one["headers"][1::2], strict=True))),
                base64.b64decode(one["body"]),
            )
            for one in answer["seen"]
        ]
        yield Verdict(seen, answer["refused"], answer["ended"])


# What we read and a judge does not, by judge; in none of these can two readers differ about where a request ends.
EXPLAINED: dict[str, dict[str, Callable[[bytes], object]]] = {
    "h11": {
        "more than one space in a request line": lambda data: re.search(rb"[A-Z]+  |  +HTTP/1", data),
        "a length of more than twenty digits": lambda data: re.search(rb"[\n: \t][0-9a-fA-F]{21,}", data),
    },
    "Node": {
        "what comes after an upgrade that was declined": lambda data: re.search(rb"(?i)upgrade:", data),
    },
}


def compare(judge: str, data: bytes, us: Verdict, them: Verdict) -> str | None:
    """What is wrong with our reading of these bytes, if anything."""
    for number, (mine, theirs) in enumerate(zip(us.seen, them.seen, strict=False)):
        if mine != theirs:
            return f"{judge} reads request {number} as {theirs}, we as {mine}"
    if len(us.seen) > len(them.seen) and not any(applies(data) for applies in EXPLAINED[judge].values()):
        return f"{judge} sees {len(them.seen)} requests (refused: {them.refused}), we {len(us.seen)}"
    if len(them.seen) > len(us.seen) and not us.ended:
        return f"{judge} sees {len(them.seen)} requests, we {len(us.seen)} and wait for more"
    return None


SEEDS = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /mcp?a=b HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nConnection: keep-alive\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: localhost:7332\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"jsonrpc\":\"2.0\"}",
    b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Trailer: t\r\n\r\n",
    b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
    b"DELETE /mcp HTTP/1.1\r\nHost: x\r\nMcp-Session-Id: 0123\r\nConnection: close\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
]  # fmt: skip

SCRAPS = [
    b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\0", b"\x0b", b"\x7f", b"\xff", b";", b",", b"0", b"5", b"-", b"+", b"/", b"#",
    b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"content-length:3\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n", b"transfer-encoding:\tchunked\r\n", b"Transfer-Encoding: xchunked\r\n", b"Host: y\r\n",
    b"Connection: close\r\n", b"0\r\n\r\n", b"1\r\nZ\r\n", b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.0", b"HTTP/1.1", b"HTTP/2.0",
    b"\r\n\r\n", b" chunked", b"X: y\r\n", b" folded\r\n", b"http://y/", b"*", b"0x5", b"00000000000000000000005",
]  # fmt: skip


def mutate(random_: random.Random) -> bytes:
    data = bytearray(b"".join(random_.choices(SEEDS, k=random_.randint(1, 3))))
    for _ in range(random_.choice([0, 1, 1, 1, 2, 2, 3, 5])):
        at = random_.randrange(len(data) + 1)
        if random_.random() < 0.4:
            # Line ends are where parsers differ.
            ends = [found.start() + 2 for found in re.finditer(rb"\r\n", data)] or [0]
            at = random_.choice(ends)
        match random_.randrange(5):
            case 0:
                data[at:at] = random_.choice(SCRAPS)
            case 1:
                data[at : at + random_.randint(1, 4)] = b""
            case 2:
                data[at : at + 1] = bytes([random_.randrange(256)])
            case 3:
                data[at : at + random_.randint(1, 3)] = random_.choice(SCRAPS)
            case _:
                start = random_.randrange(len(data) + 1)
                data[at:at] = data[start : start + random_.randint(1, 40)]
    return bytes(data)


def corpus(seed: int, count: int) -> list[bytes]:
    random_ = random.Random(seed)
    return [*SEEDS, b"".join(SEEDS[:5]), *(mutate(random_) for _ in range(count))]


def judge_all(cases: list[bytes], judge: str, verdicts: Iterator[Verdict]) -> None:
    wrong = []
    accepted = 0
    for data, verdict in zip(cases, verdicts, strict=True):
        us = ours(data)
        accepted += bool(us.seen)
        if problem := compare(judge, data, us, verdict):
            wrong.append(f"{data!r}: {problem}")
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:10])
    assert len(cases) // 5 < accepted < len(cases), "a corpus that is all good or all bad shows nothing"


def test_h11_sees_the_same_requests() -> None:
    cases = corpus(1, 4000)
    judge_all(cases, "h11", map(by_h11, cases))


@pytest.mark.peer
def test_node_sees_the_same_requests() -> None:
    cases = corpus(2, 2000)
    judge_all(cases, "Node", by_node(cases))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_h11_sees_the_same_requests_at_length(seed: int) -> None:
    cases = corpus(seed, 30_000)
    judge_all(cases, "h11", map(by_h11, cases))


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("seed", range(20, 30))
def test_node_sees_the_same_requests_at_length(seed: int) -> None:
    cases = corpus(seed, 10_000)
    judge_all(cases, "Node", by_node(cases))
