"""What `pegboard export` writes, read by the packages of the providers and checked with the schema of the registry.

The official registry publishes no package with the schema of `server.json`; `skillsaw` has an unchanged copy of it.
"""

from __future__ import annotations

import json
import os
import subprocess
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from pegboard.cli.server_package import SCHEMA
from tests.cli.in_process import run_here
from tests.peers.judges import DEADLINE, HERE, PYTHON

pytestmark = pytest.mark.peer

BOARD = '''
from datetime import date
from typing import Literal

from msgspec import Struct

from pegboard import Board

board = Board("travel", version="1.2.0")


class Guest(Struct):
    name: str
    age: int | None = None


@board.tool
def book(guests: list[Guest], lead: Guest, day: date, room: Literal["single", "double"] = "double", note: str | None = None) -> str:
    """Books a room.

    Args:
        day: The day of arrival.
    """
    return room


@board.tool
def echo(text: str) -> str:
    """Returns the text."""
    return text


@board.tool
def ping() -> str:
    return "pong"
'''
FORMATS = {
    "openai": ["openai"],
    "openai-loose": ["openai", "--no-strict"],
    "openai-responses": ["openai-responses"],
    "anthropic": ["anthropic"],
    "gemini": ["gemini"],
    "ollama": ["ollama"],
    "langchain": ["langchain"],
}


@pytest.fixture
def travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("travel.py")
    path.write_text(BOARD)
    return path


def export(*words: str) -> None:
    code, _, err = run_here("export", *words)
    assert code == 0, err


def test_the_package_of_every_provider_reads_its_tools_with_all_arguments(travel: Path) -> None:
    folder = Path("exports")
    folder.mkdir()
    for name, (form, *flags) in FORMATS.items():
        export("travel.py", "--format", form, *flags, "--output", f"exports/{name}.json")

    # One process for all packages: their import takes longer than the rest.
    command = [PYTHON, HERE / "exports_reader.py", folder.absolute()]
    # Settings of the user's must not send anything to LangSmith.
    env = {**os.environ, "LANGSMITH_TRACING": "false"}
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=DEADLINE)

    assert done.returncode == 0, done.stderr
    arguments = ["day", "guests", "lead", "note", "room"]
    assert json.loads(done.stdout) == dict.fromkeys(FORMATS, arguments)


def test_the_entries_of_packages_fit_the_schema_of_the_registry(travel: Path) -> None:
    Path("pyproject.toml").write_text('[project]\nname = "travel-server"\nversion = "2.0.0"\n')
    export("travel.py", "--format", "server.json", "--name", "io.github.ada/travel", "--output", "server.json")

    registry_validator().validate(json.loads(Path("server.json").read_text()))


def test_the_schema_of_the_registry_rejects_another_transport() -> None:
    remote = {"type": "streamableHttp", "url": "https://shop.example/mcp"}
    entry = {"$schema": SCHEMA, "name": "a.b/c", "description": "d", "version": "1.0.0", "remotes": [remote]}
    validator = registry_validator()

    assert not validator.is_valid(entry)
    assert validator.is_valid({**entry, "remotes": [{**remote, "type": "streamable-http"}]})


def registry_validator() -> Any:
    version = "v" + SCHEMA.split("/")[-2].replace("-", "_")
    path = distribution("skillsaw").locate_file(f"skillsaw/schemas/mcp_registry/{version}/server.schema.json")
    schema = json.loads(Path(str(path)).read_text())
    assert schema["$id"] == SCHEMA
    return jsonschema_rs.validator_for(schema)
