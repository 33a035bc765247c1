"""Pins the newest versions that the requirements allow: names, versions and digests, no addresses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from environments import CONSTRAINTS, UV_PINS, Words, say, uv
from interpreters import ROOT, newest_and_oldest

MCP1 = ROOT / "tests" / "peers" / "mcp1.txt"
GROUPS = ("dev", "node", "fuzz", "audit")


def pin(installer: Path, target: Path, what: list[str], requirements: str | None = None) -> None:
    # Universal and for the oldest Python, so that one list is valid for every interpreter and platform.
    style = ["--universal", "--python-version", "3.11", "--upgrade", "--quiet"]
    # With the digests of all files of a version, because machines choose different files.
    plain = ["--no-annotate", "--no-header", "--no-emit-index-url", "--generate-hashes"]
    command: Words = [installer, "pip", "compile", *style, *plain, *what]
    done = subprocess.run(command, cwd=ROOT, input=requirements, stdout=subprocess.PIPE, text=True, check=True)
    # Constraints apply only to packages that are installed anyway, so they need no markers.
    target.write_text(re.sub(r" ; [^\\\n]*(?= \\$)", "", done.stdout, flags=re.MULTILINE))
    say(f"{target.relative_to(ROOT)}: {done.stdout.count('==')} pins")


def pin_agent(installer: Path, folder: Path) -> None:
    """Pin the packages of an agent by version: nothing of it is installed with Pegboard."""
    style = ["--universal", "--python-version", "3.11", "--upgrade", "--quiet"]
    plain = ["--no-annotate", "--no-header", "--no-emit-index-url"]
    command: Words = [
        installer,
        "pip",
        "compile",
        *style,
        *plain,
        folder / "requirements.txt",
        "-o",
        folder / "pins.txt",
    ]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    say(f"{folder.relative_to(ROOT)}: pinned")


def main() -> None:
    newest, _ = newest_and_oldest()
    installer = uv(newest)
    groups = [word for group in GROUPS for word in ("--group", group)]
    pin(installer, CONSTRAINTS, ["pyproject.toml", "--all-extras", *groups])
    pin(installer, MCP1, ["-"], "mcp<2\nmcp-proxy\nmcp-server-git\nmcp-server-time\n")
    pin(installer, UV_PINS, ["-"], "uv\n")
    for requirements in sorted((ROOT / "agent_bench" / "drivers").glob("*/requirements.txt")):
        pin_agent(installer, requirements.parent)


if __name__ == "__main__":
    main()
