"""Collects the errors of a configuration and reports them together, without secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import UNSET, UnsetType

from pegboard.call import Json
from pegboard.config.source_file import KeyPath
from pegboard.errors import SetupError
from pegboard.middleware.observability.masking import is_secret, mask_text
from pegboard.tools.naming import counted, suggest

MIN_SECRET_LENGTH: Final = 6
"""Redacting shorter values would ruin a text, and hide nothing."""

MAX_NAMES: Final = 40

WARNING: Final = "warning: "
"""Begins the warnings among the mistakes."""

_SERVER_DEPTH: Final = 4

_HIDDEN: Final = frozenset({"env", "headers", "http_headers", "value", "default"})
_KINDS: Final = {
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


class ExpandedText(str):
    """Text that contains the value of a variable: it is not shown, and may be used as a number."""

    __slots__ = ()


class UnresolvedText(ExpandedText):
    """Text whose variable is missing: that has been reported, so further checks are silent."""

    __slots__ = ()


class ConfigReport:
    """Collects the mistakes and warnings about a configuration, and the secrets in it.

    Paths are those of our own format; `origins` maps those that another program's file writes differently, and `unread`
    are the keys of its servers that only that program understands.
    """

    def __init__(self, file: str, lines: dict[KeyPath, int] | None = None, *, root: str = "the file") -> None:
        self.file = file
        self.lines = lines or {}
        self.root = root
        self.origins: dict[KeyPath, KeyPath] = {}
        self.warnings: list[str] = []
        self.unread: dict[KeyPath, tuple[str, ...]] = {}
        self.secrets: set[str] = set()
        self._server_problems: dict[KeyPath, list[str]] = {}
        self._mistakes: dict[str, int] = {}

    def add_mistake(
        self,
        place: KeyPath,
        problem: str = "",
        *,
        got: Json | UnsetType = UNSET,
        expected: str = "",
        fix: str = "",
    ) -> UnsetType:
        """Add a mistake: the problem, the value, the expected value, and the fix. Returns UNSET: what was read."""
        where = self.locate(place)
        values = [] if got is UNSET else [f"got {format_value(got, where)}"]
        if expected:
            values.append(f"expected {expected}")
        parts = [part for part in (problem, ", ".join(values)) if part]
        line = self._line(where)
        message = f"{format_path(where) or self.root}{f' (line {line})' if line else ''}: {': '.join(parts)}"
        self._mistakes.setdefault(f"{message}; {fix}" if fix else message, line or 0)
        return UNSET

    def refuse(self, text: str, place: KeyPath = ()) -> None:
        """Add a mistake with a complete text."""
        self._mistakes.setdefault(text, self._line(self.locate(place)) or 0)

    def fail_server(self, place: KeyPath, problem: str) -> None:
        """Add a problem that concerns one server alone, at a path inside its entry: the others can be used."""
        text = f"{format_path(self.locate(place))}: {problem}"
        problems = self._server_problems.setdefault(place[:_SERVER_DEPTH], [])
        if text not in problems:
            problems.append(text)

    def problem_of(self, server: KeyPath) -> str:
        """Why the server at this path cannot be used; empty if it can."""
        return "; ".join(self._server_problems.get(server, ()))

    def warn(self, place: KeyPath, text: str) -> None:
        self.warnings.append(f"{format_path(self.locate(place)) or self.root}: {text}")

    def locate(self, place: KeyPath) -> KeyPath:
        """The path as the file has it."""
        for length in range(len(place), 0, -1):
            origin = self.origins.get(place[:length])
            if origin is not None:
                return (*origin, *place[length:])
        return place

    def describe_server(self, place: KeyPath) -> str:
        """How messages name the server at a path `toolboxes.<toolbox>.mcpServers.<server>` or below."""
        is_named = len(place) >= _SERVER_DEPTH and self.locate(place[:_SERVER_DEPTH])
        return f"Server '{place[3]}' in toolbox '{place[1]}'" if is_named else "The server"

    def keep_secret(self, value: str) -> None:
        if len(value) >= MIN_SECRET_LENGTH:
            self.secrets.add(value)

    def shown_warnings(self) -> tuple[str, ...]:
        """The warnings without secrets, which are complete only when everything has been read."""
        return tuple(redact(warning, self.secrets) for warning in self.warnings)

    @property
    def count(self) -> int:
        return len(self._mistakes)

    def raise_if_any(self) -> None:
        """Raise SetupError with all mistakes, in the order of the file, and then all warnings, if there are mistakes."""
        if not self._mistakes:
            return
        ordered = sorted(self._mistakes, key=self._mistakes.__getitem__)
        ordered += [f"{WARNING}{warning}" for warning in self.warnings]
        known = redact("\n".join(f"- {mistake}" for mistake in ordered), self.secrets)
        warnings = f" and {counted(len(self.warnings), 'warning')}" if self.warnings else ""
        raise SetupError(f"{self.file} has {counted(self.count, 'mistake')}{warnings}:\n{known}")

    def _line(self, place: KeyPath) -> int | None:
        """The line of a path, or of its nearest parent that the file has."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


def is_in_server(place: KeyPath) -> bool:
    """Whether a path is that of a server in a toolbox, or below."""
    return len(place) >= _SERVER_DEPTH and (place[0], place[2]) == ("toolboxes", "mcpServers")


def format_path(place: KeyPath) -> str:
    """`toolboxes.dev.mcpServers.fs.args[0]`."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part[:80] if part.replace("-", "").replace("_", "").isalnum() else repr(part[:80])
            text += f".{plain}" if text else plain
    return text


def format_value(value: Json, place: KeyPath = ()) -> str:
    """A value in a message; possible secrets and long values are shown by type only."""
    if isinstance(value, ExpandedText):
        return "text from a variable"
    private = any(isinstance(part, str) and (part in _HIDDEN or is_secret(part)) for part in place)
    if private or isinstance(value, (list, dict)):
        return _KINDS.get(type(value), type(value).__name__)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str):
        shown = mask_text(value)
        return f'"{shown}"' if len(shown) <= 60 else f'"{shown[:59]}…"'
    return repr(value) if isinstance(value, int | float) else type(value).__name__


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The similar keys or names; otherwise the valid ones."""
    names = list(known)
    near = suggest(word, names, most=2)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return (
        f"use one of {', '.join(names[:MAX_NAMES])}{', …' if len(names) > MAX_NAMES else ''}"
        if names
        else "it has none"
    )


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets; the longest first, since one may contain another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
