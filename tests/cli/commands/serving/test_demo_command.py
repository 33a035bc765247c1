"""`pegboard demo`: a gateway to play with, by what it says first."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pegboard import Client
from tests.server_processes import PEGBOARD, ROOT, Child
from tests.waiting import HANGS, SOON, wait_until

pytestmark = pytest.mark.process

# Of the figures only the shape is told; everything else is as a newcomer reads it.
SAID = r"""
pegboard \d\S*   demo: http://127\.0\.0\.1:PORT/mcp
  console  http://127\.0\.0\.1:PORT/console/\?token=\S+
  3 of 3 servers ready in \d+\.\d s: 9 tools
    everyday  desk   ready  board  4 tools
              clock  ready  stdio  2 tools
    office    notes  ready  http   3 tools

  tokens   all: 9 tools, about [\d,]+ tokens
           dynamic: about [\d,]+ tokens, [\d,]+ with everyday open
           proxy: about [\d,]+ tokens, \d+\.\d% less than all
  MCP      http://127\.0\.0\.1:PORT/mcp
           http://127\.0\.0\.1:PORT/toolboxes/everyday/mcp
           http://127\.0\.0\.1:PORT/toolboxes/office/mcp
  try      \S+ list http://127\.0\.0\.1:PORT/mcp
  add to   claude mcp add --transport http demo http://127\.0\.0\.1:PORT/mcp
  call     \S+ call http://127\.0\.0\.1:PORT/mcp everyday__desk__calculate a=2 b=3
  sloppy   \S+ call http://127\.0\.0\.1:PORT/mcp everyday__desk__plan_trip '\{.*\}'
  stop     Ctrl\+C
""".lstrip()


@pytest.fixture(scope="module")
def demo() -> Iterator[tuple[Child, str]]:
    with Child(*PEGBOARD, "demo", "--port", "0", stdin=subprocess.DEVNULL, stdout=None) as child:
        wait_until(lambda: "Ctrl+C" in child.said() or child.process.poll() is not None, 3 * SOON)
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", child.said())
        assert found is not None, child.said()
        yield child, found[1]


def shown(child: Child, word: str) -> list[str]:
    """The words of a command that it tells to type."""
    found = re.search(rf"^  {word} +\S+ (.+)$", child.said(), re.MULTILINE)
    assert found is not None
    return shlex.split(found[1])


def run(words: list[str]) -> tuple[int, str, str]:
    done = subprocess.run([*PEGBOARD, *words], capture_output=True, text=True, timeout=SOON, check=False, cwd=ROOT)
    return done.returncode, done.stdout, done.stderr


def test_its_first_words_are_all_that_a_newcomer_needs(demo: tuple[Child, str]) -> None:
    child, port = demo
    assert re.fullmatch(SAID.replace("PORT", port), child.said()), child.said()


def test_the_commands_that_it_shows_work_as_they_stand(demo: tuple[Child, str]) -> None:
    child, _ = demo
    code, out, _ = run(shown(child, "try"))
    assert code == 0
    assert out.partition("(")[0] == "everyday__desk__calculate"
    assert len(out.splitlines()) == 9
    assert run(shown(child, "call"))[:2] == (0, "5\n")
    code, out, err = run(shown(child, "sloppy"))
    assert code == 0
    assert "Oslo" in out
    assert "repaired  " in err


async def test_each_toolbox_has_its_place_and_all_servers_answer(demo: tuple[Child, str]) -> None:
    _, port = demo
    async with Client(f"http://127.0.0.1:{port}/toolboxes/office/mcp") as client:
        assert {tool["name"].split("__")[1] for tool in await client.list_tools()} == {"notes"}
    async with Client(f"http://127.0.0.1:{port}/mcp") as client:
        assert len(await client.list_tools()) == 9


def test_it_needs_nothing_of_the_folder_it_is_started_in_and_leaves_nothing_there(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*PEGBOARD, "demo", "--port", "0"], cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "Ctrl+C" in line:
                break
        process.terminate()
        # A busy machine may have stopped it for a moment.
        assert [line for line in process.stderr if "pegboard.logs.watchdog" not in line] == []
        assert process.wait(HANGS) == 0
    finally:
        process.kill()
        process.communicate()
    assert list(tmp_path.iterdir()) == []
