"""The public names: where users import them from, and what an IDE shows of them."""

from __future__ import annotations

import ast
import importlib
import re
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAZY = ("pegboard", "pegboard.client", "pegboard.gateway", "pegboard.middleware", "pegboard.testing")
PUBLIC = (*LAZY, "pegboard.errors", "pegboard.providers")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def imported_modules(path: Path) -> set[str]:
    """Every module of ours that a Python file imports, or that a document shows an import of."""
    text = path.read_text()
    if path.suffix == ".md":
        return set(re.findall(r"(?:from|import) (pegboard[\w.]*)", text))
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.partition(".")[0] == "pegboard"}


@pytest.mark.parametrize("path", [*EXAMPLES, *DOCUMENTS], ids=lambda path: path.name)
def test_examples_and_documents_import_only_from_public_modules(path: Path) -> None:
    assert imported_modules(path) - set(PUBLIC) == set()


@pytest.mark.parametrize("package", LAZY)
def test_the_stub_of_a_package_has_exactly_its_names(package: str) -> None:
    module = importlib.import_module(package)
    stub = ast.parse(resources.files(package).joinpath("__init__.pyi").read_text())
    homes = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                # Only `import X as X` re-exports a name from a stub.
                assert alias.asname == alias.name
                homes[alias.name] = str(node.module)
    assert homes == module._HOMES
    assert sorted({*homes, *({"__version__"} if package == "pegboard" else ())}) == dir(module)


@pytest.mark.parametrize("package", LAZY)
def test_a_name_that_does_not_exist_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Bord'"):
        importlib.import_module(package).Bord  # noqa: B018 — the lookup is what is tested


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_can_be_imported(package: str) -> None:
    module = importlib.import_module(package)
    assert all(getattr(module, name) is not None for name in module.__all__)
