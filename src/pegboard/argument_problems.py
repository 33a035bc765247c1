"""What is wrong with the arguments of a call, and what was repaired, as values."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ParseWarning(Struct, frozen=True, gc=False):
    """A value that was repaired, or accepted although it is unusual.

    `path` is where it is, `code` the kind of repair, `message` a sentence for the model, `got` the
    value as sent and `became` the value that the tool gets.
    """

    path: str
    code: str
    message: str
    got: Any
    became: Any


class ParseError(Struct, frozen=True, gc=False):
    """A value that does not match the schema.

    `path` is where it is, `code` the kind of problem, `message` a sentence for the model and `got` the
    value as sent.
    """

    path: str
    code: str
    message: str
    got: Any
