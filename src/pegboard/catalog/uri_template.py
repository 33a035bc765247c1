"""URI templates (RFC 6570): matching and expansion.

Matching reads the URI once from left to right: each variable takes the characters it may have up to the next literal,
which is not looked for in the name of a variable (`;name=value`). There is no backtracking, so the time is proportional to the lengths of template and URI.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar
from urllib.parse import quote, unquote

from msgspec import Struct

from pegboard.errors import DeclarationError

_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_VARIABLE: Final = re.compile(r"([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)(\*|:[1-9][0-9]{0,3})?")
_NAMED_VALUE: Final = re.compile(r"([^;?&=]*)=")
_NEXT_VALUE: Final = re.compile(r"[;?&]")
_RESERVED: Final = ":/?#[]@!$&'()*+,;="

URI_LENGTH: Final = 8 * 1024
"""The longest URI that is matched with templates."""
TRIES: Final = 256
"""How many templates are matched for one URI, of those with its prefix and suffix."""

_KEY: Final = 64


class _Operator(Struct, frozen=True):
    first: str
    separator: str
    named: bool
    stops: str
    safe: str
    span: str = ""
    """Where the whole expression ends, if that differs from the end of one value."""


# For each operator: its prefix and separator, whether names are written, and where a value ends in a match.
_OPERATORS: Final[Mapping[str, _Operator]] = {
    "": _Operator("", ",", named=False, stops="/?#,", safe=""),
    "+": _Operator("", ",", named=False, stops="?#", safe=_RESERVED),
    "#": _Operator("#", ",", named=False, stops="", safe=_RESERVED),
    ".": _Operator(".", ".", named=False, stops="/?#.", safe=""),
    "/": _Operator("/", "/", named=False, stops="/?#", safe=""),
    ";": _Operator(";", ";", named=True, stops="/?#;", safe="", span="/?#"),
    "?": _Operator("?", "&", named=True, stops="#&", safe="", span="#"),
    "&": _Operator("&", "&", named=True, stops="#&", safe="", span="#"),
}


class Variable(Struct, frozen=True):
    """One variable of an expression; `explode` is its `*`."""

    name: str
    explode: bool = False
    prefix: int | None = None


class Expression(Struct, frozen=True):
    """One `{…}` of a template."""

    operator: str
    variables: tuple[Variable, ...]


class _Step:
    """An expression, prepared for matching.

    `after` is the next literal, `written` the names that may be written in the URI before it.
    """

    __slots__ = ("_after", "_names", "_operator", "_ordered", "_required", "_stop", "_written")

    def __init__(self, expression: Expression, after: str, written: set[str]) -> None:
        self._operator = operator = _OPERATORS[expression.operator]
        self._after = after
        self._ordered = [variable.name for variable in expression.variables]
        self._names = frozenset(self._ordered)
        self._written = written
        if operator.named:
            written |= self._names
        self._required = not operator.first and expression.operator != "+"
        stops = operator.span or operator.stops
        if len(self._ordered) > 1:
            stops = stops.replace(operator.separator, "")
        # One search for all of them, so that no character is read twice.
        self._stop = re.compile(f"[{re.escape(stops)}]") if stops else None

    def begin(self, uri: str, at: int) -> int | None:
        """Where the values start; None if there are none.

        An operator with a prefix character writes nothing at all without values.
        """
        first = self._operator.first
        return at + len(first) if uri.startswith(first, at) else None

    def find_literal(self, uri: str, at: int) -> int:
        """Where the next literal begins, at `at` or later; -1 if nowhere."""
        after = self._after
        if not after:
            return len(uri)
        if not self._written:
            return uri.find(after, at)
        while True:
            value = _NAMED_VALUE.match(uri, at)
            if value is not None and value[1] in self._written:
                at = value.end()
            following = _NEXT_VALUE.search(uri, at)
            if following is None:
                return uri.find(after, at)
            begin = uri.find(after, at, following.start() + len(after))
            if begin >= 0:
                return begin
            at = following.end()

    def match(self, uri: str, at: int, limit: int, found: dict[str, str]) -> int | None:
        """Where the values end that start here, each added to `found`; None if they do not match.

        They end at the limit, where the next literal starts, or before a character that they cannot contain.
        """
        operator = self._operator
        stop = None if self._stop is None else self._stop.search(uri, at, limit)
        end = limit if stop is None else stop.start()
        text = uri[at:end]
        if operator.named:
            for pair in text.split(operator.separator):
                name, _, value = pair.partition("=")
                if name in self._names:
                    found[name] = unquote(value)
            return end
        if len(self._ordered) == 1:
            if not text and self._required:
                return None
            found[self._ordered[0]] = unquote(text)
            return end
        values = text.split(operator.separator)
        if len(values) > len(self._ordered):
            return None
        found.update((name, unquote(value)) for name, value in zip(self._ordered, values, strict=False))
        return end


class Template:
    """A parsed template; `prefix` and `suffix` are the literals that all its URIs start and end with."""

    def __init__(self, text: str, where: str = "") -> None:
        self.text = text
        self.parts: tuple[str | Expression, ...] = tuple(_parse(text, where))
        self.names = [
            variable.name for part in self.parts if isinstance(part, Expression) for variable in part.variables
        ]
        if len(set(self.names)) != len(self.names):
            raise DeclarationError(f"{where}: the template {text!r} uses a variable twice")
        first, last = self.parts[0] if self.parts else "", self.parts[-1] if self.parts else ""
        self.prefix = first if isinstance(first, str) else ""
        self.suffix = last if isinstance(last, str) else ""
        self._steps = _compile(self.parts)

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables in this URI; None if it does not match the template."""
        found: dict[str, str] = {}
        at = 0
        limit = -1
        for step in self._steps:
            if isinstance(step, str):
                if not uri.startswith(step, at):
                    return None
                at += len(step)
                limit = -1
                continue
            begin = step.begin(uri, at)
            if begin is None:
                continue
            # Several expressions before one literal: search for it once.
            if limit < begin:
                limit = step.find_literal(uri, begin)
                if limit < 0:
                    return None
            end = step.match(uri, begin, limit, found)
            if end is None:
                return None
            at = end
        return found if at == len(uri) else None

    def expand(self, values: Mapping[str, object]) -> str:
        """The URI for these values; a variable without a value is omitted."""
        return "".join(part if isinstance(part, str) else _expand(part, values) for part in self.parts)


