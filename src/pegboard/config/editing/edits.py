"""Changes to the values of a configuration file, checked against what the changed text means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from pegboard.call import Json
from pegboard.config.editing.json_text import add_to_json, remove_in_json, set_in_json
from pegboard.config.editing.toml_text import add_to_toml, remove_in_toml, set_in_toml
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
    for group in _siblings(edits):
        text = _apply_group(text, group, file)
        for edit in group:
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


def _siblings(edits: Sequence[Edit]) -> Iterator[list[Edit]]:
    """The edits in groups: adjacent ones of different members of the same object can be applied at once."""
    group: list[Edit] = []
    for edit in edits:
        fits = group and edit.place[:-1] == group[0].place[:-1]
        if group and not fits:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _apply_group(text: str, group: Sequence[Edit], file: Path) -> str:
    # The first one may create the object that holds them all.
    text, rest = _apply(text, group[0], file), group[1:]
    added = _add(text, rest, file) if rest else text
    if added is not None:
        return added
    for edit in rest:
        text = _apply(text, edit, file)
    return text


def _add(text: str, group: Sequence[Edit], file: Path) -> str | None:
    """The text with all values of a group, if each of them is a new member; each single change parses the text again."""
    place = group[0].place[:-1]
    members = {str(edit.place[-1]): edit.value for edit in group if not isinstance(edit.value, UnsetType)}
    if len(members) < len(group) or any(isinstance(edit.place[-1], int) for edit in group):
        return None
    if file.suffix.lower() == ".toml":
        return add_to_toml(text, tuple(map(str, place)), members)
    return None if is_blank(text) else add_to_json(text, place, members, file)


def _apply(text: str, edit: Edit, file: Path) -> str:
    is_toml = file.suffix.lower() == ".toml"
    keys = tuple(map(str, edit.place))
    if isinstance(edit.value, UnsetType):
        return remove_in_toml(text, keys) if is_toml else remove_in_json(text, edit.place, file)
    return set_in_toml(text, keys, edit.value) if is_toml else set_in_json(text, edit.place, edit.value, file)


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
