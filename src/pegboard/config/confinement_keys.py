"""What a child process may do: its folders, the network and its resources."""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import UNSET, Struct

from pegboard.call import Json
from pegboard.config.annotated_types import object_of
from pegboard.config.mistakes import ConfigReport
from pegboard.config.source_file import KeyPath
from pegboard.config.value_types import BooleanValue, IntegerValue, UnionValue

_UNITS: Final = {"": 1, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_SIZE: Final = re.compile(r"([0-9]{1,12}) ?((?i:[KMG]i?B)?)", re.ASCII)
_LEAST_MEMORY: Final = 16 * 1024**2
_MOST_MEMORY: Final = 1024**5


class Confinement(Struct, frozen=True, kw_only=True):
    """What a confined program may use besides the system's own folders; paths are absolute.

    read: folders and files that it may read.
    write: folders and files that it may change.
    network: whether it may use the network.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False


class ChildResources(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much a program may use; None for no limit. Each of its processes has limits of its own, except `processes`.

    memory: bytes of data, such as 512MiB.
    processes: processes and threads of its user, or of the confinement.
    cpu_seconds: seconds of computing.
    open_files: files and sockets.
    """

    memory: int | None = None
    processes: int | None = None
    cpu_seconds: int | None = None
    open_files: int | None = None


class SizeValue(Struct, frozen=True):
    """A number of bytes, such as `512MiB`."""

    expected: str = 'a size of at least 16 MiB, such as "512MiB"'

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        found = _SIZE.fullmatch(value) if isinstance(value, str) else None
        size = int(found[1]) * _UNITS[found[2].upper()] if found is not None else value
        if isinstance(size, int) and not isinstance(size, bool) and _LEAST_MEMORY <= size <= _MOST_MEMORY:
            return size
        notes.add_mistake(place, got=value, expected=self.expected)
        return UNSET

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": _LEAST_MEMORY}]}


CONFINE: Final = UnionValue((BooleanValue(), object_of("a confinement", Confinement, make=Confinement)))
RESOURCES: Final = object_of(
    "resources",
    ChildResources,
    {
        "memory": SizeValue(),
        "processes": IntegerValue(1, 1_000_000),
        "cpu_seconds": IntegerValue(1, 1_000_000_000),
        "open_files": IntegerValue(16, 1_000_000),
    },
    make=ChildResources,
)
