"""The schema in the form that the JSON Schema library is given.

Only the asserted formats are left in it, and closed objects list their names: otherwise the library does
not say which name is unexpected. A subschema that is shared or cut (`schema_cost`) is moved to the definitions, and a
reference or the keyword RECURSION stands in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from pegboard.call import Json
from pegboard.schema.cost.references import MAPS, VALUES, dialect_of, join, lookup

RECURSION: Final = "x-pegboard-recursion"
_MOVED: Final = "x-pegboard-part-"


class Prepared:
    """A schema for the library. Pointers refer to the original: `place` maps one to this schema, `origin` back."""

    __slots__ = ("_cut", "_formats", "_home", "_moved", "_numbers", "schema")

    def __init__(
        self,
        written: Mapping[str, Json],
        formats: frozenset[str],
        shared: Mapping[str, str] = {},
        cuts: Mapping[str, str] = {},
    ) -> None:
        self._formats, self._cut = formats, cuts.keys()
        self._moved = list(dict.fromkeys((*shared.values(), *cuts.values())))
        numbers = {pointer: number for number, pointer in enumerate(self._moved)}
        self._numbers = {pointer: numbers[same] for pointer, same in (*shared.items(), *cuts.items())}
        definitions = "$defs" if dialect_of(written) in (None, "2020-12", "2019-09") else "definitions"
        self._home = f"/{definitions}/{_MOVED}"
        self.schema: dict[str, Any] = self._prepare(written, "")
        if self._moved:
            moved = {f"{_MOVED}{n}": self._prepare(lookup(written, at), at) for n, at in enumerate(self._moved)}
            self.schema[definitions] = {**self.schema.get(definitions, {}), **moved}

    def place(self, pointer: str) -> str:
        """Where the subschema is that was at a pointer of the original."""
        above, below = pointer, ""
        while self._numbers and above:
            if above in self._numbers:
                return f"{self._home}{self._numbers[above]}{below}"
            above, slash, token = above.rpartition("/")
            below = f"{slash}{token}{below}"
        return pointer

    def origin(self, pointer: str) -> str:
        """The pointer in the original of a subschema here."""
        if not self._moved or not pointer.startswith(self._home):
            return pointer
        number, slash, rest = pointer.removeprefix(self._home).partition("/")
        return f"{self._moved[int(number)]}{slash}{rest}"

    def _prepare(self, part: Json, pointer: str) -> Any:
        # Computing pointers costs more than all the rest, and only moved parts need them.
        at = join if self._numbers else _nowhere
        if isinstance(part, list):
            return [self._prepare_below(inner, at(pointer, index)) for index, inner in enumerate(part)]
        if not isinstance(part, Mapping):
            return part
        kept: dict[str, Json] = {}
        for key, inner in part.items():
            if key in VALUES:
                kept[key] = inner
            elif key in MAPS and isinstance(inner, Mapping):
                kept[key] = {name: self._prepare_below(below, at(pointer, key, name)) for name, below in inner.items()}
            elif key == "$ref" and isinstance(inner, str) and self._numbers:
                kept[key] = self._redirect(inner)
            elif key != "format" or not isinstance(inner, str) or inner in self._formats:
                kept[key] = self._prepare_below(inner, at(pointer, key))
        if kept.get("additionalProperties") is False:
            kept.setdefault("properties", {})
        return kept

    def _prepare_below(self, part: Json, pointer: str) -> Any:
        number = self._numbers.get(pointer)
        if number is None:
            return self._prepare(part, pointer)
        place = f"{self._home}{number}"
        return {RECURSION: place} if pointer in self._cut else {"$ref": f"#{quote(place)}"}

    def _redirect(self, reference: str) -> str:
        if not reference.startswith("#/"):
            return reference
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in unquote(reference[2:]).split("/")]
        place = self.place(pointer := join("", *tokens))
        return reference if place == pointer else f"#{quote(place)}"


def _nowhere(_pointer: str, *_tokens: str | int) -> str:
    return "-"
