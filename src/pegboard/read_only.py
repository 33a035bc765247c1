"""JSON objects and arrays that cannot be changed: the arguments of a call as hooks read them."""

from __future__ import annotations

from typing import Any, NoReturn

_HINT = (
    "the arguments of a call are read-only; copy them, change the copy and pass it to call.replace_arguments({...}) in a "
    "before-hook, or to call.with_arguments({...}) in an around"
)


def _reject(self: object, *args: object, **more: object) -> NoReturn:
    raise TypeError(_HINT)


class ReadOnlyDict(dict[str, Any]):
    """A JSON object whose members cannot be changed; copies of it can."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _reject

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (dict(self),)


class ReadOnlyList(list[Any]):
    """A JSON array whose items cannot be changed; copies of it can."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = _reject
    reverse = sort = _reject

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        return list, (list(self),)


def read_only(value: Any) -> Any:
    """The same JSON value, read-only at any depth."""
    if type(value) is dict:
        return ReadOnlyDict({name: read_only(member) for name, member in value.items()})
    if type(value) is list:
        return ReadOnlyList([read_only(item) for item in value])
    return value
