"""A downstream tool as an operator wants it shown: other words, other names of arguments, some fixed or hidden."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from pegboard.call import Json
from pegboard.gateway.configuration.config import ArgumentOverride


class Arguments:
    """What the arguments are called here and at the server; `schema` is how they are shown."""

    def __init__(self, schema: Mapping[str, Json], overrides: Mapping[str, ArgumentOverride]) -> None:
        self.schema = schema
        self._names: dict[str, str] = {}
        self._fixed: dict[str, Json] = {}
        self._defaults: dict[str, Json] = {}
        if overrides:
            self.schema = self._reshape(schema, overrides)

    @property
    def unchanged(self) -> bool:
        """Whether what is sent here may be passed on as it is."""
        return not (self._names or self._fixed or self._defaults)

    def restore(self, sent: Mapping[str, Json]) -> dict[str, Json]:
        """The arguments as the server takes them."""
        named = {self._names.get(name, name): value for name, value in sent.items()}
        return {**self._defaults, **named, **self._fixed}

    def _reshape(self, schema: Mapping[str, Json], overrides: Mapping[str, ArgumentOverride]) -> dict[str, Json]:
        declared = schema.get("properties")
        required = [name for name in schema.get("required", ()) if isinstance(name, str)]
        properties: dict[str, Json] = {}
        for name, about in declared.items() if isinstance(declared, Mapping) else ():
            override = overrides.get(name)
            if override is None:
                properties[name] = about
                continue
            if override.value is not UNSET:
                self._fixed[name] = override.value
            if override.default is not UNSET:
                self._defaults[name] = override.default
            if override.hidden or override.value is not UNSET:
                required = [other for other in required if other != name]
                continue
            if override.default is not UNSET:
                required = [other for other in required if other != name]
            shown = override.name or name
            if shown != name:
                self._names[shown] = name
                required = [shown if other == name else other for other in required]
            properties[shown] = _described(about, override)
        reshaped = {**schema, "properties": properties}
        if "required" in schema:
            reshaped["required"] = required
        return reshaped


def _described(about: Json, override: ArgumentOverride) -> Json:
    if not isinstance(about, Mapping):
        return about
    described = dict(about)
    if override.description is not None:
        described["description"] = override.description
    if override.default is not UNSET:
        described["default"] = override.default
    return described
