"""Changes to the arguments of a tool, by an operator or in Python: names, types, defaults, fixed and hidden ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from pegboard.call import Json
from pegboard.protocol.json_values import as_object
from pegboard.schema.literals import fold_name

# With one of these in a schema, arguments may be declared outside of its properties.
_OPEN: Final = frozenset(
    {
        "additionalProperties", "unevaluatedProperties", "patternProperties", "dependentSchemas",
        "allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef",
    }
)  # fmt: skip


class ArgumentOverride(Struct, frozen=True, kw_only=True):
    """Changes to an argument of a tool; one with a `value` is hidden, and always sent with it.

    name: the name that callers see.
    description: replaces the server's description.
    hidden: hide it from callers.
    value: hidden from callers and always sent.
    default: sent if a caller omits it.
    schema: keywords such as type or enum, in place of the server's.
    """

    name: str | None = None
    description: str | None = None
    hidden: bool = False
    value: Json | UnsetType = UNSET
    default: Json | UnsetType = UNSET
    schema: Mapping[str, Json] = {}

    def __repr__(self) -> str:
        return f"ArgumentOverride(name={self.name!r}, hidden={self.hidden}, fixed={self.value is not UNSET})"


class ArgumentMapping:
    """The names of the arguments here and at the server; `schema` is what callers see.

    `unchanged` says that the caller's arguments can be sent to the server as they are.

    A hidden, fixed or renamed argument of the server cannot be set by its own name, nor by one that the server may
    repair to it. So a tool with such an argument accepts only the arguments that it shows.
    """

    def __init__(self, schema: Mapping[str, Json], overrides: Mapping[str, ArgumentOverride]) -> None:
        self.schema = schema
        self._names: dict[str, str] = {}
        self._fixed: dict[str, Json] = {}
        self._defaults: dict[str, Json] = {}
        self._withheld: set[str] = set()
        for name, override in overrides.items():
            self._take(name, override)
        if overrides:
            self.schema = self._reshape(schema, overrides)
        self.unchanged = not (self._withheld or self._defaults)

    def to_server_arguments(self, sent: Mapping[str, Json]) -> dict[str, Json]:
        """The arguments in the server's names."""
        shown = as_object(self.schema.get("properties"))
        named = {
            self._names.get(name, name): value
            for name, value in sent.items()
            if name in shown or fold_name(name) not in self._withheld
        }
        return {**self._defaults, **named, **self._fixed}

    def _take(self, name: str, override: ArgumentOverride) -> None:
        if override.default is not UNSET:
            self._defaults[name] = override.default
        if override.value is not UNSET:
            self._fixed[name] = override.value
        if _is_shown(override):
            shown = override.name or name
            if shown == name:
                return
            self._names[shown] = name
        self._withheld.add(fold_name(name))

    def _reshape(self, schema: Mapping[str, Json], overrides: Mapping[str, ArgumentOverride]) -> dict[str, Json]:
        declared, listed = schema.get("properties"), schema.get("required")
        # A value that is not a list is kept: the check of the whole schema rejects it.
        required = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
        properties: dict[str, Json] = {}
        for name, about in declared.items() if isinstance(declared, Mapping) else ():
            override = overrides.get(name)
            if override is None:
                properties[name] = about
                continue
            if not _is_shown(override) or override.default is not UNSET:
                required = [other for other in required if other != name]
            if _is_shown(override):
                shown = override.name or name
                required = [shown if other == name else other for other in required]
                properties[shown] = _described(about, override)
        reshaped = {**schema, "properties": properties}
        if isinstance(listed, list):
            reshaped["required"] = required
        if self._withheld and declared and not schema.keys() & _OPEN:
            reshaped["additionalProperties"] = False
        return reshaped


def _is_shown(override: ArgumentOverride) -> bool:
    return not override.hidden and override.value is UNSET


def _described(about: Json, override: ArgumentOverride) -> Json:
    if not isinstance(about, Mapping):
        return {**override.schema} or about
    described = {**about, **override.schema}
    if override.description is not None:
        described["description"] = override.description
    if override.default is not UNSET:
        described["default"] = override.default
    return described
