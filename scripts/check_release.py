"""Checks that a release tag, the version of the package and the top of the changelog agree."""

from __future__ import annotations

import ast
import re
import sys

from interpreters import ROOT


def version() -> str:
    """The version, read without importing the package: a release may be checked before anything is installed."""
    for node in ast.parse((ROOT / "src" / "pegboard" / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
            return str(ast.literal_eval(node.value))
    sys.exit("src/pegboard/__init__.py does not assign __version__")


def problems(tag: str, current: str, changelog: str) -> list[str]:
    """What keeps `tag` from being released, in words; nothing if it may be."""
    found = []
    if tag != f"v{current}":
        found.append(f"the tag is {tag}, but the version is {current}: tag v{current}, or change __version__")
    newest = re.search(r"^## (\S+) — (.+)$", changelog, re.MULTILINE)
    if newest is None or newest[1] != current:
        found.append(f"CHANGELOG.md does not begin with {current}: add its section")
    elif not re.fullmatch(r"\d{4}-\d{2}-\d{2}", newest[2]):
        found.append(f"CHANGELOG.md dates {current} {newest[2]!r}: write the day of the release as YYYY-MM-DD")
    return found


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: check_release.py TAG")
    if found := problems(sys.argv[1], version(), (ROOT / "CHANGELOG.md").read_text()):
        sys.exit("Not released:\n" + "\n".join(f"- {problem}" for problem in found))


if __name__ == "__main__":
    main()
