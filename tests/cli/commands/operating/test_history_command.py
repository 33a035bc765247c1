"""`pegboard history`: the calls that a server has kept, found by filters."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path

import pytest
from msgspec import Raw

from pegboard.cli.main import main
from pegboard.limits import Limits
from pegboard.middleware.observability.call_feed import CallFeed, StoredCall, split_batches
from pegboard.stores.store_url import open_store
from tests.server_processes import PEGBOARD
from tests.waiting import HANGS

NOW = time.time()
CALLS = [
    StoredCall(at=NOW - 7200, ms=1.5, method="tools/call", name="box_notes_add", outcome="ok", lane="box/notes", principal="ann", details=Raw(b'{"sent":{"text":"Milk"}}')),
    StoredCall(at=NOW - 60, ms=2.5, method="tools/call", name="box_notes_find", outcome="failed", lane="box/notes", principal="bob", details=Raw(b'{"sent":{"text":"\\u001b[31m"}}')),
    StoredCall(at=NOW - 30, ms=3.5, method="tools/call", name="box_clock_now", outcome="ok", lane="box/clock", client="desk", repairs=1, details=Raw(b'{"sent":{}}')),
]  # fmt: skip


def add(address: str, *calls: StoredCall) -> None:
    async def publish() -> None:
        store = open_store(address, Limits())
        await store.start()
        feed = CallFeed(store.feeds, 1000, 1 << 20)
        for batch, count in split_batches(calls):
            await feed.publish(batch, count)
        await store.close()

    asyncio.run(publish())


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    address = f"sqlite:{tmp_path_factory.mktemp('history') / 'store.db'}"
    add(address, *CALLS)
    return address


def history(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["history", *words])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], ["box_notes_add", "box_notes_find", "box_clock_now"]),
        (["--tool", "*notes*"], ["box_notes_add", "box_notes_find"]),
        (["--server", "box/clock"], ["box_clock_now"]),
        (["--principal", "bob"], ["box_notes_find"]),
        (["--outcome", "failed"], ["box_notes_find"]),
        (["--since", "1h"], ["box_notes_find", "box_clock_now"]),
        (["--until", "1h"], ["box_notes_add"]),
        (["--text", "milk"], ["box_notes_add"]),
        (["-n", "1"], ["box_clock_now"]),
        (["--text", "nothing"], []),
    ],
)
def test_calls_are_found(
    address: str, filters: list[str], found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert history("--store", address, "--json", *filters) == 0
    printed, noted = capsys.readouterr()
    assert [json.loads(line)["name"] for line in printed.splitlines()] == found
    assert ("no such calls" in noted) == (not found)


def test_calls_are_printed_on_a_line_each_without_control_characters(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert history("--store", address) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[21:] for line in lines] == [
        "ann  box/notes  box_notes_add  ok  1.5 ms",
        "bob  box/notes  box_notes_find  failed  2.5 ms",
        "desk  box/clock  box_clock_now  ok  3.5 ms  1 repaired",
    ]
    assert history("--store", address, "--json") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_calls_in_memory_cannot_be_read_from_outside(capsys: pytest.CaptureFixture[str]) -> None:
    assert history("--store", "memory") == 2
    assert "use --store sqlite:PATH" in capsys.readouterr().err


@pytest.mark.process
def test_new_calls_are_followed(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'store.db'}"
    add(address, CALLS[0])
    words = [*PEGBOARD, "history", "--store", address, "--follow", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline())["name"] == "box_notes_add"
            add(address, CALLS[1])
            assert json.loads(process.stdout.readline())["name"] == "box_notes_find"
        finally:
            process.kill()
            process.wait(HANGS)
