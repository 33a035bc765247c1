"""Chooses the newest versions the requirements allow and writes them down, as names and versions alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

from environments import CONSTRAINTS, Words, say, uv
from interpreters import ROOT, newest_and_oldest

MCP1 = ROOT / "tests" / "peers" / "mcp1.txt"


def pin(installer: Path, target: Path, what: list[str], requirements: str | None = None) -> None:
    # Universal and for the oldest Python: one list holds for every interpreter and platform.
    style = ["--universal", "--python-version", "3.11", "--upgrade", "--quiet"]
    plain = ["--no-annotate", "--no-header", "--no-emit-index-url"]
    command: Words = [installer, "pip", "compile", *style, *plain, *what]
    done = subprocess.run(command, cwd=ROOT, input=requirements, stdout=subprocess.PIPE, text=True, check=True)
    # A constraint binds only what is installed anyway, so the markers say nothing more.
    target.write_text("".join(line.split(" ;")[0].rstrip() + "\n" for line in done.stdout.splitlines()))
    say(f"{target.relative_to(ROOT)}: {len(done.stdout.splitlines())} pins")


def main() -> None:
    newest, _ = newest_and_oldest()
    installer = uv(newest)
    pin(
        installer,
        CONSTRAINTS,
        ["pyproject.toml", "--all-extras", "--group", "dev", "--group", "node", "--group", "fuzz"],
    )
    pin(installer, MCP1, ["-"], "mcp<2\nmcp-proxy\nmcp-server-git\nmcp-server-time\n")


if __name__ == "__main__":
    main()
