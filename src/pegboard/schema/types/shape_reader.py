"""Reads the shape of a Python type."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum, Flag
from typing import Any, Literal, NewType, TypeVar, Union, get_args, get_origin

import msgspec

from pegboard.schema.types import record_types
from pegboard.schema.types.annotations import UNRESOLVED, resolve
from pegboard.schema.types.constraints import NO_NOTES, ValueNotes, is_field, read_notes
from pegboard.schema.types.pydantic_types import read_foreign
from pegboard.schema.types.shape import (
    AliasShape,
    AnyShape,
    ChoiceShape,
    FieldShape,
    ListShape,
    MapShape,
    NullableShape,
    RecordShape,
    RefShape,
    ScalarShape,
    Shape,
    Shaped,
    TupleShape,
    UnionShape,
    UnsupportedType,
)

_PLAIN: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}

# By name, so that the modules are imported only by their users. True: msgspec supports the type.
_FORMATTED: dict[tuple[str, str], tuple[str, bool]] = {
    ("datetime", "datetime"): ("date-time", True),
    ("datetime", "date"): ("date", True),
    ("datetime", "time"): ("time", True),
    ("datetime", "timedelta"): ("duration", True),
    ("uuid", "UUID"): ("uuid", True),
    ("decimal", "Decimal"): ("decimal", True),
    ("builtins", "bytes"): ("base64", True),
    ("builtins", "bytearray"): ("base64", True),
    ("pathlib", "PurePath"): ("path", False),
    ("ipaddress", "IPv4Address"): ("ipv4", False),
    ("ipaddress", "IPv6Address"): ("ipv6", False),
}
_LISTS = {"list", "Sequence", "MutableSequence", "Collection", "Iterable"}
_SETS = {"set": set, "MutableSet": set, "frozenset": frozenset, "Set": frozenset}
_MAPS = {"dict", "Mapping", "MutableMapping"}
_QUALIFIERS = {"Required", "NotRequired", "ReadOnly", "Final"}


def read_shape(annotation: Any, where: str = "", notes: ValueNotes = NO_NOTES) -> Shaped:
    """The shape of a type, with the named shapes it refers to."""
    reader = ShapeReader(where)
    return Shaped(reader.read(annotation, notes), reader.named)


class ShapeReader:
    """Reads types that may refer to each other; `named` is complete when the last one has been read.

    `direction` says which values are described: "input" those that the types are built from, "output" those that they
    are written as.
    """

    def __init__(self, where: str = "", direction: Literal["input", "output"] = "input") -> None:
        self.where = where
        self._direction = direction
        self.named: dict[Hashable, RecordShape | AliasShape] = {}
        self._open: set[Hashable] = set()
        self._cycles: set[Hashable] = set()
        self._variables: dict[Any, Any] = {}
        # The names that the text of an alias may use.
        self._names: Mapping[str, Any] = {}

    def read(self, annotation: Any, notes: ValueNotes = NO_NOTES) -> Shape:
        """The shape of one annotation; `notes` are the constraints around it."""
        if isinstance(annotation, str | typing.ForwardRef):
            annotation = resolve(annotation, self._names, {})
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is typing.Annotated or hasattr(annotation, "__metadata__"):
            return self._read_annotated(annotation, notes)
        if annotation in _OPEN:
            return AnyShape(notes=notes)
        if isinstance(annotation, NewType):
            return self.read(annotation.__supertype__, notes)
        if isinstance(annotation, TypeVar):
            return self._read_variable(annotation, notes)
        if _name(origin or annotation) in _QUALIFIERS and arguments:
            return self.read(arguments[0], notes)
        if type(annotation).__name__ == "TypeAliasType" or type(origin).__name__ == "TypeAliasType":
            return self._read_alias(annotation, origin, arguments, notes)
        if origin is Union or origin is types.UnionType:
            return self._read_union(arguments, notes)
        if origin is Literal:
            return self._read_literal(annotation, arguments, notes)
        if _name(annotation) == "LiteralString":
            return ScalarShape(notes=notes, type=str, kind="string")
        return self._read_class(annotation, origin, arguments, notes)

    def _read_annotated(self, annotation: Any, notes: ValueNotes) -> Shape:
        words = annotation.__metadata__
        if any(hasattr(word, "__get_pydantic_core_schema__") and not is_field(word) for word in words):
            return self._read_foreign(annotation, read_notes(words, notes))
        inner = read_notes(words)
        # Constraints of the parameter win over those of its type.
        return self.read(annotation.__origin__, read_notes([notes], inner) if notes is not NO_NOTES else inner)

    def _read_variable(self, variable: TypeVar, notes: ValueNotes) -> Shape:
        if variable in self._variables:
            return self.read(self._variables[variable], notes)
        if variable.__constraints__:
            return self._read_union(variable.__constraints__, notes)
        return self.read(variable.__bound__ or Any, notes)

    def _read_alias(self, annotation: Any, origin: Any, arguments: tuple[Any, ...], notes: ValueNotes) -> Shape:
        alias = annotation if origin is None else origin
        return self._read_named(
            annotation,
            alias.__type_params__,
            arguments,
            lambda: self._close_alias(annotation, alias, notes),
            notes,
        )

    def _close_alias(self, key: Hashable, alias: Any, notes: ValueNotes) -> Shape:
        outer, self._names = self._names, vars(sys.modules.get(alias.__module__, typing))
        try:
            inner = self.read(alias.__value__, notes)
            if key not in self._cycles:
                return inner
            # Its definition is shared: the notes belong to this occurrence.
            inner = self.read(alias.__value__)
        finally:
            self._names = outer
        self.named[key] = AliasShape(key=key, name=alias.__name__, inner=inner)
        return msgspec.structs.replace(self.named[key], notes=notes)

    def _read_named(
        self,
        key: Hashable,
        variables: Iterable[Any],
        arguments: tuple[Any, ...],
        read: Callable[[], Shape],
        notes: ValueNotes,
    ) -> Shape:
        if key in self._open:
            self._cycles.add(key)
            return RefShape(notes=notes, key=key)
        self._open.add(key)
        outer, self._variables = self._variables, {**self._variables, **dict(zip(variables, arguments, strict=False))}
        try:
            return read()
        finally:
            self._variables = outer
            self._open.discard(key)

    def _read_union(self, options: tuple[Any, ...], notes: ValueNotes) -> Shape:
        # msgspec's marker for "may be omitted": it is never a value.
        options = tuple(option for option in options if option is not msgspec.UnsetType)
        real = [option for option in options if option is not type(None) and option is not None]
        nullable = len(real) < len(options)
        if len(real) == 1:
            inner = self.read(real[0], notes)
            return NullableShape(notes=inner.notes, inner=inner) if nullable else inner
        either = UnionShape(notes=notes, options=tuple(self.read(option) for option in real))
        return NullableShape(notes=notes, inner=either) if nullable else either

    def _read_literal(self, annotation: Any, members: tuple[Any, ...], notes: ValueNotes) -> Shape:
        values = tuple(member.value if isinstance(member, Enum) else member for member in members)
        for value in values:
            if not isinstance(value, str | int | float | None):
                raise UnsupportedType(f"{self.where}: Literal value {value!r} has no JSON form; use strings or numbers")
        return ChoiceShape(notes=notes, type=annotation, values=values, members=members)

    def _read_class(self, annotation: Any, origin: Any, arguments: tuple[Any, ...], notes: ValueNotes) -> Shape:
        if annotation is None:
            annotation = type(None)
        kind = _PLAIN.get(annotation)
        if kind is not None:
            return ScalarShape(notes=notes, type=annotation, kind=kind)
        cls = origin or annotation
        if not isinstance(cls, type):
            raise self._unsupported(annotation)
        if (container := self._read_container(annotation, cls, arguments, notes)) is not None:
            return container
        if issubclass(cls, Enum):
            return _read_enum(cls, notes)
        if (scalar := _read_scalar(cls, notes)) is not None:
            return scalar
        maker = record_types.maker_of(cls)
        if maker is not None:
            return self._read_named(
                annotation,
                getattr(cls, "__parameters__", ()),
                arguments,
                lambda: self._read_record(annotation, cls, maker, notes),
                notes,
            )
        if hasattr(cls, "__get_pydantic_core_schema__"):
            return self._read_foreign(annotation, notes)
        for plain in (str, int, float):
            if issubclass(cls, plain):
                return ScalarShape(notes=notes, type=cls, kind=_PLAIN[plain], make=cls)
        raise self._unsupported(annotation)

    def _read_container(
        self, annotation: Any, cls: type, arguments: tuple[Any, ...], notes: ValueNotes
    ) -> Shape | None:
        module, name = cls.__module__, cls.__name__
        if module not in {"builtins", "collections.abc"}:
            return None
        if name in _LISTS:
            return ListShape(notes=notes, type=list, item=self.read(arguments[0] if arguments else Any))
        if name in _SETS:
            return ListShape(
                notes=notes, type=_SETS[name], item=self.read(arguments[0] if arguments else Any), unique=True
            )
        if name in _MAPS:
            key, value = arguments or (str, Any)
            return MapShape(notes=notes, type=dict, key=self.read(key), value=self.read(value))
        if name == "tuple":
            if (not arguments and annotation != tuple[()]) or (len(arguments) == 2 and arguments[1] is Ellipsis):
                return ListShape(notes=notes, type=tuple, item=self.read(arguments[0] if arguments else Any))
            places = tuple(self.read(place) for place in arguments)
            return TupleShape(notes=notes, type=tuple, items=places, least=len(places))
        return None

    def _read_record(self, key: Hashable, cls: type, maker: str, notes: ValueNotes) -> Shape:
        if self._direction == "output" and maker.startswith("pydantic"):
            return self._read_foreign(key, notes)
        try:
            parts = record_types.parts_of(cls, maker)
            fields = tuple(self._read_field(cls, maker, part) for part in parts if self._direction in part.directions)
        except UnsupportedType:
            if maker != "pydantic":
                raise
            return self._read_foreign(key, notes)
        if maker == "namedtuple" or record_types.is_array(cls, maker):
            return TupleShape(
                notes=notes,
                type=key,
                items=tuple(field.shape for field in fields),
                least=sum(field.required for field in fields),
                names=tuple(field.name for field in fields),
            )
        record = RecordShape(
            notes=notes,
            type=key,
            name=cls.__name__,
            summary=record_types.summary_of(cls),
            fields=fields,
            maker=maker,
            extras=record_types.extras_of(cls, maker),
            tag=record_types.tag_of(cls, maker),
        )
        self.named[key] = msgspec.structs.replace(record, notes=NO_NOTES)
        return record

    def _read_field(self, cls: type, maker: str, part: record_types.RecordField) -> FieldShape:
        where = f"{self.where}: {cls.__name__}.{part.attribute}" if self.where else f"{cls.__name__}.{part.attribute}"
        if part.annotation is UNRESOLVED:
            raise UnsupportedType(f"{where}: its annotation cannot be resolved; import the name at run time")
        outer, self.where = self.where, where
        try:
            shape = self.read(part.annotation, part.notes)
        finally:
            self.where = outer
        name = shape.notes.alias or part.name if maker.startswith("pydantic") else part.name
        return FieldShape(
            name=name,
            attribute=part.attribute,
            keyword=part.attribute.lstrip("_") if maker == "attrs" else part.attribute,
            shape=shape,
            required=part.required,
            default=part.default,
        )

    def _read_foreign(self, annotation: Any, notes: ValueNotes) -> Shape:
        mode: Literal["validation", "serialization"] = "validation" if self._direction == "input" else "serialization"
        return read_foreign(annotation, notes, self.where, mode)

    def _unsupported(self, annotation: Any) -> UnsupportedType:
        if annotation is UNRESOLVED:
            return UnsupportedType(f"{self.where}: the name is not defined at run time")
        shown = annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
        return UnsupportedType(
            f"{self.where}: {shown} cannot be read from JSON; use a dataclass, TypedDict, msgspec Struct or pydantic model, "
            f"or register it as a service before the tool if it should be injected"
        )


_OPEN: tuple[Any, ...] = (Any, object)


def _read_enum(cls: type[Enum], notes: ValueNotes) -> Shape:
    members = tuple(cls)
    if issubclass(cls, Flag):
        return ScalarShape(notes=notes, type=cls, kind="integer", make=cls)
    values = tuple(member.value for member in members)
    if not all(isinstance(value, str | int | float | None) for value in values):
        values = tuple(member.name for member in members)
    return ChoiceShape(
        notes=notes, type=cls, values=values, members=members, names=tuple(member.name for member in members)
    )


def _read_scalar(cls: type, notes: ValueNotes) -> ScalarShape | None:
    for base in cls.__mro__:
        # pathlib is a package since 3.13: its classes are in `pathlib._local`.
        form = _FORMATTED.get((base.__module__.partition(".")[0], base.__name__))
        if form is not None:
            format_, native = form
            make = None if native and base is cls else cls
            if make is not None and base.__module__ == "datetime":
                return None
            return ScalarShape(notes=notes, type=cls, kind="string", format=format_, make=make)
    return None


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or getattr(annotation, "_name", None) or ""
