"""Repairs arguments that have exactly one valid reading.

Theory of operation. A valid value is never changed. Otherwise the walk descends to the invalid parts and makes one
attempt at each: it tries what the value can be read as (`literals.readings`), and takes the reading that validates if
there is exactly one. Two different readings are ambiguous and rejected. Where the schema accepts any string, a string
is not read as anything else. At a union every branch is tried in the same way. Finally the whole value is validated.

The walk is bounded: by a budget of work (`Limits.repair_work`), by the length of a text that is read as another type
(`Limits.repair_text`), by 64 levels, 32 branches, and two levels of JSON text inside JSON text. It is deterministic and
reads no clock.

    code of a warning                        what happened
    string_literal_converted_to_boolean      "true" "yes" "on" "1" and their opposites, any case, trimmed
    string_literal_converted_to_integer      "42", "1e3", "1,000"
    string_literal_converted_to_number       "4.2"
    string_literal_converted_to_null         "null", "none"
    string_literal_converted_to_object       JSON text, fenced too, comments and trailing commas allowed
    string_literal_converted_to_array        the same
    empty_object_string, empty_map_string    "" for an object, for a map
    empty_array_string                       "" for a list
    number_coerced_to_boolean                0 and 1
    fractional_number_truncated_to_integer   42.7 became 42
    non_string_literal_retained              a boolean, number, object or list where text is wanted, as JSON text
    scalar_coerced_to_list                   a value became a list of one
    enum_token_matched                       by case, space, separators, or the name of the choice
    property_name_matched                    by case and separators, onto a declared, absent name
    null_arguments                           null for the arguments as a whole
    null_left_out                            null, also as text, for something optional without a default
    null_replaced_by_default                 null, also as text, for something that has a default
    fields_gathered_into_object              the fields of the one object argument were sent beside it
    duplicate_items_dropped                  a list that wants every item once
    timestamp_normalised, date_normalised,   another ISO 8601 spelling
    time_normalised, uuid_normalised
    duration_text_converted                  "1h", "90 min"
    timestamp_without_offset                 kept as it is: no offset is guessed
    uri_not_absolute                         kept as it is
    unknown_parameter                        passed on: the schema does not forbid it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final, Literal

from msgspec import Struct

from pegboard.argument_problems import ParseError, ParseWarning
from pegboard.call import Json
from pegboard.limits import Limits
from pegboard.repair.repair_messages import write
from pegboard.repair.schema_graph import SchemaGraph
from pegboard.repair.walk import RepairWalk
from pegboard.schema.cost.work_budget import Exhausted, WorkBudget
from pegboard.schema.formats import LENIENT, STRICT
from pegboard.schema.problems import fit_message, format_path, guess, suggest, unknown
from pegboard.schema.validator import Validator, has_soft_formats

__all__ = ["ParseError", "ParseWarning", "Repair", "Repairer"]

WARM_CALLS = 256
# If there are more undeclared names than this, only the first are reported.
UNKNOWN_ARGUMENT = 20


LIMITS: Final = Limits()

_TOO_MUCH: Final = ParseError(
    "",
    "too_much_to_repair",
    "arguments: too many values need repair; send every value in the type that the schema asks for",
    None,
)
_TOO_LARGE: Final = ParseError(
    "",
    "arguments_too_large",
    "arguments: more values than this tool's schema can check; send fewer at once",
    None,
)


class Repair(Struct, frozen=True):
    """The outcome of a repair; values with an error are as sent."""

    value: Json
    warnings: tuple[ParseWarning, ...] = ()
    errors: tuple[ParseError, ...] = ()


class Repairer:
    """Everything that reads one tool's arguments by its schema.

    The schema is one that `check_schema` accepts. `extras` says what happens to arguments that it neither declares nor
    forbids. What only a repair needs is compiled at the first one, and kept for the WARM most recently used tools.
    """

    __slots__ = ("_extras", "_is_valid", "_names", "_schema")

    def __init__(self, schema: Mapping[str, Json], *, extras: Literal["refuse", "warn"]) -> None:
        self._schema, self._extras = schema, extras
        # None: the schema itself decides about other names.
        self._names: frozenset[str] | None = None
        self._is_valid: Callable[[Json], bool] = self._compile

    def fits(self, value: Json) -> bool:
        """The value is valid and contains only declared arguments."""
        return self._is_valid(value) and (self._names is None or self._names.issuperset(value))

    def repair(self, value: Json, limits: Limits = LIMITS) -> Repair:
        """Repair a value, with a warning for every change and an error for every part that does not fit."""
        if self.fits(value):
            return Repair(value)
        graph = _warm(self)
        if graph.is_too_large(value):
            return Repair(value, (), (_TOO_LARGE,))
        try:
            with graph.remembering():
                return self._mend(graph, value, limits)
        except Exhausted:
            return Repair(value, (), (_TOO_MUCH,))

    def _mend(self, graph: SchemaGraph, value: Json, limits: Limits) -> Repair:
        walk = RepairWalk(graph, WorkBudget(limits.repair_work), limits.repair_text)
        result = walk.repair_arguments(value)
        errors: list[ParseError] = []
        if not graph.root.accepts(result):
            if graph.root.accepts(value):
                walk, result = RepairWalk(graph, WorkBudget(0), 0), value
            else:
                errors = walk.errors(result)
        warnings = [write(note) for note in walk.notes]
        self._judge_extras(result, warnings, errors)
        return Repair(result, tuple(warnings), tuple(errors))

    def report(self, value: Json, limits: Limits = LIMITS) -> tuple[ParseError, ...]:
        """Every problem of a value, without any repair."""
        self.fits(value)
        graph = _warm(self)
        if graph.is_too_large(value):
            return (_TOO_LARGE,)
        with graph.remembering():
            valid = graph.root.accepts(value)
            errors = [] if valid else RepairWalk(graph, WorkBudget(limits.repair_work), 0).errors(value)
        self._judge_extras(value, [], errors)
        return tuple(errors)

    def _compile(self, value: Json) -> bool:
        graph = _draw(self._schema)
        self._names = graph.declared()
        self._is_valid = graph.root.fits
        return self._is_valid(value)

    def _judge_extras(self, value: Json, warnings: list[ParseWarning], errors: list[ParseError]) -> None:
        declared = self._names
        if declared is None and errors:
            properties = self._schema.get("properties")
            declared = frozenset(properties) if isinstance(properties, Mapping) else None
        if declared is None or not isinstance(value, dict) or value.keys() <= declared:
            return
        told = {error.path for error in errors}
        lacks = any(error.code == "missing_required" and error.path in declared for error in errors)
        names = sorted(declared)
        strange = ((format_path((None, name)), name, got) for name, got in value.items() if name not in declared)
        for place, name, got in islice((item for item in strange if item[0] not in told), UNKNOWN_ARGUMENT):
            meant = guess(name, names, value, self._schema)
            if (lacks and meant) or (self._extras == "refuse" and self._names is not None):
                # Allowed or not, it is probably the missing one.
                errors.append(unknown(place, name, names, value, meant, at_top=True))
            elif self._names is not None:
                message = fit_message(place, "unknown argument, passed on", suggest(name, names, value))
                warnings.append(ParseWarning(place, "unknown_parameter", message, got, got))


@lru_cache(maxsize=WARM_CALLS)
def _warm(repairer: Repairer) -> SchemaGraph:
    return _draw(repairer._schema)


def _draw(schema: Mapping[str, Json]) -> SchemaGraph:
    lenient = strict = Validator(schema, formats=LENIENT)
    if has_soft_formats(schema):
        strict = Validator(schema, formats=STRICT)
    return SchemaGraph(schema, strict, lenient)
