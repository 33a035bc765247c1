"""Changes an operator makes to a tool: description, names and types of arguments, fixed or hidden arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET

from pegboard.call import Json
from pegboard.config.gateway_config import ArgumentOverride
from pegboard.protocol.json_values import as_object
from pegboard.schema.literals import fold_name

# With one of these in a schema, arguments may be declared outside of its properties.
_OPEN: Final = frozenset(
    {
        "additionalProperties", "unevaluatedProperties", "patternProperties", "dependentSchemas",
        "allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef",
    }
)  # fmt: skip


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
