"""What holds for the repository as a whole."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("pins", ["constraints.txt", "tests/peers/mcp1.txt"])
def test_pins_are_names_and_versions_alone(pins: str) -> None:
    lines = (ROOT / pins).read_text().splitlines()

    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[A-Za-z0-9.]+", line)] == []


def test_the_npm_lock_is_by_content_and_not_by_address() -> None:
    packages = json.loads((ROOT / "tests/peers/node/package-lock.json").read_text())["packages"]
    packages.pop("")

    assert [name for name, package in packages.items() if "integrity" not in package] == []
    assert [name for name, package in packages.items() if "resolved" in package] == []
