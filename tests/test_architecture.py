"""ARCHITECTURE.md names every module and file correctly."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.same_on_every_python

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "pegboard"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()


def listed_modules() -> list[str]:
    """The modules of the index, by the folder that they stand under."""
    index = TEXT.partition("\n## All modules\n")[2]
    folder = ""
    modules = []
    for line in index.splitlines():
        if heading := re.match(r"### `(.+)/`$", line):
            folder = "" if heading[1] == "pegboard" else f"{heading[1]}/"
        elif entry := re.match(r"- `(\w+)`: \S", line):
            modules.append(f"{folder}{entry[1]}.py")
    return modules


def test_the_index_has_each_module_once() -> None:
    modules = listed_modules()
    present = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"}

    assert sorted(modules) == sorted(set(modules))
    assert present - set(modules) == set(), "add a line to ARCHITECTURE.md"
    assert set(modules) - present == set(), "remove the line from ARCHITECTURE.md"


def test_every_file_and_folder_that_the_text_names_is_there() -> None:
    files = re.findall(r"`([\w/-]+\.(?:py|md))`", TEXT)
    folders = re.findall(r"`([\w/]+)/`", TEXT.replace("`pegboard/`", ""))
    missing = [name for name in {*files, *folders} if not (SOURCE / name).exists() and not (ROOT / name).exists()]

    assert len(files) > 50
    assert missing == []


def test_module_and_class_names_occur_once_and_only_the_protocol_compares_revisions() -> None:
    printed = subprocess.run(
        [sys.executable, ROOT / "scripts" / "layout.py"], capture_output=True, text=True, check=True
    ).stdout
    counted = re.findall(
        r"^(Duplicate module names|Duplicate class names|Comparisons .+) \((\d+)\)$", printed, re.MULTILINE
    )
    assert [number for _, number in counted] == ["0", "0", "0"], printed
