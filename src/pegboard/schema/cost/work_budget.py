"""The work that one repair may take."""

from __future__ import annotations

from pegboard.errors import PegboardError

# Steps of a check (`schema_cost`) for one unit; a unit is about twenty microseconds of work.
STEPS_A_UNIT = 2_000
# Characters of text that are parsed for one unit.
TEXT_A_UNIT = 64


class Exhausted(PegboardError):
    """The work budget of a call is used up."""


class WorkBudget:
    """The remaining units of work; spending more raises Exhausted."""

    __slots__ = ("left",)

    def __init__(self, units: int) -> None:
        self.left = units

    def spend(self, units: int) -> None:
        self.left -= units
        if self.left < 0:
            raise Exhausted
