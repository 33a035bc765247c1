"""Converts a Python value to plain JSON, or reports which part cannot be converted."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from math import isfinite
from os import PathLike, fspath
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from pegboard.call import Json
from pegboard.errors import PegboardError
from pegboard.media import Content
from pegboard.schema.problems import format_keys

Path: TypeAlias = tuple[str | int, ...]

DEPTH = 200

_RETURNABLE = "return a dict, a dataclass, a pydantic model, text or numbers"

_ADDRESSES = (IPv4Address, IPv4Network, IPv6Address, IPv6Network)


class ResultProblem(PegboardError):
    """A tool's return value cannot be sent; `path` says where in the value, the text is for the author's log."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or 'the result'}: {message}")
        self.path = path
        self.message = message


class UnawaitedResult(ResultProblem):
    """A tool returned a coroutine, or the awaitable of a question, instead of its value."""


class ContentInside(PegboardError):
    """A value contains content objects, which are blocks of a result and not JSON."""


def simplify(value: Any) -> Any:
    """The next simpler form of a value that msgspec cannot encode; raises TypeError if there is none."""
    if isinstance(value, Content):
        raise ContentInside
    # Named methods of the base type, whatever the subclass makes of str() or int().
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value)
    # A pydantic model is recognized by its method, so that pydantic is not imported here.
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json", by_alias=True)
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, _ADDRESSES):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet | deque | range | Sequence):
        return list(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


encode = msgspec.json.Encoder(enc_hook=simplify).encode
decode = msgspec.json.Decoder().decode

# What msgspec, an author's model_dump and our own hook raise if a value has no JSON form.
UNWRITABLE = (TypeError, ValueError, RecursionError, OverflowError)


def check_numbers(value: Any, text: str, plain: Json = UNSET) -> None:
    """Reject a value with a number that is not finite; `text` is its encoding by msgspec, `plain` that text decoded.

    msgspec writes NaN and the infinities as null, and those of a Decimal as strings.
    """
    if 'NaN"' in text or 'Infinity"' in text or ("null" in text and not _is_same(value, text, plain)):
        problem = find_problem(value)
        if problem is not None:
            raise problem


def _is_same(value: Any, text: str, plain: Json) -> bool:
    # A fast comparison in C: NaN never equals the null it was written as. Tuples differ from the list they become,
    # which only leads to the slow search.
    if type(value) is not dict and type(value) is not list:
        value = msgspec.to_builtins(value, str_keys=True, enc_hook=simplify)
    return bool(value == (decode(text) if plain is UNSET else plain))


def find_problem(value: Any) -> ResultProblem | None:
    """The first part of a value that cannot be sent as JSON. Slow: only for values that failed or are suspect."""
    found = next(_search(value, (), ()), None)
    return None if found is None else ResultProblem(format_keys(found[0]), found[1])


def _search(value: Any, path: Path, above: tuple[int, ...]) -> Iterator[tuple[Path, str]]:
    if id(value) in above:
        yield path, "the value contains itself"
        return
    if len(above) > DEPTH:
        yield path, f"nested deeper than {DEPTH} levels"
        return
    above = (*above, id(value))
    children = _children(value)
    if children is None:
        message = _leaf_problem(value)
        if message is not None:
            yield path, message
            return
        simpler = _simpler(value)
        if simpler is not None:
            yield from _search(simpler, path, above)
        return
    if isinstance(value, dict):
        for key in value:
            message = _key_problem(key)
            if message is not None:
                yield path, message
    for step, child in children:
        yield from _search(child, (*path, step), above)


def _children(value: Any) -> Iterator[tuple[str | int, Any]] | None:
    if isinstance(value, dict):
        return ((str(key), child) for key, child in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return enumerate(value)
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        return ((name, getattr(value, name)) for name in value.__struct_fields__)
    if dataclasses.is_dataclass(value):
        return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    if hasattr(type(value), "__attrs_attrs__"):
        return ((field.name, getattr(value, field.name)) for field in type(value).__attrs_attrs__)
    return None


def _leaf_problem(value: Any) -> str | None:
    if isinstance(value, float) and not isfinite(value):
        return f"{value} is not a JSON number; return None or a finite number"
    if isinstance(value, Decimal) and not value.is_finite():
        return f"{value} is not a JSON number; return None or a finite number"
    if isinstance(value, Content):
        return f"{type(value).__name__} is content; return it alone, in a list, or in a ToolResult, not inside a value"
    try:
        encode(value)
    except UnicodeEncodeError:
        return "the text contains half of a surrogate pair, which cannot be encoded; fix it before returning it"
    except TypeError:
        hint = "did you forget `await`?" if isinstance(value, Awaitable) else _RETURNABLE
        return f"a {type(value).__name__} has no JSON form; {hint}"
    except UNWRITABLE as problem:
        # A container that failed because of a part is searched further; a leaf gives the reason itself.
        return None if _simpler(value) is not None else f"cannot be encoded as JSON ({problem})"
    return None


def _key_problem(key: Any) -> str | None:
    try:
        encode({key: None})
    except UnicodeEncodeError:
        return "a key contains half of a surrogate pair, which cannot be encoded"
    except UNWRITABLE:
        return f"a key of type {type(key).__name__} has no JSON form; use text or numbers as keys"
    return None


def _simpler(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return None
    try:
        return simplify(value)
    except (ContentInside, *UNWRITABLE):
        return None


def as_plain(value: Any) -> Json:
    """A value as the JSON it is sent as; raises ResultProblem if it has no JSON form."""
    try:
        data = encode(value)
    except (ContentInside, *UNWRITABLE) as problem:
        raise (find_problem(value) or ResultProblem("", f"cannot be encoded as JSON ({problem})")) from problem
    text = data.decode("utf-8")
    plain = decode(text)
    check_numbers(value, text, plain)
    return plain
