"""Servers that are killed while they answer: every answered call is recorded, and the chains verify."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.depth import EXPLORE, deeper
from tests.middleware.audit.audit_records import SECRET, findings_of, records_of

pytestmark = [pytest.mark.process, deeper]

SERVER = Path(__file__).with_name("audited_server.py")
# 10,000 calls in `make test-long`.
LIVES, CALLS = (10, 500) if EXPLORE else (3, 300)


def request(number: int) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "note", "arguments": {"number": number}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(message).encode() + b"\n"


def answered_before_death(folder: Path, sync: str, first: int) -> set[int]:
    """The calls that a server answered before it was killed, with others on their way."""
    words = [sys.executable, str(SERVER), str(folder), sync, SECRET]
    answered: set[int] = set()
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        stdin = server.stdin

        def send() -> None:
            try:
                for number in range(first, first + 4 * CALLS):
                    stdin.write(request(number))
                stdin.flush()
            except OSError:
                return  # it was killed

        sender = threading.Thread(target=send)
        sender.start()
        try:
            for line in server.stdout:
                answered.add(json.loads(line)["id"])
                if len(answered) == CALLS:
                    os.kill(server.pid, signal.SIGKILL)
                    break
            # What it had written into the pipe before it died was sent, too.
            answered.update(json.loads(line)["id"] for line in server.stdout if line.endswith(b"\n"))
        finally:
            server.kill()
            sender.join()
            try:
                stdin.close()
            except OSError:
                pass
    return answered


@pytest.mark.parametrize("sync", ["normal", "full"])
def test_every_call_that_killed_servers_answered_is_recorded_and_the_chains_verify(tmp_path: Path, sync: str) -> None:
    folder = tmp_path / "audit"
    answered: list[set[int]] = []

    def live_and_die(server: int) -> None:
        firsts = [(server * LIVES + life) * 100_000 for life in range(LIVES)]
        answered.extend(answered_before_death(folder, sync, first) for first in firsts)

    # Two servers at a time write to one folder.
    servers = [threading.Thread(target=live_and_die, args=(server,)) for server in range(2)]
    for server in servers:
        server.start()
    for server in servers:
        server.join()
    acknowledged = set[int]().union(*answered)
    assert len(acknowledged) >= 2 * LIVES * CALLS
    recorded = Counter(int(record["request"]) for record in records_of(folder))
    assert acknowledged <= recorded.keys()
    assert set(recorded.values()) == {1}
    assert [finding for finding in findings_of(folder) if finding.kind != "note"] == []
