"""Estimates the tokens of a result before its tool runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from pegboard.call import Call, Json
from pegboard.protocol.json_values import as_object

_MOST = 10**12


class Estimate(Struct, frozen=True):
    """How many tokens the result of a tool will have: `base`, and for each argument in `per` its tokens per unit.

    The unit of a number is 1, that of a list an item, that of a text a character. `Estimate(50, {"rows": 20})`.
    """

    base: int = 0
    per: Mapping[str, float] = {}

    def __call__(self, call: Call) -> int:
        """Return the estimate for the arguments of a `call`; a missing argument counts as its default."""
        declared = as_object(call.tool.input_schema.get("properties"))
        tokens: float = self.base
        for name, price in self.per.items():
            default = as_object(declared.get(name)).get("default")
            tokens += _units(call.arguments.get(name, default)) * price
        return round(min(max(tokens, 0), _MOST))


Estimator: TypeAlias = Estimate | Callable[[Call], int]


class EstimateTally(Struct):
    """The estimates of one tool beside the sizes of its results.

    calls: the calls with a result.
    estimated: the tokens that were estimated for them.
    actual: the tokens that their results had, before a cut.
    refused: the calls that were not run, because the estimate exceeded the budget.
    """

    calls: int = 0
    estimated: int = 0
    actual: int = 0
    refused: int = 0

    @property
    def accuracy(self) -> float:
        """Return the smaller of the two totals as a share of the larger; 1 is exact."""
        larger = max(self.estimated, self.actual)
        return min(self.estimated, self.actual) / larger if larger else 1.0


def _units(value: Json) -> float:
    """The size of an argument, which is not repaired yet: "10" counts as 10."""
    match value:
        case bool() | None:
            return 0
        case int() | float():
            number = float(min(value, _MOST))
            return number if math.isfinite(number) else 0
        case str() if value.strip().isdecimal():
            return float(min(int(value.strip()[:15]), _MOST))
        case str() | list() | tuple():
            return len(value)
    return 0
