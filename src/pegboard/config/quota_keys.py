"""The keys of quotas in a configuration."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Struct

from pegboard.accounts.quota import LARGEST, Quota, Quotas, read_flow
from pegboard.call import Json
from pegboard.config.mistakes import ConfigReport
from pegboard.config.source_file import KeyPath
from pegboard.config.value_types import (
    IntegerValue,
    MapValue,
    NullValue,
    ObjectField,
    ObjectValue,
    TextValue,
    UnionValue,
)
from pegboard.errors import DeclarationError


class FlowValue(Struct, frozen=True):
    """An amount per period, such as `600/minute`; null for no limit."""

    name: str
    expected: str

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        if value is None:
            return None
        text = TextValue(self.expected).read(value, place, notes)
        if text is UNSET:
            return UNSET
        try:
            read_flow(text, self.name)
        except DeclarationError:
            notes.add_mistake(place, got=value, expected=self.expected)
            return UNSET
        return text

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}


_PERIODS: Final = "per second, minute, hour or day, or null for no limit"
_FLOW: Final = f'an amount such as "600/minute", {_PERIODS}'
_BYTES: Final = f'an amount such as "100MiB/minute", {_PERIODS}'
_AMOUNT: Final = UnionValue((IntegerValue(0, LARGEST), NullValue("null for no limit")))

QUOTA: Final = ObjectValue(
    "a quota",
    {
        "rate": ObjectField("rate", FlowValue("rate", _FLOW), "requests per second, minute, hour or day"),
        "bytes": ObjectField("bytes", FlowValue("bytes", _BYTES), "bytes of its requests per period"),
        "tokens": ObjectField("tokens", FlowValue("tokens", _FLOW), "tokens of the results of tools per period"),
        "calls": ObjectField("calls", _AMOUNT, "calls at the same time"),
        "streams": ObjectField("streams", _AMOUNT, "open streams"),
        "sessions": ObjectField("sessions", _AMOUNT, "open sessions"),
        "tasks": ObjectField("tasks", _AMOUNT, "stored tasks"),
        "taskBytes": ObjectField("task_bytes", _AMOUNT, "bytes of the requests and results of its tasks"),
        "parked": ObjectField("parked", _AMOUNT, "calls that wait for an answer of the caller"),
    },
    make=Quota,
)

QUOTAS: Final = ObjectValue(
    "quotas",
    {
        "everyone": ObjectField("everyone", QUOTA, "for each caller"),
        "anonymous": ObjectField("anonymous", QUOTA, "for each address of callers without a principal"),
        "roles": ObjectField("roles", MapValue(QUOTA, "an object of quotas by role"), "by the roles of a principal"),
        "principals": ObjectField(
            "principals", MapValue(QUOTA, "an object of quotas by principal"), "by the id of a principal"
        ),
    },
    make=Quotas,
)
