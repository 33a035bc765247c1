"""Which board `pegboard dev` serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from pegboard.cli.arguments.target_argument import find_target
from pegboard.cli.completion.verb_usage import usage_of
from pegboard.errors import SetupError
from pegboard.server.debugging import may_debug
from pegboard.server.serving_options import ServingOptions, resolve_options


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_board_that_a_project_names_is_served(tmp_path: Path) -> None:
    tmp_path.joinpath("pyproject.toml").write_text('[tool.pegboard]\nboard = "shop:board"\n')
    tmp_path.joinpath("board.py").touch()
    assert find_target() == "."


def test_else_a_file_with_a_usual_name_is_served(tmp_path: Path) -> None:
    tmp_path.joinpath("pyproject.toml").write_text("[project]\n")
    tmp_path.joinpath("server.py").touch()
    assert find_target() == "."


def test_else_the_configuration_is_served(tmp_path: Path) -> None:
    tmp_path.joinpath("pegboard.json").touch()
    assert find_target() == "pegboard.json"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, True),
        ({"host": "::1"}, True),
        ({"uds": "socket"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"trusted_proxy": "10.0.0.1"}, False),
        ({"allow_host": ["localhost"]}, True),
        ({"allow_host": ["shop.example.com"]}, False),
    ],
)
def test_tracebacks_are_shown_where_every_caller_is_on_this_machine(given: ServingOptions, shown: bool) -> None:
    assert may_debug(resolve_options(given, {})) is shown


def test_a_folder_without_a_board_says_how_to_make_one() -> None:
    with pytest.raises(SetupError, match="pegboard new NAME"):
        find_target()


def test_flags_that_a_server_that_reloads_cannot_follow_are_not_offered() -> None:
    offered = {name for flag in usage_of("dev").flags for name in flag.names}
    assert {"--port", "--http"} <= offered
    assert offered.isdisjoint({"--stdio", "--workers"})
