"""The roads that every test of this folder is taken on."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from pegboard import Board
from tests.everything.connections import EVERYTHING, InProcess, OverHttp, OverLine, Road
from tests.server_processes import PEGBOARD, HttpChild, StdioChild, WsChild


@pytest.fixture(scope="session")
def served() -> Iterator[HttpChild]:
    with HttpChild(target=EVERYTHING) as child:
        yield child


ROADS = ["direct", *(f"{kind}-{era}" for kind in ("http", "stdio", "ws") for era in ("modern", "legacy"))]


@pytest.fixture(scope="session", params=ROADS)
def road(request: pytest.FixtureRequest, served: HttpChild) -> Iterator[Road]:
    kind, _, era = request.param.partition("-")
    made: Road
    if kind == "direct":
        made = InProcess(_board())
    elif kind == "http":
        made = OverHttp(served, era)
    elif kind == "stdio":
        made = OverLine(StdioChild(*PEGBOARD, "run", EVERYTHING, "--stdio"), kind, era)
    else:
        made = OverLine(WsChild(target=EVERYTHING), kind, era)
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
