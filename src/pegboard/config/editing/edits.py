"""Changes to the values of a configuration file, checked against what the changed text means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from pegboard.call import Json
from pegboard.config.editing.json_text import remove_in_json, set_in_json
from pegboard.config.editing.toml_text import remove_in_toml, set_in_toml
from pegboard.config.mistakes import format_path
from pegboard.config.source_file import KeyPath, is_blank, parse_source
from pegboard.errors import SetupError


class Edit(Struct, frozen=True):
    """A value for a path; UNSET removes what is there."""

    place: KeyPath
    value: Json | UnsetType = UNSET


def parse_text(text: str, file: Path) -> Json:
    """The values of a file's text; a blank one has none."""
    return {} if not text or (file.suffix.lower() != ".toml" and is_blank(text)) else parse_source(text, file).tree


def apply_edits(text: str, edits: Sequence[Edit], file: Path) -> str:
    """The text with these changes and nothing else changed; SetupError if the file's own form prevents that."""
    is_toml = file.suffix.lower() == ".toml"
    tree = parse_text(text, file)
    if not is_toml and not is_blank(text):
        _refuse_duplicates(text, edits, file)
    for edit in edits:
        keys = tuple(map(str, edit.place))
        if isinstance(edit.value, UnsetType):
            text = remove_in_toml(text, keys) if is_toml else remove_in_json(text, edit.place, file)
        elif is_toml:
            text = set_in_toml(text, keys, edit.value)
        else:
            text = set_in_json(text, edit.place, edit.value, file)
        tree = _applied(tree, edit.place, edit.value)
    try:
        new = parse_text(text, file)
        # A table of TOML that only holds others goes with the last of them.
        same = _filled(new) == _filled(tree) if is_toml else new == tree
    except SetupError:
        same = False
    if not same:
        places = ", ".join(format_path(edit.place) for edit in edits)
        raise SetupError(f"{file}: {places} is written in a form that cannot be changed safely; change it by hand")
    return text


def _refuse_duplicates(text: str, edits: Sequence[Edit], file: Path) -> None:
    for place, first, second in parse_source(text, file).twice:
        if any(edit.place[: len(place)] == place or place[: len(edit.place)] == edit.place for edit in edits):
            where = f"{file}:{second}: {format_path(place)}"
            raise SetupError(f"{where} is given twice (also on line {first}); remove one of them first")


def _applied(tree: Json, place: KeyPath, value: Json | UnsetType) -> Json:
    if not place:
        return {} if isinstance(value, UnsetType) else value
    key, rest = place[0], place[1:]
    if isinstance(tree, list) and isinstance(key, int):
        return [*tree[:key], _applied(tree[key] if key < len(tree) else {}, rest, value), *tree[key + 1 :]]
    name = str(key)
    if isinstance(value, UnsetType) and (not isinstance(tree, dict) or name not in tree):
        return tree
    inside: dict[str, Any] = tree if isinstance(tree, dict) else {}
    if isinstance(value, UnsetType) and not rest:
        return {other: item for other, item in inside.items() if other != name}
    return {**inside, name: _applied(inside.get(name, {}), rest, value)}


def _filled(tree: Json) -> Json:
    """The tree without empty objects in objects."""
    if not isinstance(tree, dict):
        return tree
    filled = {key: _filled(item) for key, item in tree.items()}
    return {key: item for key, item in filled.items() if item != {}}
