"""Variables in a configuration: `${NAME}`, `${NAME:-default}`, and what other programs write in their own files.

    ${NAME}          the environment's; that it is not set is a mistake
    ${NAME:-text}    the same, or the text
    ${env:NAME}      as Cursor and VS Code write it
    ${input:id}      what VS Code asks a person for: PEGBOARD_INPUT_ID of the environment
    $NAME            in Gemini's files only; where it is not set it stays as it stands
    $${NAME}         the text ${NAME} itself

Names are in capitals; other words between the braces stay as they stand, for a shell may want them. What is put in is
not looked through again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from pegboard.call import Json
from pegboard.client.child import INHERITED
from pegboard.gateway.configuration.mistakes import Expanded, Missing, Notes, spell
from pegboard.gateway.configuration.source import Place

INPUT: Final = "PEGBOARD_INPUT_"

_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*\Z")
_NAMED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BRACED: Final = re.compile(r"\$\$\{|\$\{")
_ALSO_BARE: Final = re.compile(r"\$\$\{|\$\{|\$([A-Za-z_][A-Za-z0-9_]*)")


class Input(Struct, frozen=True):
    """What VS Code would ask a person for."""

    description: str = ""
    default: str | None = None


class Vocabulary(Struct, frozen=True, kw_only=True):
    """What a dialect writes besides `${NAME}`: `$NAME`, words with a fixed meaning, questions to a person."""

    bare: bool = False
    fixed: Mapping[str, str] = {}
    inputs: Mapping[str, Input] | None = None


class Variables:
    """Puts the environment into texts; what is missing becomes a mistake, what was put in a secret.

    `spared` are the places of what is not used, whose variables need not be set.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        notes: Notes,
        vocabulary: Vocabulary | None = None,
        spared: Collection[Place] = (),
    ) -> None:
        self._environ = environ
        self._notes = notes
        self._spared = spared
        self._vocabulary = vocabulary or Vocabulary()
        self._opening = _ALSO_BARE if self._vocabulary.bare else _BRACED

    def expand(self, value: Json, place: Place = ()) -> Json:
        """The same value with every variable put in: in texts at any depth, and in keys."""
        match value:
            case Missing():
                return value
            case str():
                return self._text(value, place)
            case list():
                return [self.expand(item, (*place, position)) for position, item in enumerate(value)]
            case dict():
                return self._object(value, place)
        return value

    def _object(self, value: dict[str, Json], place: Place) -> dict[str, Json]:
        expanded: dict[str, Json] = {}
        for key, item in value.items():
            here = (*place, key)
            new = str(self._text(key, here))
            if new in expanded:
                self._notes.wrong(here, "with its variables put in, this key stands twice", fix="remove one of them")
            expanded[new] = self.expand(item, here)
        return expanded

    def _text(self, text: str, place: Place) -> str:
        parts: list[str] = []
        used, missing, at = False, False, 0
        while found := self._opening.search(text, at):
            parts.append(text[at : found.start()])
            if found[0] == "$${":
                parts.append("${")
                at = found.end()
                continue
            if self._vocabulary.bare and found[1]:
                put, at = self._bare(found[1], place), found.end()
            else:
                end = text.find("}", found.end())
                if end < 0:
                    self._fail(text[found.start() : found.start() + 40], place, "Malformed syntax: unclosed brace")
                    return Missing(text)
                put, at = self._braced(text[found.end() : end], place), end + 1
            if isinstance(put, Missing):
                missing = True
            used = used or isinstance(put, Expanded)
            parts.append(text[found.start() : at] if put is None else put)
        parts.append(text[at:])
        if missing:
            return Missing(text)
        whole = "".join(parts)
        return Expanded(whole) if used else whole

    def _bare(self, name: str, place: Place) -> str | None:
        if name in self._environ:
            return self._taken(name)
        if not self._is_spared(place):
            self._notes.warn(place, f"${name} is not set in the environment, and stays as it stands")
        return None

    def _braced(self, inside: str, place: Place) -> str | None:
        """What stands for `${inside}`; None leaves it as it is."""
        if inside in self._vocabulary.fixed:
            return self._vocabulary.fixed[inside]
        name, dash, default = inside.partition(":-")
        if inside.startswith("env:"):
            name = name[4:]
        elif inside.startswith("input:") and self._vocabulary.inputs is not None:
            return self._input(inside[6:], place)
        elif not _NAME.match(name):
            if _NAMED.match(inside):
                self._notes.warn(place, f"${{{inside}}} stays as it stands: names of variables are in capitals")
            return None
        if name in self._environ:
            return self._taken(name)
        if "${" in default:
            self._fail(name, place, "Malformed syntax: a default cannot hold another variable")
            return Missing()
        if dash:
            return Expanded(default)
        self._missing(name, place, "Variable is not set")
        return Missing()

    def _input(self, identity: str, place: Place) -> str:
        asked = (self._vocabulary.inputs or {}).get(identity)
        name = INPUT + re.sub(r"[^A-Z0-9]+", "_", identity.upper())
        if name in self._environ:
            self._notes.keep_secret(self._environ[name])
            return Expanded(self._environ[name])
        if asked is not None and asked.default is not None:
            return Expanded(asked.default)
        wanted = f" ({asked.description})" if asked is not None and asked.description else ""
        self._missing(name, place, f"${{input:{identity}}} asks a person{wanted}, here it is read from the environment")
        return Missing()

    def _taken(self, name: str) -> Expanded:
        value = self._environ[name]
        # Where a home or a PATH is tells nobody anything.
        if name not in INHERITED:
            self._notes.keep_secret(value)
        return Expanded(value)

    def _is_spared(self, place: Place) -> bool:
        return any(place[: len(spared)] == spared for spared in self._spared)

    def _missing(self, name: str, place: Place, reason: str) -> None:
        if self._is_spared(place):
            return
        self._fail(
            name, place, f"{reason}\n\nSet the environment variable before starting server:\n  export {name}=value"
        )

    def _fail(self, name: str, place: Place, reason: str) -> None:
        where = spell(self._notes.locate(place))
        self._notes.refuse(
            f"Environment variable expansion failed\n  Variable: {name}\n  Location: config.{where}\n  Reason: {reason}",
            place,
        )
