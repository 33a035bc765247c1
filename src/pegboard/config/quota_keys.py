"""The keys of quotas in a configuration."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Struct

from pegboard.accounts.quota import HELD, LARGEST, Quota, Quotas, read_flow
from pegboard.call import Json
from pegboard.config.annotated_types import object_of
from pegboard.config.mistakes import ConfigReport
from pegboard.config.source_file import KeyPath
from pegboard.config.value_types import IntegerValue, MapValue, NullValue, TextValue, UnionValue
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
AMOUNT: Final = UnionValue((IntegerValue(0, LARGEST), NullValue("null for no limit")))

QUOTA: Final = object_of(
    "a quota",
    Quota,
    {
        "rate": FlowValue("rate", _FLOW),
        "bytes": FlowValue("bytes", _BYTES),
        "tokens": FlowValue("tokens", _FLOW),
        **dict.fromkeys(HELD, AMOUNT),
    },
    make=Quota,
)

QUOTAS: Final = object_of(
    "quotas",
    Quotas,
    {
        "everyone": QUOTA,
        "anonymous": QUOTA,
        "roles": MapValue(QUOTA, "an object of quotas by role"),
        "principals": MapValue(QUOTA, "an object of quotas by principal"),
    },
    make=Quotas,
)
