"""The roads that every test of this folder is taken on."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from pegboard import Board
from tests.child import HttpChild
from tests.everything.roads import EVERYTHING, InProcess, OverHttp, OverStdio, Road


@pytest.fixture(scope="session")
def served() -> Iterator[HttpChild]:
    with HttpChild(target=EVERYTHING) as child:
        yield child


@pytest.fixture(scope="session", params=["direct", "http-modern", "http-legacy", "stdio-modern", "stdio-legacy"])
def road(request: pytest.FixtureRequest, served: HttpChild) -> Iterator[Road]:
    kind, _, era = request.param.partition("-")
    made: Road
    if kind == "direct":
        made = InProcess(_board())
    elif kind == "http":
        made = OverHttp(served, era)
    else:
        made = OverStdio(era)
    yield made
    made.close()


def _board() -> Board:
    spec = importlib.util.spec_from_file_location("everything", EVERYTHING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    board: Board = module.board
    return board
