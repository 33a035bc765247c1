"""Collects the errors of a configuration and reports them together, without secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import UNSET, UnsetType

from pegboard.call import Json
from pegboard.config.source_file import KeyPath
from pegboard.errors import SetupError
from pegboard.middleware.masking import is_secret, mask_text
from pegboard.tools.naming import counted, suggest

MIN_SECRET_LENGTH: Final = 6
"""Hiding what is shorter would ruin a text, and hide nothing."""

MAX_NAMES: Final = 40

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
    """A text that a variable was put into: its value is not shown, and may stand where a number is wanted."""

    __slots__ = ()


class UnresolvedText(ExpandedText):
    """A text whose variable is not there: that has been told, and nothing more is to be said of it."""

    __slots__ = ()


class ConfigReport:
    """Collects the mistakes and warnings about a configuration, and the secrets in it.

    Paths are those of our own format; `origins` maps the ones that another program's file writes differently.
    """

    def __init__(self, file: str, lines: dict[KeyPath, int] | None = None, *, root: str = "the file") -> None:
        self.file = file
        self.lines = lines or {}
        self.root = root
        self.origins: dict[KeyPath, KeyPath] = {}
        self.warnings: list[str] = []
        self.secrets: set[str] = set()
        self._mistakes: dict[str, int] = {}

    def add_mistake(
        self,
        place: KeyPath,
        problem: str = "",
        *,
        got: Json | UnsetType = UNSET,
        expected: str = "",
        fix: str = "",
    ) -> None:
        """Remember a mistake: what is wrong, what was there, what should be, and what to do."""
        where = self.locate(place)
        values = [] if got is UNSET else [f"got {format_value(got, where)}"]
        if expected:
            values.append(f"expected {expected}")
        parts = [part for part in (problem, ", ".join(values)) if part]
        line = self._line(where)
        told = f"{format_path(where) or self.root}{f' (line {line})' if line else ''}: {': '.join(parts)}"
        self._mistakes.setdefault(f"{told}; {fix}" if fix else told, line or 0)

    def refuse(self, text: str, place: KeyPath = ()) -> None:
        """Remember a mistake whose text is whole already."""
        self._mistakes.setdefault(text, self._line(self.locate(place)) or 0)

    def warn(self, place: KeyPath, text: str) -> None:
        self.warnings.append(f"{format_path(self.locate(place)) or self.root}: {text}")

    def locate(self, place: KeyPath) -> KeyPath:
        """The path as the file has it."""
        for length in range(len(place), 0, -1):
            origin = self.origins.get(place[:length])
            if origin is not None:
                return (*origin, *place[length:])
        return place

    def keep_secret(self, value: str) -> None:
        if len(value) >= MIN_SECRET_LENGTH:
            self.secrets.add(value)

    def shown_warnings(self) -> tuple[str, ...]:
        """The warnings as they may be shown; what is a secret is known only when all is read."""
        return tuple(redact(warning, self.secrets) for warning in self.warnings)

    @property
    def count(self) -> int:
        return len(self._mistakes)

    def raise_if_any(self) -> None:
        """SetupError with every mistake, if there is one, in the order of the file."""
        if not self._mistakes:
            return
        ordered = sorted(self._mistakes, key=self._mistakes.__getitem__)
        known = redact("\n".join(f"- {mistake}" for mistake in ordered), self.secrets)
        raise SetupError(f"{self.file} has {counted(self.count, 'mistake')}:\n{known}")

    def _line(self, place: KeyPath) -> int | None:
        """The line of a place, or of the nearest place around it that the file has."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


def describe_server(place: KeyPath) -> str:
    """How messages name the server that contains a path, `toolboxes.<toolbox>.mcpServers.<server>` and below."""
    return f"Server '{place[3]}' in toolbox '{place[1]}'" if len(place) > 3 else "The server"


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
    """A value as a message shows it: what could be a secret, or is long, by its kind alone."""
    if isinstance(value, ExpandedText):
        return "a text from a variable"
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
    """The key or name that was probably meant; else those there are."""
    names = list(known)
    near = suggest(word, names, most=2)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return (
        f"there are {', '.join(names[:MAX_NAMES])}{', …' if len(names) > MAX_NAMES else ''}"
        if names
        else "there are none"
    )


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets; the longest first, as one may be part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
