"""Where the time of a call goes: `.venv/bin/python bench/where.py [legacy] [SECONDS]`; needs py-spy on the PATH.

py-spy samples our server while `wrk` or our own client sends calls. A sample belongs to the innermost function of ours, and
so does what that function calls in C: the write of a response to `respond`, waiting and receiving to the event loop.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import messages
from load import measure, warm_up
from processes import Server

# The first group that matches counts.
GROUPS = {
    "the system call that sends the response": r"Http1Connection\.respond ",
    "waiting for requests and receiving them": r"server/serve\.py",
    "HTTP: the head and its checks, the connection": r"server/http/|limited_connection",
    "reading the message": r"exchange/fast_path|mcp_endpoint|session_requests|sessions/|request_head",
    "dispatch, limits, the task of the call": r"calls_in_flight|run_call|execution/|eager_task",
    "arguments and the tool": r"binding/|argument_parser|board\.py",
    "writing the result": r"tool_result|protocol/|HttpExchange|SessionExchange",
}
RATE = 300


def main() -> None:
    seconds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 15)
    tool = shutil.which("py-spy")
    if tool is None:
        sys.exit("py-spy is not installed: pip install py-spy")
    with tempfile.TemporaryDirectory() as folder, Server("board.py") as server:
        server.wait()
        found = Path(folder) / "samples"
        requests = (
            messages.legacy_posts(server.port, *messages.ADD, server.open_session())
            if "legacy" in sys.argv
            else messages.modern_posts(server.port, *messages.ADD)
        )
        warm_up(server, requests, 0.5)
        words = [tool, "record", "--function", "--rate", str(RATE), "--duration", str(seconds), "--format", "raw"]
        with subprocess.Popen([*words, "--output", str(found), "--pid", str(server.process.pid)]) as spy:
            measured = measure(server, requests, seconds + 1)
            spy.wait()
        samples = found.read_text().splitlines()
    counted: Counter[str] = Counter()
    for sample in samples:
        frames, _, count = sample.rpartition(" ")
        # The watchdog waits in a thread of its own.
        if "threading.py" not in frames:
            counted[_group(frames.split(";"))] += int(count)
    total = counted.total()
    print(f"{measured.cpu_us:.1f} µs of CPU a call, {total} samples")
    for name in (*GROUPS, "the rest"):
        print(f"{name:48} {counted[name] / total:6.1%} {counted[name] / total * measured.cpu_us:6.1f} µs")


def _group(frames: list[str]) -> str:
    for name, pattern in GROUPS.items():
        if re.search(pattern, frames[-1]):
            return name
    return "the rest"


if __name__ == "__main__":
    main()
