"""`pegboard approvals`: lists and decides calls in the store of a server, or at its URL."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Limits, Principal
from pegboard.approvals.approval_request import ApprovalRequest
from pegboard.approvals.approval_store import Approvals
from pegboard.auth.local_user import local_user
from pegboard.cli.commands.operating.approvals_command import main
from pegboard.errors import SetupError
from pegboard.rules.rule import Approval
from pegboard.stores.store_url import open_store
from pegboard.testing import fixed_tokens
from tests.approvals.test_approval_pages import served
from tests.auth.serving import serving
from tests.server_processes import ROOT

SECONDS = 30.0
CONFIG = {
    "name": "office",
    "toolboxes": {"box": {"description": "Notes", "mcpServers": {"notes": {"command": "notes"}}}},
    "rules": [{"tools": ["box/notes/*"], "approve": "others"}],
}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "pegboard.json"
    path.write_text(json.dumps(CONFIG))
    return str(path)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'store.db'}"


def with_store(store: str, work: Any) -> Any:
    async def run() -> Any:
        opened = open_store(store, Limits())
        await opened.start()
        try:
            approvals = Approvals("office", Limits())
            approvals.use_store(opened)
            return await work(approvals)
        finally:
            await opened.close()

    return asyncio.run(run())


def add(store: str, requester: str = "ann") -> None:
    now = time.time()
    request = ApprovalRequest(
        id="4f",
        digest="d",
        requester=requester,
        client="claude",
        toolbox="box",
        server="notes",
        tool="delete",
        arguments='{\n  "name": "\\u202eold"\n}',
        approval=Approval(by="others"),
        since=now,
        expires=now + 600,
        seconds=600,
    )
    with_store(store, lambda approvals: approvals.ask(request))


def state(store: str) -> tuple[str, str, str]:
    found = with_store(store, lambda approvals: approvals.get("4f"))
    return found.state, found.decided_by, found.reason


def test_what_waits_is_listed_with_its_arguments(config: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([config, "--store", store]) == 0
    assert "No call waits for your approval" in capsys.readouterr().err
    add(store)
    assert main([config, "--store", store]) == 0
    shown = capsys.readouterr()
    assert "4f  box/notes/delete  for ann, another person has to approve it, until " in shown.out
    assert '"name": "\\u202eold"' in shown.out
    assert "box/notes/delete asked by ann" in shown.err
    assert main([config, "--store", store, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [request["id"] for request in listed["open"]] == ["4f"]


def test_a_call_is_refused_with_a_reason(config: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    add(store)
    assert main([config, "--store", store, "refuse", "4f", "--reason", "still needed"]) == 0
    assert "refused: box/notes/delete for ann" in capsys.readouterr().err
    assert state(store) == ("refused", local_user().id, "still needed")
    assert main([config, "--store", store, "refuse", "4f"]) == 1
    assert f"already refused by {local_user().id}" in capsys.readouterr().err


def test_the_user_who_made_a_call_cannot_decide_it(config: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    add(store, local_user().id)
    assert main([config, "--store", store, "refuse", "4f"]) == 1
    assert "you made this call, and another person has to decide about it" in capsys.readouterr().err


def test_a_board_in_a_file_needs_the_store_of_its_server(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    example = str(ROOT / "examples" / "approvals.py")
    with pytest.raises(SetupError, match="name the store that the server uses"):
        main([example])
    assert main([example, "--store", store]) == 0
    assert "No call waits for your approval" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["approve"], "name the request"),
        (["accept", "4f"], "invalid choice"),
        (["approve", "4f", "--store", "memory"], "a store that outlives this command"),
    ],
)
def test_wrong_usage_is_explained(
    config: str, words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "pegboard", "approvals", config, *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert process.returncode == 2
    assert problem in process.stderr


@pytest.mark.process
def test_approving_needs_a_person_at_a_terminal(config: str, store: str) -> None:
    add(store)
    command = [sys.executable, "-m", "pegboard", "approvals", config, "--store", store, "approve", "4f"]
    piped = subprocess.run(command, input="y\n", capture_output=True, text=True, timeout=SECONDS, check=False)
    assert piped.returncode == 2
    assert "a person has to read the call before it is approved" in piped.stderr
    assert state(store)[0] == "open"
    for answer, code, after in (("n\n", 1, "open"), ("y\n", 0, "approved")):
        screen, side = pty.openpty()
        process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side)
        os.close(side)
        written = b""
        try:
            while select.select([screen], [], [], SECONDS)[0]:
                try:
                    written += os.read(screen, 65536)
                except OSError:
                    break
                if written.endswith(b"[y/N] "):
                    os.write(screen, answer.encode())
            assert process.wait(SECONDS) == code, written
        finally:
            os.close(screen)
            process.kill()
            process.wait()
        assert b'"name": "\\u202eold"' in written
        assert state(store)[0] == after


async def test_with_a_url_the_principal_of_the_credentials_decides(capsys: pytest.CaptureFixture[str]) -> None:
    async with served() as notes:
        await notes.call()
        request = await notes.request()

        async def run(*words: str) -> tuple[int, str]:
            code = await asyncio.to_thread(main, [f"{notes.site.url}/mcp", *words])
            shown = capsys.readouterr()
            return code, shown.out + shown.err

        code, shown = await run()
        assert (code, 'needs credentials; add --header "Authorization: Bearer …"' in shown) == (1, True)
        as_lead, as_ann = ("--header", "Authorization: Bearer lea"), ("--header", "Authorization: Bearer ann")
        code, shown = await run(*as_lead)
        assert (code, request.id in shown) == (0, True)
        code, shown = await run("approve", request.id, *as_ann)
        assert (code, "you made this call" in shown) == (1, True)
        code, shown = await run("approve", request.id, "--json", *as_lead)
        assert (code, json.loads(shown)["state"]) == (0, "approved")
        assert await notes.call() == "deleted old"


async def test_a_server_that_cannot_be_reached_or_has_no_approvals(capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main, ["http://127.0.0.1:1/mcp"]) == 3
    async with serving(Board("plain", auth=fixed_tokens({"a": Principal("ann")}))) as site:
        assert await asyncio.to_thread(main, [site.url, "--header", "Authorization: Bearer a"]) == 1
        assert "this server has no approvals; its rules have no 'approve'" in capsys.readouterr().err
