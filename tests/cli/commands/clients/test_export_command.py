"""`pegboard export`: tools for model providers, and servers for registries, clients and bundles."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import run_here

BOARD = '''
from pegboard import Board

board = Board("shop", version="1.2.0")


@board.tool
def order(item: str, count: int = 1) -> str:
    """Orders an item."""
    return item
'''


@pytest.fixture
def shop(home: Path) -> Path:
    path = Path("shop.py")
    path.write_text(BOARD)
    return path


def exported(form: str, *words: str) -> Any:
    code, out, err = run_here("export", "shop.py", "--format", form, *words)
    assert code == 0, err
    return json.loads(out)


def test_every_format_of_tools_has_its_form(shop: Path) -> None:
    (chat,) = exported("openai")
    assert (chat["type"], chat["function"]["name"], chat["function"]["strict"]) == ("function", "order", True)
    (response,) = exported("openai-responses")
    assert (response["type"], response["name"]) == ("function", "order")
    (anthropic,) = exported("anthropic")
    assert anthropic["input_schema"]["required"] == ["item"]
    (gemini,) = exported("gemini")
    assert gemini["parameters"]["properties"]["item"] == {"type": "STRING"}
    (ollama,) = exported("ollama")
    assert ollama["function"]["parameters"]["required"] == ["item"]
    (langchain,) = exported("langchain")
    assert langchain.keys() == {"name", "description", "args_schema"}
    (plain,) = exported("json-schema")
    assert plain["input"]["properties"]["count"] == {"type": "integer", "default": 1}
    (loose,) = exported("openai", "--no-strict")
    assert loose["function"]["strict"] is False
    code, out, _ = run_here("export", "shop.py", "--format", "markdown")
    assert (code, out.splitlines()[0]) == (0, "## order")


def test_the_file_for_clients_starts_the_server_and_needs_no_server(shop: Path) -> None:
    words = ["-m", "pegboard", "run", str(shop.resolve()), "--stdio"]
    entry = {"type": "stdio", "command": sys.executable, "args": words}
    assert exported("mcp.json") == {"mcpServers": {"shop": entry}}
    _, out, _ = run_here("export", "https://shop.example", "--format", "mcp.json", "--name", "till")
    assert json.loads(out) == {"mcpServers": {"till": {"type": "http", "url": "https://shop.example/mcp"}}}


def test_the_entry_of_a_registry_names_the_package(shop: Path) -> None:
    Path("pyproject.toml").write_text('[project]\nname = "shop-server"\nversion = "2.0.0"\n')
    entry = exported("server.json", "--name", "io.github.ada/shop")
    assert entry == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.ada/shop",
        "description": "The MCP server shop",
        "version": "2.0.0",
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "shop-server",
                "version": "2.0.0",
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
            }
        ],
    }


def test_a_bundle_has_the_board_a_project_and_a_manifest(shop: Path) -> None:
    assert run_here("export", "shop.py", "--format", "mcpb", "--author", "Ada")[0] == 0
    data = Path("shop.mcpb").read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.namelist() == ["manifest.json", "pyproject.toml", "shop.py"]
        manifest = json.loads(archive.read("manifest.json"))
        assert archive.read("shop.py").decode() == BOARD
    assert manifest["manifest_version"] == "0.4"
    assert manifest["server"] == {
        "type": "uv",
        "entry_point": "shop.py",
        "mcp_config": {
            "command": "uv",
            "args": ["run", "--directory", "${__dirname}", "pegboard", "run", "shop.py", "--stdio"],
        },
    }
    assert manifest["tools"] == [{"name": "order", "description": "Orders an item."}]
    assert (manifest["author"], manifest["version"]) == ({"name": "Ada"}, "1.2.0")
    code, _, err = run_here("export", "shop.py", "--format", "mcpb")
    assert code == 2
    assert "shop.mcpb exists already" in err
    assert Path("shop.mcpb").read_bytes() == data


def test_a_bundle_of_a_folder_has_its_files_without_hidden_ones(shop: Path) -> None:
    folder = Path("project")
    (folder / ".git").mkdir(parents=True)
    (folder / "__pycache__").mkdir()
    for name in (".env", ".git/config", "__pycache__/x.pyc", "data.txt"):
        (folder / name).write_text("secret")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "till.py").write_text(BOARD)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "till"\nversion = "1"\n[tool.pegboard]\nboard = "till:board"\n'
    )
    code, _, err = run_here("export", "project", "--format", "mcpb", "--output", "till.mcpb")
    assert code == 0, err
    with zipfile.ZipFile("till.mcpb") as archive:
        assert archive.namelist() == ["data.txt", "manifest.json", "pyproject.toml", "till.py"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["shop.py", "--format", "server.json"], "server.json describes a URL or a published package"),
        (["shop.py", "--format", "yaml"], "invalid choice: 'yaml'"),
        (["missing.py", "--format", "openai"], "missing.py"),
        (["shop.py", "--format", "openai", "--output", "no/such/folder"], "no/such/folder cannot be written"),
    ],
)
def test_wrong_usage_is_explained(shop: Path, words: list[str], problem: str) -> None:
    code, _, err = run_here("export", *words)
    assert code == 2
    assert problem in err
