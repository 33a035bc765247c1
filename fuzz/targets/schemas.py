"""Schemas that a server declares: accepted or refused as a declaration, and judged in bounded time."""

from __future__ import annotations

import msgspec

from pegboard.errors import DeclarationError
from pegboard.repair.repairer import Repairer
from pegboard.schema.schema_check import check_schema

VALUES: tuple[dict[str, object], ...] = ({}, {"a": 1}, {"a": {"a": {"a": []}}}, {"a": "true", "b": None, "": [{}]})


def check(data: bytes) -> None:
    try:
        schema = msgspec.json.decode(data, type=dict[str, object])
        check_schema(schema, "fuzz")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, DeclarationError):
        return
    repairer = Repairer(schema)
    for value in VALUES:
        repaired = repairer.repair(value)
        assert repaired.errors or repairer.repair(repaired.value).value == repaired.value
