"""What is said of our own dependencies: the bill of materials, and the verdict of an audit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
PURL = re.compile(r"pkg:pypi/[a-z0-9-]+@[A-Za-z0-9.+!-]+")


@pytest.fixture(scope="module")
def bom() -> dict[str, Any]:
    words = [sys.executable, SCRIPTS / "sbom.py", "--inside"]
    written = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    made: dict[str, Any] = json.loads(written)
    return made


def test_the_bill_of_materials_has_the_shape_of_cyclonedx(bom: dict[str, Any]) -> None:
    assert (bom["bomFormat"], bom["specVersion"], bom["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bom["serialNumber"])
    root = bom["metadata"]["component"]
    assert (root["type"], root["name"]) == ("application", "pegboard")
    for component in bom["components"]:
        assert component["type"] == "library"
        assert component["bom-ref"] == component["purl"]
        assert PURL.fullmatch(component["purl"])
        assert component["scope"] in {"required", "optional"}
        for one in component.get("licenses", ()):
            assert isinstance(one.get("expression") or one["license"]["name"], str)
    refs = [root["bom-ref"], *(component["bom-ref"] for component in bom["components"])]
    assert len(set(refs)) == len(refs)
    assert sorted(one["ref"] for one in bom["dependencies"]) == sorted(refs)
    assert {ref for one in bom["dependencies"] for ref in one["dependsOn"]} <= set(refs)


def test_the_bill_lists_what_is_needed_at_run_time_and_nothing_else(bom: dict[str, Any]) -> None:
    scopes = {component["name"]: component["scope"] for component in bom["components"]}
    core = {"msgspec", "jsonschema-rs", "docstring-parser", "httptools", "websockets", "uvloop"}
    assert {name for name, scope in scopes.items() if scope == "required"} >= core
    assert {"cryptography", "redis"} <= {name for name, scope in scopes.items() if scope == "optional"}
    assert scopes.keys().isdisjoint({"pytest", "ruff", "mypy", "hypothesis", "fastmcp"})


def test_the_bill_is_the_same_each_time(bom: dict[str, Any]) -> None:
    words = [sys.executable, SCRIPTS / "sbom.py", "--inside"]
    assert json.loads(subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout) == bom


SAFE = {"name": "a", "version": "1", "vulns": []}
AFFECTED = {"name": "b", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
SKIPPED = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([SAFE], 0, "1 packages, 0 with"),
        ([SAFE, AFFECTED, SKIPPED], 1, "PYSEC-1, fixed in 2"),
        ([SAFE, SKIPPED], 2, "c: NOT AUDITED"),
        ([SKIPPED], 2, "NOT AUDITED: no package could be looked up"),
        ([], 2, "NOT AUDITED: no package could be looked up"),
    ],
)
def test_a_package_that_could_not_be_looked_up_is_not_called_safe(
    found: list[dict[str, Any]], code: int, said: str
) -> None:
    judge = f"import sys, pathlib, audit; sys.exit(audit.judge(pathlib.Path('pins'), {found!r}, 'no network'))"
    done = subprocess.run([sys.executable, "-c", judge], check=False, cwd=SCRIPTS, capture_output=True, text=True)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
