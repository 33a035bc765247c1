"""Expands variables such as `${NAME}` and `${NAME:-default}`.

    ${NAME}          the environment variable; if it is not set, its server cannot be used
    ${NAME:-text}    the same, with a default
    ${env:NAME}      as Cursor and VS Code write it
    ${input:id}      what VS Code prompts for: the environment variable PEGBOARD_INPUT_ID
    ${file:PATH}     the text in a file, such as a mounted secret; relative to the configuration file
    ${cmd:COMMAND}   what a command prints, such as that of a password manager
    $NAME            in Gemini's files only; unchanged if it is not set
    $${NAME}         the text ${NAME} itself

Names are upper case; other words in braces stay unchanged, since a shell may need them. Expanded values are not
expanded again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from pegboard.call import Json
from pegboard.config.inherited_variables import BASIC_VARIABLES
from pegboard.config.mistakes import ConfigReport, ExpandedText, UnresolvedText, format_path, is_in_server
from pegboard.config.secret_sources import SOURCES, SecretSources, SecretUnavailable
from pegboard.config.source_file import KeyPath

INPUT: Final = "PEGBOARD_INPUT_"

_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*\Z")
_NAMED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BRACED: Final = re.compile(r"\$\$\{|\$\{")
_ALSO_BARE: Final = re.compile(r"\$\$\{|\$\{|\$([A-Za-z_][A-Za-z0-9_]*)")


class Input(Struct, frozen=True):
    """An input that VS Code asks a person for."""

    description: str = ""
    default: str | None = None


class VariableSyntax(Struct, frozen=True, kw_only=True):
    """The variable syntax of a format besides `${NAME}`: `$NAME`, predefined words, inputs."""

    bare: bool = False
    fixed: Mapping[str, str] = {}
    inputs: Mapping[str, Input] | None = None


class Variables:
    """Expands variables in texts; a missing one is a mistake, an inserted value a secret.

    `excluded` are the paths of unused entries, whose variables need not be set. `folder` is where relative paths start.
    `sources` read files and commands; one that returns UnresolvedText leaves the reference as it is.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        notes: ConfigReport,
        syntax: VariableSyntax | None = None,
        excluded: Collection[KeyPath] = (),
        folder: Path | None = None,
        sources: SecretSources = SOURCES,
    ) -> None:
        self._sources = sources
        self._folder = folder or Path()
        self._read_secrets: dict[str, str] = {}
        self._environ = environ
        self._notes = notes
        self._excluded = excluded
        self._syntax = syntax or VariableSyntax()
        self._opening = _ALSO_BARE if self._syntax.bare else _BRACED

    def expand(self, value: Json, place: KeyPath = ()) -> Json:
        """The same value with every variable expanded: in texts at any depth, and in keys."""
        match value:
            case UnresolvedText():
                return value
            case str():
                return self._text(value, place)
            case list():
                return [self.expand(item, (*place, position)) for position, item in enumerate(value)]
            case dict():
                return self._object(value, place)
        return value

    def _object(self, value: dict[str, Json], place: KeyPath) -> dict[str, Json]:
        expanded: dict[str, Json] = {}
        for key, item in value.items():
            here = (*place, key)
            new = str(self._text(key, here))
            if new in expanded:
                self._notes.add_mistake(
                    here, "this key is given twice after its variables were expanded", fix="remove one of them"
                )
            expanded[new] = self.expand(item, here)
        return expanded

    def _text(self, text: str, place: KeyPath) -> str:
        parts: list[str] = []
        used, missing, at = False, False, 0
        while found := self._opening.search(text, at):
            parts.append(text[at : found.start()])
            if found[0] == "$${":
                parts.append("${")
                at = found.end()
                continue
            if self._syntax.bare and found[1]:
                put, at = self._bare(found[1], place), found.end()
            else:
                end = text.find("}", found.end())
                if end < 0:
                    self._fail(text[found.start() : found.start() + 40], place, "Malformed syntax: unclosed brace")
                    return UnresolvedText(text)
                put, at = self._braced(text[found.end() : end], place), end + 1
            if isinstance(put, UnresolvedText):
                missing = True
            used = used or isinstance(put, ExpandedText)
            parts.append(text[found.start() : at] if put is None else put)
        parts.append(text[at:])
        if missing:
            return UnresolvedText(text)
        whole = "".join(parts)
        return ExpandedText(whole) if used else whole

    def _bare(self, name: str, place: KeyPath) -> str | None:
        if name in self._environ:
            return self._taken(name)
        if not self._is_excluded(place):
            self._notes.warn(place, f"${name} is not set in the environment, and is kept as it is")
        return None

    def _braced(self, inside: str, place: KeyPath) -> str | None:
        """The value for `${inside}`; None keeps the text."""
        if inside in self._syntax.fixed:
            return self._syntax.fixed[inside]
        name, dash, default = inside.partition(":-")
        if inside.startswith("env:"):
            name = name[4:]
        elif inside.startswith("input:") and self._syntax.inputs is not None:
            return self._input(inside[6:], place)
        elif inside.startswith(tuple(self._sources)):
            return self._secret(inside, place)
        elif not _NAME.match(name):
            if _NAMED.match(inside):
                self._notes.warn(place, f"${{{inside}}} is kept as it is: names of variables are upper-case")
            return None
        if name in self._environ:
            return self._taken(name)
        if "${" in default:
            self._fail(name, place, "Malformed syntax: a default cannot hold another variable")
            return UnresolvedText()
        if dash:
            return ExpandedText(default)
        self._missing(name, place, "Variable is not set")
        return UnresolvedText()

    def _input(self, identity: str, place: KeyPath) -> str:
        asked = (self._syntax.inputs or {}).get(identity)
        name = INPUT + re.sub(r"[^A-Z0-9]+", "_", identity.upper())
        if name in self._environ:
            self._notes.keep_secret(self._environ[name])
            return ExpandedText(self._environ[name])
        if asked is not None and asked.default is not None:
            return ExpandedText(asked.default)
        wanted = f" ({asked.description})" if asked is not None and asked.description else ""
        self._missing(name, place, f"${{input:{identity}}} is an input{wanted}; here it is read from the environment")
        return UnresolvedText()

    def _secret(self, inside: str, place: KeyPath) -> str:
        """The secret that `file:PATH` or `cmd:COMMAND` names; nothing is read for an entry that is not used."""
        if self._is_excluded(place):
            return UnresolvedText()
        kind, _, argument = inside.partition(":")
        try:
            if inside not in self._read_secrets:
                self._read_secrets[inside] = self._sources[f"{kind}:"](argument.strip(), self._folder)
        except SecretUnavailable as problem:
            if is_in_server(place):
                self._notes.fail_server(place, str(problem))
            else:
                self._notes.add_mistake(place, str(problem))
            return UnresolvedText()
        value = self._read_secrets[inside]
        if isinstance(value, UnresolvedText):
            return value
        self._notes.keep_secret(value)
        return ExpandedText(value)

    def _taken(self, name: str) -> ExpandedText:
        value = self._environ[name]
        # Paths such as HOME and PATH are not secrets.
        if name not in BASIC_VARIABLES:
            self._notes.keep_secret(value)
        return ExpandedText(value)

    def _is_excluded(self, place: KeyPath) -> bool:
        return any(place[: len(excluded)] == excluded for excluded in self._excluded)

    def _missing(self, name: str, place: KeyPath, reason: str) -> None:
        if self._is_excluded(place):
            return
        if is_in_server(place):
            self._notes.fail_server(place, f"{reason}: set {name} in the environment of the gateway")
            return
        self._fail(
            name, place, f"{reason}\n\nSet the environment variable before starting server:\n  export {name}=value"
        )

    def _fail(self, name: str, place: KeyPath, reason: str) -> None:
        where = format_path(self._notes.locate(place))
        self._notes.refuse(
            f"Environment variable expansion failed\n  Variable: {name}\n  Location: config.{where}\n  Reason: {reason}",
            place,
        )