def is_template(uri: str) -> bool:
    """Whether the template has variables."""
    return "{" in uri


def _parse(text: str, where: str) -> list[str | Expression]:
    parts: list[str | Expression] = []
    at = 0
    for found in _EXPRESSION.finditer(text):
        if found.start() > at:
            parts.append(text[at : found.start()])
        parts.append(Expression(found[1], tuple(_variable(variable, text, where) for variable in found[2].split(","))))
        at = found.end()
    rest = text[at:]
    if rest:
        parts.append(rest)
    if any(isinstance(part, str) and ("{" in part or "}" in part) for part in parts):
        raise DeclarationError(f"{where}: the braces of the template {text!r} do not match")
    return parts


def _variable(text: str, template: str, where: str) -> Variable:
    found = _VARIABLE.fullmatch(text)
    if found is None:
        raise DeclarationError(f"{where}: {text!r} in the template {template!r} is not a variable; write {{name}}")
    modifier = found[2]
    if modifier is None:
        return Variable(found[1])
    return Variable(found[1], explode=True) if modifier == "*" else Variable(found[1], prefix=int(modifier[1:]))


def _compile(parts: Sequence[str | Expression]) -> list[str | _Step]:
    steps: list[str | _Step] = []
    # One set for all expressions before a literal.
    after, written = "", set[str]()
    for part in reversed(parts):
        if isinstance(part, str):
            after, written = part, set()
            steps.append(part)
        else:
            steps.append(_Step(part, after, written))
    return steps[::-1]


def _expand(part: Expression, values: Mapping[str, object]) -> str:
    operator = _OPERATORS[part.operator]
    defined = [
        (variable, text)
        for variable in part.variables
        if (text := _text(values.get(variable.name), variable, operator)) is not None
    ]
    if not defined:
        return ""
    written = [f"{variable.name}={text}" if operator.named else text for variable, text in defined]
    return operator.first + operator.separator.join(written)


def _text(value: object, variable: Variable, operator: _Operator) -> str | None:
    if value is None:
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        separator = operator.separator if variable.explode else ","
        return separator.join(quote(str(item), safe=operator.safe) for item in value)
    text = str(value)
    return quote(text if variable.prefix is None else text[: variable.prefix], safe=operator.safe)


class Templated(Protocol):
    """An object with a template; without one it is never found."""

    template: Template | None


T = TypeVar("T", bound=Templated)


class TemplateIndex(Generic[T]):
    """Templates in order: if several match a URI, the first is found.

    A server may list thousands of templates, and a client may request any URI. Templates are indexed by their literal
    prefix, so only those with a prefix of the URI are considered; of these, only those whose literal suffix fits are
    matched, up to a limit.
    """

    def __init__(self, owners: Iterable[T]) -> None:
        self._by_prefix: defaultdict[str, list[tuple[int, Template, T]]] = defaultdict(list)
        for order, owner in enumerate(owners):
            if owner.template is not None:
                self._by_prefix[owner.template.prefix[:_KEY]].append((order, owner.template, owner))
        self._lengths = sorted({len(prefix) for prefix in self._by_prefix})

    def find(self, uri: str) -> tuple[T, Mapping[str, str]] | None:
        """The owner of the template that the URI matches, and the variables in it."""
        if len(uri) > URI_LENGTH:
            return None
        near = [candidate for length in self._lengths for candidate in self._by_prefix.get(uri[:length], ())]
        if len(self._lengths) > 1:
            near.sort(key=lambda candidate: candidate[0])
        tries = 0
        for _, template, owner in near:
            if not uri.startswith(template.prefix) or not uri.endswith(template.suffix):
                continue
            variables = template.match(uri)
            if variables is not None:
                return owner, variables
            tries += 1
            if tries == TRIES:
                return None
        return None
