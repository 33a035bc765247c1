"""Binds the raw JSON of a call's arguments to a function's parameters; compiled once per tool.

Theory of operation. `bind_raw` decodes the bytes directly into a struct generated from the parameters: validation and
conversion are one pass in C. Where msgspec accepts more than the JSON Schema does (formats, patterns, sets), the schema
also validates the same bytes and decides; names that a nested type does not declare need only a second decode. Bytes that do not pass return None and take the slow path, which ends in
`bind_value` with a valid JSON value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from pegboard.binding.conversion import BindingProblem, Load, explain
from pegboard.binding.decoder import compile_decoder
from pegboard.binding.msgspec_types import compile_names, drops_names, either_type
from pegboard.binding.number_types import NumberConverter, takes_decimals
from pegboard.call import Json
from pegboard.schema.exact_floats import ExactFloats
from pegboard.schema.schema_writer import is_shown_plain, new_default
from pegboard.schema.types.shape import AliasShape, FieldShape, RecordShape, ScalarShape

_IMMUTABLE = (str, int, float, bool, bytes, type(None))

# What decoding raises: invalid JSON, invalid UTF-8 inside a string, JSON of another type, or extreme nesting.
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

decode_json = msgspec.json.Decoder().decode


class Binder:
    """Binds the arguments of one function; `bound` values are structs with a field for each parameter."""

    def __init__(
        self,
        fields: Sequence[FieldShape],
        named: Mapping[Hashable, RecordShape | AliasShape],
        fits: Callable[[Json], bool],
        *,
        own_schema: bool = False,
    ) -> None:
        self._fields = tuple(fields)
        self._named = named
        self._fits = fits
        self.takes_decimals = any(takes_decimals(field.shape) for field in fields)
        # An author's own schema says itself where null is allowed.
        self._optional = frozenset(field.name for field in fields if is_shown_plain(field) and not own_schema)
        self.bind_raw: Callable[[bytes | Raw], Any]
        self._loads: list[tuple[str, FieldShape, Load]] = []
        sound = not own_schema
        places: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for number, field in enumerate(fields):
            wire = compile_decoder(field.shape, named)
            sound = sound and wire.sound
            place = f"p{number}"
            if wire.load is not None:
                self._loads.append((place, field, wire.load))
            places.append(_declare(place, field, wire.type, loaded=wire.load is not None))
        self.struct = msgspec.defstruct(
            "Arguments",
            places,
            rename={f"p{number}": field.name for number, field in enumerate(fields)},
            forbid_unknown_fields=not own_schema,
            kw_only=True,
            gc=False,
        )
        decode = msgspec.json.Decoder(self.struct).decode
        drops = any(drops_names(field.shape) for field in fields)
        names = compile_names(fields) if drops and sound and not self._loads else None
        sound = sound and (names is not None or not drops)
        if sound and not self._loads:
            self.bind_raw = _bind_as_sent(decode, names)
        elif any(
            takes_decimals(field.shape) and not isinstance(field.shape, ScalarShape) for _, field, _ in self._loads
        ):
            self.bind_raw = self._bind_exactly
        else:
            self.bind_raw = self._bind_guarded(decode, guarded=not sound)

    def bind_value(self, value: Mapping[str, Json], digits: ExactFloats | None = None) -> Any:
        """Bind a JSON object that fits the schema; 1.0 counts as the integer 1."""
        if digits is None and not self._loads:
            # msgspec does not accept 1.0 as an integer: what it accepts at once is done.
            try:
                return msgspec.convert(value, self.struct, str_keys=True)
            except msgspec.ValidationError:
                pass
        try:
            bound = msgspec.convert(self._convert_numbers(value, digits), self.struct, str_keys=True)
        except msgspec.ValidationError as problem:
            raise explain(problem) from problem
        return self._load(bound)

    def without_nulls(self, value: Json) -> Json:
        """Omit optional arguments given as null: it means the same."""
        if not self._optional or not isinstance(value, dict):
            return value
        void = [name for name, argument in value.items() if argument is None and name in self._optional]
        return {name: argument for name, argument in value.items() if name not in void} if void else value

    def arguments(self, bound: Any) -> dict[str, Any]:
        """The bound values by their JSON names."""
        return dict(zip((field.name for field in self._fields), msgspec.structs.astuple(bound), strict=True))

    def _bind_guarded(self, decode: Callable[[bytes | Raw], Any], *, guarded: bool) -> Callable[[bytes | Raw], Any]:
        def bind(raw: bytes | Raw) -> Any:
            try:
                bound = decode(raw)
                if guarded and not self._fits(self.without_nulls(decode_json(raw))):
                    return None
                return self._load(bound)
            except (*NOT_JSON, BindingProblem):
                return None

        return bind

    def _bind_exactly(self, raw: bytes | Raw) -> Any:
        """A Decimal inside a type that msgspec does not decode itself would become a float first."""
        digits = ExactFloats()
        try:
            value = self.without_nulls(digits.decode(raw))
            return self.bind_value(value, digits) if isinstance(value, dict) and self._fits(value) else None
        except (*NOT_JSON, BindingProblem):
            return None

    def _load(self, bound: Any) -> Any:
        problems: list[BindingProblem] = []
        for place, field, load in self._loads:
            value = getattr(bound, place)
            if value is UNSET:
                value = None if field.default is UNSET else new_default(field.default)
            elif value is not None or field.name not in self._optional:
                try:
                    value = load(value)
                except BindingProblem as problem:
                    problems.append(problem.under(field.name))
            setattr(bound, place, value)
        if problems:
            first, *rest = problems
            first.others = (*first.others, *rest)
            raise first
        return bound

    def _convert_numbers(self, value: Mapping[str, Json], digits: ExactFloats | None) -> Mapping[str, Json]:
        shapes = {field.name: field.shape for field in self._fields if field.name in value}
        return NumberConverter(self._named, digits).convert_members(shapes, value)


def _bind_as_sent(
    decode: Callable[[bytes | Raw], Any], check_names: Callable[[bytes | Raw], Any] | None
) -> Callable[[bytes | Raw], Any]:
    def bind(raw: bytes | Raw) -> Any:
        try:
            return decode(raw)
        except NOT_JSON:
            return None

    if check_names is None:
        return bind

    def bind_declared(raw: bytes | Raw) -> Any:
        try:
            bound = decode(raw)
            check_names(raw)
        except NOT_JSON:
            return None
        return bound

    return bind_declared


def _declare(place: str, field: FieldShape, wanted: Any, *, loaded: bool) -> tuple[str, Any] | tuple[str, Any, Any]:
    if is_shown_plain(field) and wanted is not Any:
        wanted = either_type((wanted, None))
    if field.required:
        return place, wanted
    if loaded:
        return place, Any if wanted is Any else either_type((wanted, UnsetType)), UNSET
    default = None if field.default is UNSET else field.default
    if type(default) in _IMMUTABLE:
        return place, wanted, default
    # Python would pass the object of the signature to every call, which could then change it for the others.
    return place, wanted, msgspec.field(default_factory=lambda: new_default(default))
