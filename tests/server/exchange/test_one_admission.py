"""A message becomes a Call in one place, whatever transport and revision it came by."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pegboard.server

pytestmark = pytest.mark.same_on_every_python

SERVER = Path(pegboard.server.__file__).parent


def callers_of(name: str) -> set[str]:
    """The modules of the server that call the function or class of that name."""
    return {
        path.relative_to(SERVER).as_posix()
        for path in SERVER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    }


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        # The server itself makes the call by which a session follows the lists.
        ("Call", {"exchange/admission.py", "exchange/change_streams.py"}),
        ("PlainCall", {"exchange/fast_path.py"}),
        ("read_handshake", {"exchange/admission.py"}),
        ("read_envelope", {"exchange/admission.py"}),
        ("read_token", {"exchange/admission.py", "exchange/stateless.py"}),
    ],
)
def test_only_admission_makes_calls_of_messages(name: str, modules: set[str]) -> None:
    assert callers_of(name) == modules
