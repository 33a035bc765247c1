"""URI templates (RFC 6570): which variables a URI fills in, and the URI that values make.

Matching reads the URI once from left to right: each variable takes the characters it may have up to the next literal.
There is no backtracking, so no URI can make it slow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct

from pegboard.errors import DeclarationError

_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_VARIABLE: Final = re.compile(r"([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)(\*|:[1-9][0-9]{0,3})?")
_RESERVED: Final = ":/?#[]@!$&'()*+,;="


class _Operator(Struct, frozen=True):
    first: str
    separator: str
    named: bool
    stops: str
    safe: str


# What each operator puts first and between, whether names are written, and where a value ends when matching.
_OPERATORS: Final[Mapping[str, _Operator]] = {
    "": _Operator("", ",", named=False, stops="/?#,", safe=""),
    "+": _Operator("", ",", named=False, stops="?#", safe=_RESERVED),
    "#": _Operator("#", ",", named=False, stops="", safe=_RESERVED),
    ".": _Operator(".", ".", named=False, stops="/?#.", safe=""),
    "/": _Operator("/", "/", named=False, stops="/?#", safe=""),
    ";": _Operator(";", ";", named=True, stops="/?#;", safe=""),
    "?": _Operator("?", "&", named=True, stops="#&", safe=""),
    "&": _Operator("&", "&", named=True, stops="#&", safe=""),
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


class Template:
    """A parsed template."""

    def __init__(self, text: str, where: str = "") -> None:
        self.text = text
        self.parts: tuple[str | Expression, ...] = tuple(_parse(text, where))
        self.names = [
            variable.name for part in self.parts if isinstance(part, Expression) for variable in part.variables
        ]
        if len(set(self.names)) != len(self.names):
            raise DeclarationError(f"{where}: the template {text!r} uses a variable twice")

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables that this URI fills in; None if it is not one of the template's."""
        found: dict[str, str] = {}
        at = 0
        for index, part in enumerate(self.parts):
            if isinstance(part, str):
                if not uri.startswith(part, at):
                    return None
                at += len(part)
                continue
            after = next((later for later in self.parts[index + 1 :] if isinstance(later, str)), "")
            end = _match(part, uri, at, after, found)
            if end is None:
                return None
            at = end
        return found if at == len(uri) else None

    def expand(self, values: Mapping[str, object]) -> str:
        """The URI that these values make; a variable without a value is left out."""
        return "".join(part if isinstance(part, str) else _expand(part, values) for part in self.parts)


def is_template(uri: str) -> bool:
    """Whether there is anything to fill in."""
    return "{" in uri


def _parse(text: str, where: str) -> list[str | Expression]:
    parts: list[str | Expression] = []
    at = 0
    for found in _EXPRESSION.finditer(text):
        if found.start() > at:
            parts.append(text[at : found.start()])
        parts.append(Expression(found[1], tuple(_variable(one, text, where) for one in found[2].split(","))))
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


def _match(part: Expression, uri: str, at: int, after: str, found: dict[str, str]) -> int | None:
    operator = _OPERATORS[part.operator]
    if operator.first and not uri.startswith(operator.first, at):
        # An operator that writes its own first character writes nothing at all without values.
        return at
    at += len(operator.first)
    end = _reach(uri, at, operator.stops if len(part.variables) == 1 else operator.stops.replace(",", ""), after)
    if operator.named:
        # In a query the separators end a value, not the expression.
        end = _reach(uri, at, "#" if operator.separator == "&" else "/?#", after)
        for pair in uri[at:end].split(operator.separator):
            name, _, value = pair.partition("=")
            if name in {variable.name for variable in part.variables}:
                found[name] = unquote(value)
        return end
    text = uri[at:end]
    if len(part.variables) == 1:
        if not text and not operator.first and part.operator != "+":
            return None
        found[part.variables[0].name] = unquote(text)
        return end
    values = text.split(operator.separator)
    if len(values) > len(part.variables):
        return None
    found.update((variable.name, unquote(value)) for variable, value in zip(part.variables, values, strict=False))
    return end


def _reach(uri: str, at: int, stops: str, after: str) -> int:
    """Where a value ends: before a character it cannot have, and before the next literal."""
    end = len(uri)
    for stop in stops:
        where = uri.find(stop, at, end)
        if where >= 0:
            end = where
    if after:
        where = uri.find(after, at)
        if 0 <= where < end:
            end = where
    return end


def _expand(part: Expression, values: Mapping[str, object]) -> str:
    operator = _OPERATORS[part.operator]
    told = [
        (variable, text)
        for variable in part.variables
        if (text := _text(values.get(variable.name), variable, operator)) is not None
    ]
    if not told:
        return ""
    written = [f"{variable.name}={text}" if operator.named else text for variable, text in told]
    return operator.first + operator.separator.join(written)


def _text(value: object, variable: Variable, operator: _Operator) -> str | None:
    if value is None:
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        separator = operator.separator if variable.explode else ","
        return separator.join(quote(str(item), safe=operator.safe) for item in value)
    text = str(value)
    return quote(text if variable.prefix is None else text[: variable.prefix], safe=operator.safe)
