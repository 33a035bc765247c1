"""Divides the instructions of a call through a gateway among its parts and functions: `.venv/bin/python bench/parts.py [WAY …]`.

Needs valgrind, and Python 3.12 or later on Linux: the interpreter gives each function an address of its own
(PYTHONPERFSUPPORT), at which valgrind finds it. That makes calls of functions slower, so only the shares count.
`bench/instructions.py` counts the instructions.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from instructions import CONNECTIONS, TURNS, run_counted, serve_command
from processes import Listening, free_port

SHOWN = 20

# The first pattern that a function's file and name match decides.
PARTS = {
    "timers": r"malloc_trim|ctypes|watchdog|_sweep",
    "response: head, body, JSON": r"client/http/http_connection.py:(?!HttpConnection.send)|_free$|read_whole|server_messages|check_text",
    "result: checks, conversion": r"outcome|tool_result|ResultWriter",
    "answer: encoding, writing": r"_codec|:answer$|\.finish$|\.respond$|task_done",
    "request: HTTP, JSON, caller": r"server/http/|streamable_http|fast_path|sessions/",
    "task and dispatch": r"calls_in_flight|run_call|gateway_endpoint|dispatch|settled|session_exchange|exchanges",
    "arguments": r"run.py|argument_parser|repairer|validator|tools/tool.py",
    "forwarding": r"gateway/|compact$",
    "sending: deadline, retries, credentials": r"request_sender|deadline|known_tools|login/|connections/",
    "sending: encoding, connection": r"client/|has_line_break",
}


def divide(way: str) -> Counter[str]:
    """The instructions of each function, with what it calls that is not a function of Python."""
    with contextlib.ExitStack() as stack:
        counts = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "counts"
        port = free_port()
        words = ["env", "PYTHONPERFSUPPORT=1", "valgrind", "--tool=callgrind", "--instr-atstart=no"]
        words += ["--separate-threads=yes", "--separate-callers=12", f"--callgrind-out-file={counts}"]
        with Listening(way, port, [*words, *serve_command(stack, way, port, sys.executable)]) as server:
            run_counted(server, way)
            addresses = Path(f"/tmp/perf-{server.process.pid}.map")
            functions = sorted(_functions(addresses.read_text()))
            addresses.unlink()
        shares: Counter[str] = Counter()
        for context, cost in _costs(counts.with_name("counts.1-01")):
            shares[_innermost(context, functions)] += cost
    return shares


def _functions(text: str) -> Iterator[tuple[int, int, str]]:
    """The first and the last address of each function, and its file and name."""
    for line in text.splitlines():
        start, size, name = line.split(" ", 2)
        qualified, _, file = name.removeprefix("py::").partition(":")
        yield int(start, 16), int(start, 16) + int(size, 16), f"{file.rpartition('/pegboard/')[2]}:{qualified}"


def _costs(path: Path) -> Iterator[tuple[str, int]]:
    """The own costs of each function of C, with its callers."""
    names: dict[str, str] = {}
    current, is_call = "", False
    with path.open() as lines:
        for line in lines:
            named = re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line)
            if named is not None:
                if named[3]:
                    names[named[2]] = named[3]
                if named[1] == "fn":
                    current = names[named[2]]
            elif line.startswith("calls="):
                is_call = True
            elif re.match(r"[\d+*-]", line):
                if current and not is_call:
                    yield current, int(line.split()[-1])
                is_call = False


def _innermost(context: str, functions: list[tuple[int, int, str]]) -> str:
    """The function of Python that is nearest in a chain of callers."""
    for address in re.findall(r"0x([0-9a-f]+)", context):
        place = bisect.bisect(functions, (int(address, 16), sys.maxsize, "")) - 1
        if place >= 0 and int(address, 16) < functions[place][1]:
            return functions[place][2]
    return "event loop and interpreter"


def main() -> None:
    os.environ["PYTHONHASHSEED"] = "0"
    for way in sys.argv[1:] or ["hop", "hop-stdio"]:
        functions, parts = divide(way), Counter[str]()
        for function, cost in functions.items():
            part = next((part for part, pattern in PARTS.items() if re.search(pattern, function)), None)
            parts[part or "event loop and interpreter"] += cost
        # Timers run by the clock, and valgrind makes calls slow.
        total = parts.total() - parts.pop("timers", 0)
        print(f"{way}, {total // (TURNS * CONNECTIONS):,} instructions, in shares:")
        for name, cost in [*parts.most_common(), ("", 0), *functions.most_common(SHOWN)]:
            print(f"  {cost / total:6.1%}  {name}" if name else "")


if __name__ == "__main__":
    main()
