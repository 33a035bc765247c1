"""How long other principals wait beside a flood of one: `fairness.py [SECONDS [ROUNDS]]` prints the ratio of their p99.

Four principals call a tool about 50 times a second each, alone and then beside one principal with 50 connections that
send the next request as soon as they have a response: 50 times the share of one connection. Three resources are
contended: the event loop, where a quota limits the rate of each principal; eight threads of a tool that blocks; and
eight slots of a server behind a gateway. The load comes from processes of its own. The ratio is the median of several
rounds, since other work on the machine shows in a p99.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles

from processes import CORES, Listening, command, free_port, pin, stop

from pegboard.protocol.revisions import MODERN

CASES = {"rate": "quick", "threads": "blocking", "slots": "slow"}
OTHERS, FLOODERS, PAUSE = ("ann", "bob", "cleo", "dan"), 50, 0.02
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
ROUNDS, TARGET = 5, 2.0


def request(tool: str, token: str) -> bytes:
    params = {"name": tool, "arguments": {}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\n"
        f"Mcp-Name: {tool}\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    return head.encode() + body


async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes) -> int:
    """The status of the response to a request."""
    writer.write(message)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length or 0))
    return int(head.split()[1])


async def call_until(end: float, port: int, message: bytes, pause: float) -> tuple[list[float], int]:
    """Call until that time; returns how long each call took, and how many were rejected."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    took, rejected = list[float](), 0
    while time.monotonic() < end:
        began = time.perf_counter()
        status = await send(reader, writer, message)
        took.append(time.perf_counter() - began)
        rejected += status == 429
        if pause:
            await asyncio.sleep(pause)
    writer.close()
    return took, rejected


async def load(port: int, tool: str, seconds: float, names: list[str], pause: float) -> None:
    """The process that sends the load: prints the times and the rejections."""
    end = time.monotonic() + seconds
    found = await asyncio.gather(*(call_until(end, port, request(tool, name), pause) for name in names))
    took = [one for times, _ in found for one in times]
    print(json.dumps({"took": took, "rejected": sum(rejected for _, rejected in found)}))


def start_load(port: int, tool: str, seconds: float, names: list[str], pause: float) -> subprocess.Popen[str]:
    words = [sys.executable, str(Path(__file__)), "load", str(port), tool, str(seconds), ",".join(names), str(pause)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    pin(process.pid, CORES[1:])
    return process


def read_load(process: subprocess.Popen[str]) -> tuple[float, float, int, int]:
    """The median and p99 in milliseconds, and the numbers of calls and rejections."""
    said, _ = process.communicate(timeout=120)
    found = json.loads(said)
    cuts = quantiles(found["took"], n=100)
    return cuts[49] * 1000, cuts[98] * 1000, len(found["took"]), found["rejected"]


def measure(case: str, seconds: float, rounds: int) -> float:
    """The ratio of the p99 of others beside a flood."""
    tool, port = CASES[case], free_port()
    with Listening(case, port, command("shared_fairly.py", case, str(port))) as server:
        server.wait()
        read_load(start_load(port, tool, min(seconds, 1.0), list(OTHERS), PAUSE))
        return median(measure_round(case, port, tool, seconds) for _ in range(rounds))


def measure_round(case: str, port: int, tool: str, seconds: float) -> float:
    alone = read_load(start_load(port, tool, seconds, list(OTHERS), PAUSE))
    flood = start_load(port, tool, seconds + 1.0, ["flood"] * FLOODERS, 0.0)
    try:
        time.sleep(min(0.5, seconds))
        beside = read_load(start_load(port, tool, max(0.2, seconds - 0.5), list(OTHERS), PAUSE))
        _, _, sent, rejected = read_load(flood)
    finally:
        stop(flood)
    ratio = beside[1] / alone[1]
    print(
        f"{case:8} others alone p50 {alone[0]:6.2f} p99 {alone[1]:6.2f} ms, beside the flood p50 {beside[0]:6.2f} "
        f"p99 {beside[1]:6.2f} ms: p99 × {ratio:.2f} (flood: {sent:,} requests, {rejected:,} rejected; "
        f"others: {beside[2]:,}, {beside[3]} rejected)"
    )
    return ratio


def main() -> None:
    if sys.argv[1:2] == ["load"]:
        port, tool, duration, names, pause = sys.argv[2:]
        asyncio.run(load(int(port), tool, float(duration), names.split(","), float(pause)))
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    found = {case: measure(case, seconds, rounds) for case in CASES}
    ratios = ", ".join(f"{case} {ratio:.2f}" for case, ratio in found.items())
    print(f"p99 of others beside a flood, as a multiple of that without: {ratios}; target: at most {TARGET:g}")
    sys.exit(max(found.values()) > TARGET)


if __name__ == "__main__":
    main()
