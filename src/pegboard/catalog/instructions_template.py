"""Instructions for clients with parts that depend on what a caller sees."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.tools.naming import suggest

_TAG: Final = re.compile(r"(?<!\\)\{\{\s*+([^{}\n]*+)\}\}")
_ESCAPED: Final = "\\{{"
MAX_FILE_BYTES: Final = 64 * 1024
MAX_TOOLS: Final = 200
_MAX_SUMMARY: Final = 160
_SENTENCE_END: Final = re.compile(r"[.!?]\s|\n")


class InstructionsTemplate:
    """A text with tags, which are replaced for each caller.

    {{name}}                 one of the `variables`, such as the name of the server
    {{tools}}                the tools that the caller sees, one a line, with the first sentence of their descriptions
    {{tools get_*}}          those whose names match a pattern
    {{if search}}…{{end}}    only if the caller sees a tool whose name matches

    Two braces after a backslash are not a tag.
    """

    def __init__(self, text: str, variables: Collection[str], where: str = "instructions") -> None:
        self._variables = frozenset(variables)
        # Text and tags in turn.
        self._parts = _TAG.split(text)
        opened = False
        for tag in self._parts[1::2]:
            word, _, rest = tag.strip().partition(" ")
            if (word == "if") == opened and word in ("if", "end"):
                raise DeclarationError(f"{where}: {{{{{tag}}}}} is out of place: {{{{if}}}} and {{{{end}}}} alternate")
            opened = word == "if" if word in ("if", "end") else opened
            if word == "if" and not rest.strip():
                raise DeclarationError(f"{where}: {{{{if}}}} needs the name of a tool, as in {{{{if search}}}}")
            if word not in ("if", "end", "tools") and (word not in self._variables or rest):
                known = [*sorted(self._variables), "tools", "if", "end"]
                near = suggest(word, known, 1)
                hint = f"did you mean {{{{{near[0]}}}}}?" if near else f"use {', '.join(known)}"
                raise DeclarationError(f"{where}: unknown tag {{{{{tag.strip()}}}}}; {hint}")
        if opened:
            raise DeclarationError(f"{where}: an {{{{if}}}} has no {{{{end}}}}")

    @property
    def is_plain(self) -> bool:
        """Whether the text has no tags."""
        return len(self._parts) == 1

    def render(self, tools: Sequence[Mapping[str, Json]], variables: Mapping[str, str]) -> str:
        """The text for a caller that sees these definitions of tools."""
        names = [str(tool["name"]) for tool in tools]
        written: list[str] = []
        shown = True
        for index, part in enumerate(self._parts):
            word, _, rest = part.strip().partition(" ")
            pattern = rest.strip()
            if index % 2 == 0:
                written += [part.replace(_ESCAPED, "{{")] if shown else []
            elif word in ("if", "end"):
                shown = word == "end" or any(fnmatchcase(name, pattern) for name in names)
            elif shown:
                written.append(variables[word] if word != "tools" else _list_tools(tools, pattern or "*"))
        return "".join(written)


def _list_tools(tools: Sequence[Mapping[str, Json]], pattern: str) -> str:
    chosen = [tool for tool in tools if fnmatchcase(str(tool["name"]), pattern)]
    lines = [_describe(tool) for tool in chosen[:MAX_TOOLS]]
    if len(chosen) > MAX_TOOLS:
        lines.append(f"- and {len(chosen) - MAX_TOOLS} more")
    return "\n".join(lines)


def _describe(tool: Mapping[str, Json]) -> str:
    about = str(tool.get("description") or tool.get("title") or "").strip()
    end = _SENTENCE_END.search(about)
    summary = about[: end.start() + 1].strip() if end else about
    if len(summary) > _MAX_SUMMARY:
        summary = summary[: _MAX_SUMMARY - 1] + "…"
    return f"- {tool['name']}: {summary}" if summary else f"- {tool['name']}"


def read_instructions(path: Path) -> str:
    """The text of a file with instructions."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise DeclarationError(f"instructions: {path} cannot be read: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise DeclarationError(f"instructions: {path} has more than {MAX_FILE_BYTES} bytes")
    return text
