"""Describes the changes between two definitions of a tool.

Invisible characters are written out. An indented line belongs to the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from pegboard.call import Json
from pegboard.logs.printable import printable

_TEXTS: Final = ("title", "description")
_AROUND: Final = 40
_MAX_LENGTH: Final = 300
_LINES: Final = 12
_VALUE: Final = 120
_MAX_DEPTH: Final = 32

_encode = msgspec.json.Encoder(order="sorted").encode


def describe_differences(old: Mapping[str, Json], new: Mapping[str, Json]) -> tuple[str, ...]:
    """Every change as a sentence; none if the two are equal."""
    if _same(old, new):
        return ()
    differences = [*_members(old, new)]
    return tuple(differences) or ("only its formatting differs",)


def _members(old: Mapping[str, Json], new: Mapping[str, Json]) -> Iterator[str]:
    if old.get("name") != new.get("name"):
        yield f"it was called {_show(old.get('name'))}, and is now called {_show(new.get('name'))}"
    for member in _TEXTS:
        yield from _text(member, old.get(member), new.get(member))
    yield from _schema("argument", "inputSchema", old.get("inputSchema"), new.get("inputSchema"))
    yield from _schema("result", "outputSchema", old.get("outputSchema"), new.get("outputSchema"))
    known = {"name", *_TEXTS, "inputSchema", "outputSchema"}
    yield from _values("", _without(old, known), _without(new, known), 0)


def _text(label: str, old: Json, new: Json) -> Iterator[str]:
    """A changed text, reduced to the part that differs."""
    if _same(old, new):
        return
    if old is None:
        yield f"{label} is new:"
        yield from _lines("+", str(new))
    elif new is None:
        yield f"{label} was removed:"
        yield from _lines("-", str(old))
    else:
        yield f"{label} changed:"
        gone, come = _differing(str(old), str(new))
        yield from _lines("-", gone)
        yield from _lines("+", come)


def _differing(old: str, new: str) -> tuple[str, str]:
    """Both texts without their common first and last lines; within one line, without most of the common rest."""
    before, after = old.split("\n"), new.split("\n")
    most = min(len(before), len(after)) - 1
    alike = next((at for at in range(most) if before[at] != after[at]), most)
    before, after, most = before[alike:], after[alike:], most - alike
    alike = next((at for at in range(most) if before[-1 - at] != after[-1 - at]), most)
    before, after = before[: len(before) - alike], after[: len(after) - alike]
    if len(before) > 1 or len(after) > 1:
        return "\n".join(before), "\n".join(after)
    one, other = before[0], after[0]
    shorter = min(len(one), len(other))
    start = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    end = next((at for at in range(shorter - start) if one[-1 - at] != other[-1 - at]), shorter - start)
    return _window(one, start, end), _window(other, start, end)


def _window(text: str, start: int, end: int) -> str:
    """The text between the common parts, with some context on either side."""
    first, last = max(0, start - _AROUND), min(len(text), len(text) - end + _AROUND)
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")


def _lines(sign: str, text: str) -> Iterator[str]:
    lines = text.split("\n")
    for line in lines[:_LINES]:
        yield f"  {sign} {_shorten(line, _MAX_LENGTH)}"
    if len(lines) > _LINES:
        yield f"  {sign} … and {len(lines) - _LINES} more lines"


def _schema(what: str, member: str, old: Json, new: Json) -> Iterator[str]:
    if _same(old, new):
        return
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        yield from _values("", _present(member, old), _present(member, new), 0)
        return
    yield from _properties(what, "", old, new, 0)
    own = {"properties", "required"}
    yield from _values(member, _without(old, own), _without(new, own), 0)


def _properties(what: str, prefix: str, old: Mapping[str, Json], new: Mapping[str, Json], depth: int) -> Iterator[str]:
    before, after = _mapping(old.get("properties")), _mapping(new.get("properties"))
    needed, needs = _names(old.get("required")), _names(new.get("required"))
    for name in before.keys() - after.keys():
        yield f"{what} {_path(prefix, name)} was removed"
    for name, schema in after.items():
        path = _path(prefix, name)
        if name not in before:
            yield f"new {what} {path}: {_kind(schema)}{', required' if name in needs else ''}"
            yield from _lines("+", str(_mapping(schema)["description"])) if "description" in _mapping(schema) else ()
            continue
        if (name in needed) != (name in needs):
            yield f"{what} {path} is {'now' if name in needs else 'no longer'} required"
        yield from _property(what, path, before[name], schema, depth)


def _property(what: str, path: str, old: Json, new: Json, depth: int) -> Iterator[str]:
    if _same(old, new):
        return
    label = f"{what} {path}"
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or depth >= _MAX_DEPTH:
        yield f"{label} was {_show(old)}, is now {_show(new)}"
        return
    was, now = _kind(old), _kind(new)
    if was != now:
        yield f"{label} was {was}, is now {now}"
    for member in _TEXTS:
        yield from _text(f"{member} of {label}", old.get(member), new.get(member))
    yield from _properties(what, path, old, new, depth + 1)
    items = _mapping(old.get("items")), _mapping(new.get("items"))
    yield from _property(what, f"{path}[]", *items, depth + 1)
    described = {*_TEXTS, "type", "properties", "required", "enum" if was != now else "", "items" if all(items) else ""}
    yield from _values(label, _without(old, described), _without(new, described), depth)


def _values(label: str, old: Mapping[str, Json], new: Mapping[str, Json], depth: int) -> Iterator[str]:
    """All other differences, by path."""
    for key in [*old, *(key for key in new if key not in old)]:
        path = _path(label, key)
        before, after = old.get(key), new.get(key)
        if key not in old:
            yield f"{path} is new: {_show(after)}"
        elif key not in new:
            yield f"{path} was removed; it was {_show(before)}"
        elif _same(before, after):
            continue
        elif isinstance(before, Mapping) and isinstance(after, Mapping) and depth < _MAX_DEPTH:
            yield from _values(path, before, after, depth + 1)
        elif isinstance(before, str) and isinstance(after, str):
            yield from _text(path, before, after)
        else:
            yield f"{path} was {_show(before)}, is now {_show(after)}"


def _kind(schema: Json) -> str:
    """What a schema accepts, in a word or two."""
    if not isinstance(schema, Mapping):
        return "nothing" if schema is False else "anything"
    if "const" in schema:
        return _show(schema["const"])
    if isinstance(schema.get("enum"), list):
        return _clip("one of " + ", ".join(map(_show, schema["enum"][:_VALUE])), _VALUE)
    for joint in ("anyOf", "oneOf"):
        if isinstance(schema.get(joint), list):
            return _clip(" or ".join(dict.fromkeys(map(_kind, schema[joint][:8]))), _VALUE)
    if "$ref" in schema:
        return _shorten(str(schema["$ref"]).rpartition("/")[2], _VALUE)
    kind = schema.get("type")
    if kind == "array" and isinstance(schema.get("items"), Mapping) and "type" in schema["items"]:
        return f"array of {_shorten(str(schema['items']['type']), _VALUE)}"
    if isinstance(kind, list):
        return _shorten(" or ".join(map(str, kind)), _VALUE)
    return _shorten(str(kind), _VALUE) if kind is not None else "anything"


def _same(one: Json, other: Json) -> bool:
    # Encoded, because 1, 1.0 and True are equal in Python.
    return _encode(one) == _encode(other)


def _show(value: Json) -> str:
    return _shorten(_encode(value).decode(), _VALUE)


def _shorten(text: str, longest: int) -> str:
    """The start of a server's text, with hidden characters made visible."""
    return _clip(printable(text[: longest + 1]), longest)


def _clip(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _path(prefix: str, name: str) -> str:
    step = _shorten(name, _VALUE)
    return step if not prefix else prefix if len(prefix) > _MAX_LENGTH else f"{prefix}.{step}"


def _present(member: str, value: Json) -> Mapping[str, Json]:
    return {} if value is None else {member: value}


def _without(value: Mapping[str, Json], keys: set[str]) -> dict[str, Json]:
    return {key: item for key, item in value.items() if key not in keys}


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _names(value: Json) -> set[str]:
    return {name for name in value if isinstance(name, str)} if isinstance(value, list | tuple) else set()
