"""A Decimal keeps every digit that was written, whatever else has to be repaired beside it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.schema.exact_floats import ExactFloats
from pegboard.schema.types.constraints import Range
from pegboard.tools.tool import Tool, tool_from_function

LONG = "1.123456789012345678901234567890"


@dataclass
class Price:
    amount: Decimal
    currency: str = "EUR"


class Pair(NamedTuple):
    exact: Decimal
    rough: float


class Bill(pydantic.BaseModel):
    total: Decimal


class Shelf(msgspec.Struct):
    price: Decimal
    next: Shelf | None = None


def taking(annotation: Any) -> Tool:
    def pay(what, times: int = 1):  # type: ignore[no-untyped-def]  # annotated below, by the case
        return what, times

    pay.__annotations__["what"] = annotation
    return tool_from_function(pay)


@pytest.mark.parametrize(
    ("annotation", "sent"),
    [
        (Decimal, LONG),
        (Decimal, "1.10"),
        (Decimal, f'"{LONG}"'),
        (Decimal, "123456789012345678901234567890"),
        (Decimal, "1e30"),
        (Decimal | None, LONG),
        (Decimal | bool, LONG),
        (Decimal | int, "1.0"),
        (float, LONG),
        (float | str, LONG),
        (list[Decimal], f"[{LONG}, 1, 2.50]"),
        (dict[str, Decimal], f'{{"a": {LONG}}}'),
        (tuple[Decimal, float], f"[{LONG}, {LONG}]"),
        (Price, f'{{"amount": {LONG}}}'),
        (Price | None, f'{{"amount": {LONG}}}'),
        (Price | Pair, f'{{"amount": {LONG}}}'),
        (Pair, f"[{LONG}, {LONG}]"),
        (Bill, f'{{"total": {LONG}}}'),
        (list[Bill], f'[{{"total": {LONG}}}]'),
        (Shelf, f'{{"price": {LONG}, "next": {{"price": {LONG}}}}}'),
        (Annotated[Decimal, Range(0, 2)], LONG),
    ],
)
def test_a_number_is_bound_alike_whether_another_argument_was_repaired_or_not(annotation: Any, sent: str) -> None:
    tool = taking(annotation)
    fitting = tool.parse(f'{{"what": {sent}, "times": 2}}'.encode())
    repaired = tool.parse(f'{{"what": {sent}, "times": "2"}}'.encode())
    assert (fitting.errors, repaired.errors) == ((), ())
    assert [warning.path for warning in repaired.warnings] == ["times"]
    assert repr(repaired.arguments) == repr(fitting.arguments)


def test_no_digit_is_lost() -> None:
    for annotation, sent, bound in (
        (Decimal, LONG, Decimal(LONG)),
        (list[Decimal], f"[{LONG}]", [Decimal(LONG)]),
        (Price, f'{{"amount": {LONG}}}', Price(Decimal(LONG))),
        (Bill, f'{{"total": {LONG}}}', Bill(total=Decimal(LONG))),
    ):
        for times in ("2", '"2"'):
            parsed = taking(annotation).parse(f'{{"what": {sent}, "times": {times}}}'.encode())
            assert parsed.arguments == {"what": bound, "times": 2}


def test_an_author_s_own_schema_changes_nothing_about_that() -> None:
    def pay(amount: Decimal, times: int) -> None:
        """Pays."""

    schema = {"type": "object", "properties": {"amount": {"type": "number"}, "times": {"type": "integer"}}}
    parsed = tool_from_function(pay, input_schema=schema).parse(f'{{"amount": {LONG}, "times": "2"}}'.encode())
    assert msgspec.structs.astuple(parsed.value.bound) == (Decimal(LONG), 2)
    # As JSON it is what JSON makes of it.
    assert parsed.arguments == {"amount": float(LONG), "times": 2}


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_a_document_is_decoded_as_it_always_is(numbers: list[float]) -> None:
    raw = msgspec.json.encode(numbers)
    digits = ExactFloats()
    decoded = digits.decode(raw)
    assert repr(decoded) == repr(msgspec.json.decode(raw))
    assert [str(digits.exact(number)) for number in decoded] == [
        str(Decimal(text)) for text in raw.decode()[1:-1].split(",") if text
    ]


def test_a_number_from_elsewhere_has_no_digits_to_remember() -> None:
    digits = ExactFloats()
    (number,) = digits.decode(b"[1.10]")
    assert digits.exact(number) == Decimal("1.10")
    assert isinstance(digits.exact(float("1.1")), float)


def test_a_number_beyond_the_float_range_is_rejected() -> None:
    with pytest.raises(msgspec.DecodeError):
        ExactFloats().decode(b"[1e999]")
