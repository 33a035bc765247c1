"""The package itself: its public names, and how little an import loads."""

from __future__ import annotations

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
    "Answer",
    "Assertion",
    "Audio",
    "Auth",
    "Board",
    "Caller",
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
    "Group",
    "Header",
    "HttpResponse",
    "HttpRequest",
    "Image",
    "InvalidArguments",
    "InvalidParams",
    "Introspection",
    "Issuer",
    "JsonRpcMessage",
    "Limits",
    "Link",
    "MaxLength",
    "Middleware",
    "MinLength",
    "NestedResult",
    "NextAction",
    "OAuth",
    "Parameter",
    "ParseError",
    "ParseWarning",
    "Pattern",
    "PegboardError",
    "Principal",
    "Quota",
    "Quotas",
    "Range",
    "Refusal",
    "Request",
    "Root",
    "Roots",
    "Sample",
    "Sampled",
    "SignInClient",
    "Tool",
    "ToolCallRequest",
    "ToolCatalog",
    "ToolConnector",
    "ToolError",
    "ToolExecutionBatch",
    "ToolExecutionContext",
    "ToolExecutionRecord",
    "ToolExecutor",
    "ToolName",
    "ToolResponse",
    "ToolResult",
    "TrustedProxy",
    "ValueKind",
    "__version__",
    "join_name",
    "parse_name",
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
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
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


def test_the_package_is_typed() -> None:
    assert resources.files("pegboard").joinpath("py.typed").is_file()


def test_importing_the_package_loads_next_to_nothing() -> None:
    loaded = loaded_by("import pegboard")
    assert {name for name in loaded if name.partition(".")[0] == "pegboard"} == {
        "pegboard",
        "pegboard.lazy_names",
    }
    assert not {name.partition(".")[0] for name in loaded} & set(HEAVY)


@pytest.mark.process
@pytest.mark.parametrize(("words", "most", "most_of_ours"), [("--help", 90, 12), ("list examples/hello.py", 410, 235)])
def test_a_command_loads_few_modules(words: str, most: int, most_of_ours: int) -> None:
    start = f"from pegboard.cli.main import main\ntry: main({words.split()!r})\nexcept SystemExit: pass"
    program = f"import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()): exec({start!r})"
    loaded = loaded_by(f"exec({program!r})")
    ours = [name for name in loaded if name.partition(".")[0] == "pegboard"]
    print(f"\npegboard {words}: {len(loaded)} modules, {len(ours)} of ours")
    assert len(loaded) <= most
    assert len(ours) <= most_of_ours


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


@pytest.mark.process
@pytest.mark.parametrize(
    "serve",
    [
        "from pegboard import Board; Board('x').run('stdio')",
        "from pegboard.cli.main import main; main(['run', 'examples/hello.py', '--stdio'])",
    ],
    ids=["board.run", "pegboard run"],
)
def test_a_server_on_stdio_loads_no_http_no_pages_no_authentication_and_no_gateway(serve: str) -> None:
    # The server takes stdout for itself.
    program = f"import os\nout = os.dup(1)\ntry: exec({serve!r})\nexcept SystemExit: pass\nsys.stdout = open(out, 'w')"
    loaded = loaded_by(f"exec({program!r})")
    parts = {".".join(name.split(".")[:3]) for name in loaded}
    assert "pegboard.server.stdio" in parts
    assert not parts & {
        "html",
        "httptools",
        "pegboard.auth.auth",
        "pegboard.client",
        "pegboard.config.rule_keys",
        "pegboard.console.console",
        "pegboard.gateway",
        "pegboard.providers.tool_export",
        "pegboard.server.asgi",
        "pegboard.server.http",
        "pegboard.server.http_serving",
        "pegboard.server.pages",
        "pegboard.server.streamable_http",
        "zipfile",
    }


def test_the_command_says_its_version_without_loading_a_server() -> None:
    loaded = loaded_by("import pegboard.cli.main")
    assert not {name.partition(".")[0] for name in loaded} & {"asyncio", "msgspec", "uvloop", "httptools", "ssl"}
