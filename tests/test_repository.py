"""What holds for the repository as a whole."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.same_on_every_python

ROOT = Path(__file__).resolve().parent.parent


PINS = ["constraints.txt", "tests/peers/mcp1.txt", "scripts/uv.txt"]
# A name, a version, and the digests of its files; no marker, no option, no address.
PIN = re.compile(r"([a-z0-9-]+)==[A-Za-z0-9.]+( \\\n    --hash=sha256:[0-9a-f]{64})+\n")


@pytest.mark.parametrize("pins", PINS)
def test_pins_are_names_versions_and_digests_alone(pins: str) -> None:
    text = (ROOT / pins).read_text()

    assert PIN.sub("", text) == ""
    names = [found[1] for found in PIN.finditer(text)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("folder", "pins"), [(".venv", PINS[0]), (".venv-oldest", PINS[0]), (".peers/mcp1", PINS[1])], ids=str
)
def test_nothing_is_installed_that_is_not_pinned(folder: str, pins: str) -> None:
    pinned = {found[1] for found in PIN.finditer((ROOT / pins).read_text())}
    installed = {
        re.sub("[-_.]+", "-", found.stem.partition("-")[0]).lower()
        for found in (ROOT / folder).glob("lib/python*/site-packages/*.dist-info")
    }

    assert installed - pinned <= {"pegboard"}


def test_the_npm_lock_is_by_content_and_not_by_address() -> None:
    packages = json.loads((ROOT / "tests/peers/node/package-lock.json").read_text())["packages"]
    packages.pop("")

    assert [name for name, package in packages.items() if "integrity" not in package] == []
    assert [name for name, package in packages.items() if "resolved" in package] == []
