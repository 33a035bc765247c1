"""The public names: where users import them from, and what an IDE shows of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from pegboard import Context

ROOT = Path(__file__).resolve().parent.parent
PUBLIC_LAZY = (
    "pegboard",
    "pegboard.client",
    "pegboard.gateway",
    "pegboard.middleware",
    "pegboard.providers",
    "pegboard.testing",
)
PUBLIC = (*PUBLIC_LAZY, "pegboard.errors")
LAZY = (
    *PUBLIC_LAZY,
    "pegboard.auth",
    "pegboard.client.http",
    "pegboard.client.transports",
    "pegboard.config",
    "pegboard.console",
    "pegboard.server",
)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


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


def public_members() -> Iterator[tuple[str, Any, Callable[..., Any] | None]]:
    """Every public class, function, method and property: its name, the object, and the function whose types count."""
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield f"{package}.{name}", value, value
            elif inspect.isclass(value):
                yield f"{package}.{name}", value, vars(value).get("__init__")
                for member, attribute in methods(value):
                    yield f"{package}.{name}.{member}", getattr(value, member), attribute


def methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods and properties of a class that this package defines, inherited ones included."""
    ours = {name: attribute for one in reversed(kind.__mro__) if is_ours(one) for name, attribute in vars(one).items()}
    for name, attribute in ours.items():
        match attribute:
            case property():
                function = attribute.fget
            case staticmethod() | classmethod():
                function = attribute.__func__
            case _:
                function = attribute
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "pegboard"


def test_every_public_class_and_method_has_a_docstring() -> None:
    assert [name for name, value, _ in public_members() if not inspect.getdoc(value)] == []


def test_every_parameter_of_a_public_method_has_a_type() -> None:
    untyped = [
        f"{name}({parameter.name})"
        for name, _, function in public_members()
        # The constructor that typing gives to protocols is not ours.
        if inspect.isfunction(function) and function.__module__ != "typing"
        for position, parameter in enumerate(inspect.signature(function).parameters.values())
        if parameter.annotation is parameter.empty and not (position == 0 and parameter.name in ("self", "cls"))
    ]
    assert untyped == []


def test_every_option_of_a_public_name_is_in_its_docstring() -> None:
    missing = [
        f"{name}({parameter})"
        for name, value, function in public_members()
        for parameter in options(value, function)
        if not re.search(rf"\b{parameter}\b", documentation(value))
    ]
    assert missing == []


def options(value: Any, function: Callable[..., Any] | None) -> list[str]:
    """The parameters of a name with several of them; not those of what our users never call."""
    fields = getattr(value, "__struct_fields__", None) if inspect.isclass(value) else None
    if fields is None:
        if function is None or function.__module__ == "typing" or isinstance(value, property) or value is Context:
            return []
        fields = [name for name in inspect.signature(function).parameters if name not in ("self", "options")]
    return [] if len(fields) < 4 else [name for name in fields if not name.startswith("_")]


def documentation(value: Any) -> str:
    """The docstring, with that of the constructor, or of the page that it refers to."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and value.__init__.__doc__:
        text += value.__init__.__doc__
    return text + "".join((ROOT / page).read_text() for page in re.findall(r"docs/[\w-]+\.md", text))


@pytest.mark.parametrize(
    ("owner", "internal"),
    [
        ("Board", "add_capabilities"),
        ("Context", "end"),
        ("Context", "resume_round"),
        ("Context", "run_on_loop"),
        ("Elicit", "question"),
        ("Gateway", "keep_task"),
        ("Middleware", "watch"),
    ],
)
def test_an_internal_method_is_not_a_public_name(owner: str, internal: str) -> None:
    assert not hasattr(getattr(importlib.import_module("pegboard"), owner), internal)
