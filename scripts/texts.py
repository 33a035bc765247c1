"""The texts that people and models read: comments, docstrings and messages of the source, paragraphs of the documents."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Text(NamedTuple):
    """A text, its line, and its kind: `comment`, `docstring`, `message` or `paragraph`."""

    line: int
    kind: str
    text: str


def read_texts(path: Path) -> list[Text]:
    """The texts of a Python file or of a document, in order."""
    source = path.read_text(encoding="utf-8")
    found = [*_comments(source), *_strings(ast.parse(source))] if path.suffix == ".py" else [*_paragraphs(source)]
    return sorted(found)


def _comments(source: str) -> Iterator[Text]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], "comment", token.string.lstrip("# "))


def _strings(tree: ast.AST) -> Iterator[Text]:
    parts: set[ast.AST] = set()
    nodes = [*ast.walk(tree)]
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            shown = [part.value if isinstance(part, ast.Constant) else "{…}" for part in node.values]
            yield Text(node.lineno, "message", "".join(map(str, shown)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield Text(node.lineno, "docstring" if node in docstrings else "message", node.value)


def _paragraphs(source: str) -> Iterator[Text]:
    lines: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if line.strip():
            lines.append(line)
        elif lines:
            yield Text(number - len(lines), "paragraph", "\n".join(lines))
            lines = []
