"""Repairs arguments that have exactly one valid reading.

Theory of operation. A valid value with declared names is never changed. Otherwise the walk descends to the invalid parts and makes one
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
    unknown_parameter, unknown_property      passed on: the schema does not forbid it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from pegboard.argument_problems import ParseError, ParseWarning
from pegboard.call import Json
from pegboard.limits import Limits
from pegboard.protocol.json_values import as_object
from pegboard.repair.places import Place, Places, convert_integers, find_undeclared
from pegboard.repair.repair_messages import write
from pegboard.repair.schema_graph import SchemaGraph
from pegboard.repair.walk import RepairWalk
from pegboard.schema.cost.work_budget import Exhausted, WorkBudget
from pegboard.schema.exact_floats import ExactFloats
from pegboard.schema.jsonschema_backend import LENIENT, STRICT
from pegboard.schema.problems import UNKNOWN, fit_message, format_path, guess, suggest, unknown
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

    The schema is one that `check_schema` accepts. Names that it neither declares nor forbids are passed on with a
    warning. What only a repair needs is compiled at the first one, and kept for the WARM most recently used tools.
    """

    __slots__ = ("_integers", "_is_valid", "_names", "_places", "_schema")

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self._schema = schema
        # The names of the arguments; None if the schema itself decides about others.
        self._names: frozenset[str] | None = None
        # The places of names if nested objects have some.
        self._places: Place | None = None
        # The places of integers, if there are any.
        self._integers: Place | None = None
        self._is_valid: Callable[[Json], bool] = self._compile

    def fits(self, value: Any) -> bool:
        """The value is valid and contains only declared names."""
        return (
            self._is_valid(value)
            and (self._names is None or self._names.issuperset(value))
            and (self._places is None or next(find_undeclared(self._places, value), None) is None)
        )

    def with_integers(self, value: Mapping[str, Json]) -> Mapping[str, Json]:
        """A value that fits, with 3.0 as the integer 3 where the schema takes no other number: in JSON they are one."""
        integers = self._integers
        return value if integers is None else as_object(convert_integers(integers, value))

    def repair(self, value: Json, limits: Limits = LIMITS, floats: ExactFloats | None = None) -> Repair:
        """Repair a value, with a warning for every change and an error for every part that does not fit.

        `floats` are those of the value, which become text as they were sent.
        """
        if self.fits(value):
            return Repair(value)
        graph, places = _warm(self)
        if graph.is_too_large(value):
            return Repair(value, (), (_TOO_LARGE,))
        try:
            with graph.remembering():
                return self._mend(graph, places, value, limits, floats)
        except Exhausted:
            return Repair(value, (), (_TOO_MUCH,))

    def _mend(
        self, graph: SchemaGraph, places: Places, value: Json, limits: Limits, floats: ExactFloats | None
    ) -> Repair:
        walk = RepairWalk(graph, places, WorkBudget(limits.repair_work), limits.repair_text, floats)
        result = walk.repair_arguments(value)
        errors: list[ParseError] = []
        if not graph.root.accepts(result):
            if graph.root.accepts(value):
                walk, result = RepairWalk(graph, places, WorkBudget(0), 0), value
            else:
                errors = walk.errors(result)
        warnings = [write(note) for note in walk.notes]
        has_undeclared = self._names is not None and not self._names.issuperset(as_object(result))
        if errors or has_undeclared or self._places is not None:
            self._report_undeclared(places, result, warnings, errors)
        return Repair(result, tuple(warnings), tuple(errors))

    def report(self, value: Json, limits: Limits = LIMITS) -> tuple[ParseError, ...]:
        """Every problem of a value, without any repair."""
        self.fits(value)
        graph, places = _warm(self)
        if graph.is_too_large(value):
            return (_TOO_LARGE,)
        with graph.remembering():
            valid = graph.root.accepts(value)
            errors = [] if valid else RepairWalk(graph, places, WorkBudget(limits.repair_work), 0).errors(value)
        self._report_undeclared(places, value, [], errors)
        return tuple(errors)

    def _compile(self, value: Json) -> bool:
        graph = _draw(self._schema)
        root = Places(graph).with_names()
        self._names = root.declared
        self._places = root if any(root.inside()) else None
        self._integers = Places(graph).with_integers()
        self._is_valid = graph.root.fits
        return self._is_valid(value)

    def _report_undeclared(
        self, places: Places, value: Json, warnings: list[ParseWarning], errors: list[ParseError]
    ) -> None:
        """Add a warning for each undeclared name, or an error for one that is probably a missing name."""
        reported = {error.path for error in errors}
        missing = {error.path for error in errors if error.code == "missing_required"}
        undeclared = (
            (path, name, given, place)
            for path, given, place in find_undeclared(places.at([""]), value, in_open=bool(missing))
            for name in given
            if name not in place.members and format_path((path, name)) not in reported
        )
        for path, name, given, place in islice(undeclared, UNKNOWN_ARGUMENT):
            where, names, at_top = format_path((path, name)), sorted(place.members), path is None
            lacks = any(format_path((path, each)) in missing for each in names)
            if lacks and (meant := guess(name, names, given, place.schema)):
                # Allowed or not, it is probably the missing one.
                errors.append(unknown(where, name, names, given, meant, at_top=at_top))
            elif place.declared is not None:
                code, word = UNKNOWN[at_top]
                message = fit_message(where, f"unknown {word}, passed on", suggest(name, names, given))
                warnings.append(ParseWarning(where, code, message, given[name], given[name]))


@lru_cache(maxsize=WARM_CALLS)
def _warm(repairer: Repairer) -> tuple[SchemaGraph, Places]:
    graph = _draw(repairer._schema)
    return graph, Places(graph)


def _draw(schema: Mapping[str, Json]) -> SchemaGraph:
    lenient = strict = Validator(schema, formats=LENIENT)
    if has_soft_formats(schema):
        strict = Validator(schema, formats=STRICT)
    return SchemaGraph(schema, strict, lenient)
