"""Commands that install what they run: what is said when they do not start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pegboard import Client
from pegboard.errors import ServerFault
from tests.client.process_leftovers import nothing_left

FOLDER = "/home/me/.npm/_npx/0123456789abcdef"

NPM_404 = """npm error code E404
npm error 404 Not Found - GET https://r/x
npm error 404
npm error 404  'x' is not in this registry.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /l"""


def program(folder: Path, name: str, body: str) -> str:
    """A program of that name."""
    file = folder / name
    file.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("npx", "sys.exit('npm error network')", "exit code 1, saying: npm error network; the log of npm is in /home/me/.npm/_logs"),
        (
            "npx",
            f"sys.exit(\"Error: Cannot find module '{FOLDER}/node_modules/x/index.js'\")",
            f"; the install looks broken, remove it with: rm -rf {FOLDER}",
        ),
        (
            "npx",
            f"sys.exit({NPM_404!r})",
            "saying: npm error code E404 / npm error 404 Not Found - GET https://r/x / npm error 404  'x' is not in this registry.; the log",
        ),
        ("npx", "sys.exit('sh: 1: mcp-server-x: not found')", "remove it with: rm -rf /home/me/.npm/_npx"),
        ("uvx", "sys.exit('error: no such package')", "saying: error: no such package; uvx logs to stderr, add --verbose"),
        ("server", "print('fetching x', file=sys.stderr, flush=True); time.sleep(600)", "within 0.5 s, saying: fetching x"),
    ],
)  # fmt: skip
async def test_a_command_that_does_not_start_is_reported_with_its_output_and_what_to_do(
    tmp_path: Path, name: str, body: str, message: str
) -> None:
    command = [program(tmp_path, name, body), "-y", "x"]
    async with nothing_left():
        with pytest.raises(ServerFault) as failed:
            await Client(
                command, env={"HOME": "/home/me"}, connect_timeout=0.5 if name == "server" else 30
            ).__aenter__()
    assert message in str(failed.value)
