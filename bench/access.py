"""What authentication and rules cost: `access.py [SECONDS]` prints CPU µs a request, without sockets.

A request passes a connection of our server, the authentication, the endpoint and the board. The board has 1,000 tools.
The cases take turns, and their figures are medians of short spells: an anonymous call; the same with a JWT of an
issuer; with a JWT and quotas; with a JWT and 1,000 rules; and a list of 1,000 tools for 100 callers with different rights, whose lists are
cached.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from joserfc import jwk, jws

from pegboard import Auth, Board, Issuer, Quota, Quotas
from pegboard.protocol.revisions import MODERN
from pegboard.server.http.connections import Connections
from pegboard.server.http.http1_connection import Http1Connection
from pegboard.server.http_serving import make_endpoint
from pegboard.server.serving_options import resolve_options

TOOLS, CALLERS, SPELL = 1000, 100, 200
ISSUER, AUDIENCE = "https://issuer.example", "https://tools.example/mcp"
KEY = jwk.ECKey.generate_key("P-256", {"kid": "k"}, private=True)
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
JWT_TARGET = 1.25
QUOTA, QUOTA_MICROSECONDS = Quota(rate="1000000000/second", bytes="1000GB/second", calls=64), 2.0


class Pipe(asyncio.Transport):
    """A transport that counts what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 80)})
        self.last = b""

    def write(self, data: Any) -> None:
        self.last = bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Keys:
    """The connection to an issuer that publishes one key."""

    async def discover(self) -> Mapping[str, object]:
        return {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}

    async def get(self, url: str) -> Mapping[str, object]:
        return {"keys": [KEY.as_dict(private=False)]}

    async def post(self, url: str, form: Sequence[tuple[str, str]], user: str, secret: str) -> Mapping[str, object]:
        raise NotImplementedError

    async def close(self) -> None: ...


def make_board(auth: Auth | None, rules: Sequence[Mapping[str, Any]], quotas: Quotas | None = None) -> Board:
    board = Board("bench", auth=auth, rules=rules, quotas=quotas)

    async def add(a: float, b: float) -> float:
        """Adds two numbers."""
        return a + b

    for number in range(TOOLS):
        board.add(add, name=f"add_{number}")
    return board


async def connect(
    auth: Auth | None, rules: Sequence[Mapping[str, Any]], quotas: Quotas | None = None
) -> Callable[[bytes], bytes]:
    """A function that sends a request and returns the response, which is written before it returns."""
    board = make_board(auth, rules, quotas)
    if auth is not None:
        await auth.start(None, lambda _issuer: Keys())
    endpoint = make_endpoint(board, resolve_options({}, {}), None)
    pipe = Pipe()
    connection = Http1Connection(endpoint, board.limits, asyncio.get_running_loop(), Connections(board.limits))
    connection.connection_made(pipe)

    def send(request: bytes) -> bytes:
        connection.data_received(request)
        return pipe.last

    return send


def new_auth() -> Auth:
    return Auth(issuers=[Issuer(ISSUER, audience=[AUDIENCE])], public_url="https://tools.example")


def token_of(subject: str) -> str:
    now = int(time.time())
    claims = {"iss": ISSUER, "sub": subject, "aud": AUDIENCE, "exp": now + 3600, "iat": now, "jti": subject,
              "client_id": "bench", "scope": "use"}  # fmt: skip
    return jws.serialize_compact({"alg": "ES256", "kid": "k", "typ": "at+jwt"}, json.dumps(claims).encode(), KEY)


def write(method: str, params: Mapping[str, Any], token: str = "") -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}).encode()
    fields = {
        "Host": "127.0.0.1",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": method,
        **({"Mcp-Name": params["name"]} if "name" in params else {}),
        **({"Authorization": f"Bearer {token}"} if token else {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def spell(send: Callable[[bytes], bytes], requests: Sequence[bytes]) -> float:
    """CPU µs a request."""
    began = time.process_time_ns()
    for number in range(SPELL):
        send(requests[number % len(requests)])
    return (time.process_time_ns() - began) / SPELL / 1000


async def measure(seconds: float) -> dict[str, float]:
    add = {"name": "add_7", "arguments": {"a": 1, "b": 2}}
    own = [{"who": f"caller {number % CALLERS}", "allow": [f"add_{number}"]} for number in range(TOOLS)]
    rules: list[Mapping[str, Any]] = [*own, {"who": {"scope": "use"}, "allow": ["add_7"]}]
    tokens = [token_of(f"caller {number}") for number in range(CALLERS)]
    bare, known, ruled = await connect(None, ()), await connect(new_auth(), ()), await connect(new_auth(), rules)
    limited = await connect(new_auth(), (), Quotas(everyone=QUOTA))
    lists = [write("tools/list", {}, token) for token in tokens]
    cases: dict[str, tuple[Callable[[bytes], bytes], Sequence[bytes]]] = {
        "anonymous call": (bare, [write("tools/call", add)]),
        "call with a JWT": (known, [write("tools/call", add, tokens[0])]),
        "call with a JWT and quotas": (limited, [write("tools/call", add, tokens[0])]),
        "call with a JWT and rules": (ruled, [write("tools/call", add, tokens[0])]),
        "anonymous list": (bare, [write("tools/list", {})]),
        "list of 100 callers with rules": (ruled, lists),
    }
    for send, requests in cases.values():
        for request in (*requests, *requests):
            # The first request of a token waits for its verification.
            send(request)
            for pause in (0.002, 0.02, 0.2, 2.0):
                await asyncio.sleep(pause)
                if b"200 OK" in send(request)[:20]:
                    break
            else:
                raise RuntimeError(send(request)[:500])
    spells: dict[str, list[float]] = {name: [] for name in cases}
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(spells["anonymous call"]) < 5:
        for name, case in cases.items():
            spells[name].append(spell(*case))
            await asyncio.sleep(0)
    return {name: median(found) for name, found in spells.items()}


def main() -> int:
    figures = asyncio.run(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0))
    for name, figure in figures.items():
        print(f"{name:32} {figure:8.1f} µs")
    worst = max(figures["call with a JWT"], figures["call with a JWT and rules"]) / figures["anonymous call"]
    print(f"a call with a JWT, with and without rules, against an anonymous one: {worst:.2f} × (at most {JWT_TARGET})")
    quotas = figures["call with a JWT and quotas"] - figures["call with a JWT"]
    print(f"quotas for rate, bytes and calls add {quotas:.1f} µs (at most {QUOTA_MICROSECONDS:g})")
    return 0 if worst <= JWT_TARGET and quotas <= QUOTA_MICROSECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
