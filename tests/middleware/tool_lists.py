"""Tool lists as servers really send them, in several manners of writing tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pegboard import Board, Client, Description, Range


def files() -> Board:
    """Long descriptions, few arguments."""
    board = Board("files")

    @board.tool
    def read_text_file(path: str, head: int | None = None, tail: int | None = None) -> str:
        """Read the complete contents of a file from the file system as text.

        Handles various encodings and answers with a detailed error message if the file cannot be read. Use `head` to
        read only the first lines of a file, or `tail` for the last ones. Only works within allowed directories.

        Args:
            path: Where the file is, absolute or relative to the first allowed directory.
            head: If given, only this many lines from the beginning are returned.
            tail: If given, only this many lines from the end are returned.
        """
        return ""

    @board.tool
    def edit_file(path: str, edits: list[dict[str, str]], dry_run: bool = False) -> str:
        """Make line-based edits to a text file.

        Each edit replaces exact sequences of lines with new content. Returns a diff in git style that shows the changes
        made. Matching is sensitive to white space; nothing is written when one of the edits does not match.

        Args:
            path: The file to be changed.
            edits: Each has `oldText`, to be found exactly once, and `newText`.
            dry_run: Preview the changes as a diff without writing them.
        """
        return ""

    @board.tool
    def search_files(path: str, pattern: str, exclude_patterns: list[str] | None = None) -> list[str]:
        """Search recursively for files and directories whose name matches a glob pattern.

        Returns the full paths of everything that matches. Great for finding files when you do not know their exact
        location. Symbolic links are not followed.
        """
        return []

    return board


@dataclass
class Comment:
    author: str
    body: str
    created_at: datetime
    reactions: dict[str, int] = field(default_factory=dict)


@dataclass
class Issue:
    number: int
    title: str
    state: Literal["open", "closed"]
    labels: list[str]
    assignees: list[str]
    comments: list[Comment]
    milestone: str | None = None


def tracker() -> Board:
    """Nested types, output schemas, enumerations."""
    board = Board("tracker")

    @board.tool
    def list_issues(
        owner: Annotated[str, "Repository owner"],
        repo: Annotated[str, "Repository name"],
        state: Annotated[Literal["open", "closed", "all"], "Filter by state"] = "open",
        labels: Annotated[list[str] | None, "Only issues that have all of these labels"] = None,
        since: Annotated[date | None, "Only issues updated at or after this date"] = None,
        per_page: Annotated[int, Range(1, 100), Description("Results per page")] = 30,
        page: Annotated[int, Range(1, 1000), Description("Page number, starting at 1")] = 1,
    ) -> list[Issue]:
        """List the issues of a repository."""
        return []

    @board.tool
    def create_issue(owner: str, repo: str, title: str, body: str = "", labels: list[str] | None = None) -> Issue:
        """Create a new issue in a repository."""
        raise NotImplementedError

    @board.tool
    def add_comment(owner: str, repo: str, issue_number: int, body: str) -> Comment:
        """Add a comment to an issue."""
        raise NotImplementedError

    return board


def calculator() -> Board:
    """Many small tools with hardly a word."""
    board = Board("calculator")
    for name in ("add", "subtract", "multiply", "divide", "power", "modulo", "hypotenuse", "greatest_common_divisor"):

        def compute(number1: float, number2: float) -> float:
            return number1 + number2

        board.add(compute, name=name, description=f"Returns {name.replace('_', ' ')} of two numbers.")
    return board


def database() -> Board:
    """Schemas written by hand."""
    board = Board("database")
    columns = {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "columnName": {"type": "string", "pattern": "^[a-z_][a-z0-9_]{0,62}$"},
                "dataType": {"type": "string", "enum": ["bigint", "text", "jsonb", "timestamptz", "uuid", "numeric"]},
                "isNullable": {"type": "boolean", "default": True},
                "maxLength": {"type": "integer", "minimum": 1, "maximum": 10485760},
            },
            "required": ["columnName", "dataType"],
            "additionalProperties": False,
        },
    }
    for verb in ("create_table", "alter_table", "describe_table"):
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"schemaName": {"type": "string", "default": "public"}, "columns": columns},
            "required": ["columns"],
        }

        async def execute(columns: list[Any], schemaName: str = "public") -> str:  # noqa: N803 — the schema's word
            return ""

        board.add(execute, name=verb, description="Runs DDL in a transaction.", input_schema=schema)
    return board


async def listed(board: Board) -> list[dict[str, Any]]:
    async with Client(board) as client:
        return await client.list_tools()


async def tool_lists() -> Mapping[str, str]:
    """Each list as a client might hand it to a model: compact, and indented."""
    texts: dict[str, str] = {}
    for make in (files, tracker, calculator, database):
        tools = await listed(make())
        texts[f"{make.__name__}, compact"] = json.dumps({"tools": tools}, separators=(",", ":"))
        texts[f"{make.__name__}, indented"] = json.dumps({"tools": tools}, indent=2)
    return texts
