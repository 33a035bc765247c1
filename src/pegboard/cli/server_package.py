"""The description of a server for a registry, `server.json`, and its bundle for clients, a `.mcpb` file."""

from __future__ import annotations

import io
import os
import re
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from pegboard.call import Json
from pegboard.errors import SetupError
from pegboard.protocol.json_values import as_object

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
MAX_FILES: Final = 1000
MAX_BYTES: Final = 64 * 1024 * 1024

_DESCRIPTION: Final = 100
_NAME: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "dist", "build", "venv"})
# The same content makes the same file.
_DATE: Final = (1980, 1, 1, 0, 0, 0)


class ServerFacts(Struct, frozen=True, kw_only=True):
    """What a server says about itself."""

    name: str
    version: str
    description: str
    tools: Sequence[Mapping[str, Json]] = ()


def read_project(folder: Path) -> Mapping[str, Any]:
    """The [project] table of a folder's pyproject.toml; empty without one."""
    path = folder / "pyproject.toml"
    if not path.is_file():
        return {}
    try:
        return as_object(tomllib.loads(path.read_text("utf-8")).get("project"))
    except (OSError, ValueError) as error:
        raise SetupError(f"{path} cannot be read: {error}") from None


def registry_entry(facts: ServerFacts, target: str, name: str | None) -> dict[str, Json]:
    """The `server.json` of a URL, or of a Python package."""
    if target.startswith(("http://", "https://")):
        host = urlsplit(target).hostname or ""
        named = name or f"{'.'.join(reversed(host.split('.')))}/{facts.name}"
        offers: dict[str, Json] = {"remotes": [{"type": "streamable-http", "url": target}]}
        version = facts.version
    else:
        folder = Path(target.partition(":")[0])
        project = read_project(folder if folder.is_dir() else folder.parent)
        if not project.get("name") or not project.get("version"):
            raise SetupError(
                "server.json describes a URL or a published package: pass a URL, or a target beside a pyproject.toml "
                "that has a name and a version"
            )
        if name is None:
            raise SetupError("--name is missing: the name in the registry, as in io.github.USER/NAME")
        named, version = name, str(project["version"])
        package = {"registryType": "pypi", "identifier": project["name"], "version": version, "runtimeHint": "uvx"}
        offers = {"packages": [{**package, "transport": {"type": "stdio"}}]}
    if not _NAME.fullmatch(named):
        raise SetupError(f"{named!r} is not a name in the registry; use --name, as in io.github.USER/NAME")
    about = facts.description or f"The MCP server {facts.name}"
    short = about if len(about) <= _DESCRIPTION else f"{about[: _DESCRIPTION - 1]}…"
    return {"$schema": SCHEMA, "name": named, "description": short, "version": version or "0.0.0", **offers}


def bundle(facts: ServerFacts, target: str, author: str) -> bytes:
    """The `.mcpb` file of a board: its files, and a manifest with which a client runs it through uv."""
    path, colon, board = target.partition(":") if not Path(target).exists() else (target, "", "")
    source = Path(path)
    if not source.exists():
        raise SetupError(f"{target}: a bundle is made of a Python file, or of a folder with a pyproject.toml")
    if source.is_dir():
        if not read_project(source):
            raise SetupError(f"{source}: a folder needs a pyproject.toml with a [project] to become a bundle")
        files, entry = dict(_files(source)), "."
    else:
        files, entry = {source.name: source.read_bytes()}, source.name
        files["pyproject.toml"] = _project_file(facts).encode()
    manifest = _manifest(facts, f"{entry}{colon}{board}", author, "pyproject.toml" if entry == "." else entry)
    files["manifest.json"] = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _manifest(facts: ServerFacts, board: str, author: str, entry: str) -> dict[str, Json]:
    run = ["run", "--directory", "${__dirname}", "pegboard", "run", board, "--stdio"]
    tools: list[Json] = [
        {"name": tool["name"], **({"description": tool["description"]} if tool.get("description") else {})}
        for tool in facts.tools
    ]
    return {
        "manifest_version": "0.4",
        "name": facts.name,
        "version": facts.version or "0.0.0",
        "description": facts.description or f"The MCP server {facts.name}",
        "author": {"name": author},
        "server": {"type": "uv", "entry_point": entry, "mcp_config": {"command": "uv", "args": run}},
        "tools": tools,
        "compatibility": {"runtimes": {"python": ">=3.11"}},
    }


def _project_file(facts: ServerFacts) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "-", facts.name).strip("-") or "server"
    return f'[project]\nname = "{name}"\nversion = "0.0.0"\nrequires-python = ">=3.11"\ndependencies = ["pegboard"]\n'


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a project, without hidden ones and what can be made again."""
    count = size = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(parent) / name
            if name.startswith(".") or path.is_symlink() or not path.is_file() or name.endswith((".pyc", ".mcpb")):
                continue
            count, size = count + 1, size + path.stat().st_size
            if count > MAX_FILES or size > MAX_BYTES:
                raise SetupError(
                    f"{folder} has more than {MAX_FILES} files or {MAX_BYTES} bytes, the limits for a bundle"
                )
            yield path.relative_to(folder).as_posix(), path.read_bytes()
