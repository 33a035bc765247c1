"""Reading a configuration costs in proportion to its length, whatever it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pegboard.config.gateway_config import read_config
from pegboard.config.source_file import read_source
from pegboard.errors import SetupError
from tests.work import grows_linearly

pytestmark = pytest.mark.same_on_every_python

TEXTS: dict[str, Callable[[int], str]] = {
    "lists": lambda size: "[" * size,
    "nothing": lambda size: "\n" * size,
    "comments": lambda size: "/* * */ // x\n" * size + "{}",
    "an open comment": lambda size: "{" + "/* *" * size,
    "keys": lambda size: json.dumps({f"key{number}": number for number in range(size)}),
    "one key": lambda size: "{" + '"a": 1, ' * size + '"b": 2}',
    "items": lambda size: json.dumps({"a": list(range(size))}),
    "a long text": lambda size: json.dumps({"a": "\\x" * size}),
    "a long number": lambda size: '{"a": ' + "1" * size + "}",
}
TOML: dict[str, Callable[[int], str]] = {
    "tables": lambda size: "".join(f"[a{number}]\nb = 1\n" for number in range(size)),
    "blank lines": lambda size: "\n \t" * size + "[a]\n",
    "a table twice": lambda size: "[b]\n" + "".join(f"[a{number}]\n" for number in range(size)) + "[b]\n",
}


def reading(path: Path, text: str, read: Callable[[Path], object]) -> Callable[[], object]:
    path.write_text(text)

    def run() -> None:
        try:
            read(path)
        except SetupError:
            pass

    return run


@pytest.mark.parametrize("kind", TEXTS)
def test_a_json_file_is_read_in_proportion_to_its_length(tmp_path: Path, kind: str) -> None:
    assert grows_linearly(lambda size: reading(tmp_path / f"{size}.json", TEXTS[kind](size), read_source), 300)


@pytest.mark.parametrize("kind", TOML)
def test_a_toml_file_is_read_in_proportion_to_its_length(tmp_path: Path, kind: str) -> None:
    assert grows_linearly(lambda size: reading(tmp_path / f"{size}.toml", TOML[kind](size), read_source), 100)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "args": ["a"], "env": {"A": "${B:-c}"}},
        {"command": "x", "args": ["${A${A"] * 4},
        {"url": "https://mcp.example.com/mcp", "headers": {"X-A": "${input:${input:"}},
        {"url": "https://[" + "a" * 50, "toolFilters": ["!" + "*" * 20, "?" * 20]},
        {"comand": "x"},
    ],
    ids=lambda entry: str(entry)[:30],
)
def test_servers_are_checked_in_proportion_to_their_number(tmp_path: Path, entry: dict[str, Any]) -> None:
    def written(size: int) -> str:
        servers = {f"s{number:04}": entry for number in range(size)}
        return json.dumps({"toolboxes": {"dev": {"description": "d", "mcpServers": servers}}})

    assert grows_linearly(
        lambda size: reading(tmp_path / f"{size}.json", written(size), lambda path: read_config(path, {})), 20
    )
