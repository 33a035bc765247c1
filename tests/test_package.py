"""The package itself: the names people type, how light it is, and that its stub tells the truth."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from importlib import resources

import pytest

import pegboard

# What people import; a change here is a change for them.
NAMES = [
    "Accepted",
    "Audio",
    "Board",
    "CancellationToken",
    "Cancelled",
    "Cardinality",
    "Client",
    "ClientCredentials",
    "Context",
    "Declined",
    "Description",
    "Elicit",
    "EnumConstraint",
    "File",
    "Gateway",
    "Header",
    "Image",
    "InvalidArguments",
    "JsonRpcMessage",
    "Limits",
    "Link",
    "MaxLength",
    "Middleware",
    "MinLength",
    "OAuth",
    "Parameter",
    "ParseError",
    "ParseWarning",
    "Pattern",
    "Range",
    "Roots",
    "Sample",
    "Tool",
    "ToolCallRequest",
    "ToolCatalog",
    "ToolConnector",
    "ToolError",
    "ToolExecutionBatch",
    "ToolExecutionContext",
    "ToolExecutionRecord",
    "ToolExecutor",
    "ToolResponse",
    "ToolResult",
    "ValueKind",
    "__version__",
    "schema_of",
    "tool",
]

HEAVY = [
    "anyio",
    "asyncio",
    "attrs",
    "docstring_parser",
    "fastapi",
    "http",
    "httptools",
    "httpx",
    "jsonschema_rs",
    "logging",
    "msgspec",
    "pydantic",
    "ssl",
    "starlette",
    "uvicorn",
    "uvloop",
    "websockets",
]


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a statement, beyond those it starts with."""
    program = f"import sys; before = set(sys.modules); {statement}; import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout))


def test_the_public_names_are_these() -> None:
    assert sorted(pegboard.__all__) == sorted(NAMES)
    assert dir(pegboard) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(pegboard, name)
    assert value is getattr(pegboard, name)
    if inspect.isclass(value):
        assert value.__name__ == name
        assert value.__doc__


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Bord'"):
        pegboard.Bord  # noqa: B018 — the look is what is tested


def test_the_package_is_typed_and_its_stub_has_exactly_its_names() -> None:
    home = resources.files("pegboard")
    assert home.joinpath("py.typed").is_file()
    stub = ast.parse(home.joinpath("__init__.pyi").read_text())
    told: dict[str, str] = {}
    for line in stub.body:
        if isinstance(line, ast.ImportFrom):
            for alias in line.names:
                # Only `import X as X` re-exports a name from a stub.
                assert alias.asname == alias.name
                told[alias.name] = str(line.module)
        elif isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            told[line.target.id] = ""
    assert sorted(told) == sorted(NAMES)
    assert {name: home for name, home in told.items() if home} == pegboard._HOMES


def test_importing_the_package_loads_next_to_nothing() -> None:
    loaded = loaded_by("import pegboard")
    assert {name for name in loaded if name.partition(".")[0] == "pegboard"} == {
        "pegboard",
        "pegboard.lazy_names",
    }
    assert not {name.partition(".")[0] for name in loaded} & set(HEAVY)


def test_a_board_loads_no_framework_and_no_model_library() -> None:
    loaded = {name.partition(".")[0] for name in loaded_by("from pegboard import Board; Board('x')")}
    assert not loaded & {
        "pydantic",
        "attrs",
        "starlette",
        "fastapi",
        "uvicorn",
        "httpx",
        "anyio",
        "uvloop",
        "websockets",
    }


def test_the_command_says_its_version_without_loading_a_server() -> None:
    loaded = loaded_by("import pegboard.cli.main")
    assert not {name.partition(".")[0] for name in loaded} & {"asyncio", "msgspec", "uvloop", "httptools", "ssl"}


def test_the_providers_of_models_are_a_public_module() -> None:
    providers = importlib.import_module("pegboard.providers")
    assert {"Provider", "ExportOptions", "FORMATS", "export"} <= set(providers.__all__)
    assert all(hasattr(providers, name) for name in providers.__all__)
