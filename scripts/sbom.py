"""Writes the software bill of materials, Pegboard and its run-time dependencies, as CycloneDX JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from environments import CONSTRAINTS, PINS, Words, build, is_current, one_at_a_time, recipe, say
from interpreters import ROOT, newest_and_oldest

FOLDER = ROOT / ".venv-sbom"
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?")
EXTRA = re.compile(r"extra\s*==\s*[\"']([^\"']+)[\"']")

Wanted = tuple[str, frozenset[str]]


def main() -> None:
    if sys.argv[1:] == ["--inside"]:
        print(json.dumps(make_bom("pegboard", "all"), indent=2))
        return
    with one_at_a_time():
        stamp = recipe(ROOT / "pyproject.toml", CONSTRAINTS)
        if not is_current(FOLDER, stamp):
            newest, _ = newest_and_oldest()
            # Only run-time dependencies, so that the bill lists exactly what is installed.
            build(FOLDER, newest, stamp, [*PINS, "--editable", ".[all]"])
    words: Words = [FOLDER / "bin" / "python", __file__, "--inside"]
    written = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    file = ROOT / "dist" / f"pegboard-{json.loads(written)['metadata']['component']['version']}.cdx.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(written)
    say(f"{file.relative_to(ROOT)}: {len(json.loads(written)['components'])} components")


def make_bom(name: str, extra: str) -> dict[str, Any]:
    """The bill of an installed distribution and of the dependencies of one of its extras."""
    edges: dict[str, set[str]] = {}
    required = {one for one, _ in _reach((name, frozenset()), edges)}
    reached = {one for one, _ in _reach((name, frozenset({extra})), edges)}
    root = distribution(name)
    components = [
        _component(distribution(one), "required" if one in required else "optional") for one in sorted(reached - {name})
    ]
    dependencies = [
        {"ref": _purl(distribution(one)), "dependsOn": sorted(_purl(distribution(other)) for other in edges[one])}
        for one in sorted(reached)
    ]
    listed = json.dumps([components, dependencies])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # The same bill always gets the same serial number.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, _purl(root) + listed)}",
        "version": 1,
        "metadata": {"component": {**_component(root, "required"), "type": "application"}},
        "components": components,
        "dependencies": dependencies,
    }


def _reach(first: Wanted, edges: dict[str, set[str]]) -> set[Wanted]:
    """All installed direct and indirect dependencies. Adds the dependencies of each one to `edges`."""
    seen: set[Wanted] = set()
    left = [first]
    while left:
        wanted = left.pop()
        if wanted in seen:
            continue
        seen.add(wanted)
        needed = list(_needs(*wanted))
        left.extend(needed)
        edges.setdefault(wanted[0], set()).update(one for one, _ in needed if one != wanted[0])
    return seen


def _needs(name: str, extras: frozenset[str]) -> Iterator[Wanted]:
    for requirement in distribution(name).requires or ():
        found = REQUIREMENT.match(requirement)
        assert found is not None, requirement
        of = EXTRA.search(found[3] or "")
        if of is not None and normalize(of[1]) not in extras:
            continue
        other = normalize(found[1])
        # A dependency that its marker excludes on this machine is not installed.
        if _is_installed(other):
            yield other, frozenset(normalize(one) for one in (found[2] or "").split(",") if one.strip())


def normalize(name: str) -> str:
    """Normalize a name the way package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _component(of: Distribution, scope: str) -> dict[str, Any]:
    purl = _purl(of)
    name = normalize(of.metadata["Name"])
    described = {"type": "library", "bom-ref": purl, "name": name, "version": of.version, "scope": scope, "purl": purl}
    licenses = _licenses(of)
    return {**described, "licenses": licenses} if licenses else described


def _purl(of: Distribution) -> str:
    return f"pkg:pypi/{normalize(of.metadata['Name'])}@{of.version}"


def _licenses(of: Distribution) -> list[dict[str, Any]]:
    if "License-Expression" in of.metadata:
        return [{"expression": of.metadata["License-Expression"]}]
    named = [one for one in of.metadata.get_all("Classifier") or () if one.startswith("License ::")]
    return [{"license": {"name": one.rpartition(" :: ")[2]}} for one in named]


if __name__ == "__main__":
    main()
