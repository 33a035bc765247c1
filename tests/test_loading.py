"""Finding the board in a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pegboard.errors import PegboardError, SetupError
from pegboard.loading import load_board

ONE = "from pegboard import Board\nboard = Board('one')\n"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Loading a file changes what can be imported."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in sys.modules.keys() - modules.keys():
        if not name.startswith("pegboard."):
            del sys.modules[name]
    sys.path[:] = path


def written(folder: Path, text: str, name: str = "served.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_the_only_board_is_found_whatever_it_is_called(tmp_path: Path) -> None:
    assert load_board(written(tmp_path, "from pegboard import Board\nmine = Board('mine')\n")).name == "mine"


def test_a_board_can_be_named(tmp_path: Path) -> None:
    file = written(tmp_path, ONE + "other = Board('two')\n")
    assert load_board(f"{file}:other").name == "two"
    assert load_board(file).name == "one"


def test_one_board_under_two_names_is_one_board(tmp_path: Path) -> None:
    assert load_board(written(tmp_path, "from pegboard import Board\na = b = Board('same')\n")).name == "same"


@pytest.mark.parametrize(
    ("text", "target", "told"),
    [
        ("x = 1\n", "", "has no board; add one"),
        ("from pegboard import Board\na = Board()\nb = Board()\n", "", "several boards; name one"),
        (ONE, ":other", "'other' is not a Board; it has board"),
        ("x = 1\n", ":x", "'x' is not a Board"),
        ("x = 1\n\nraise ValueError('odd')\n", "", "served.py:3: ValueError: odd"),
        ("def f():\n    return 1 +\n", "", "served.py:2: SyntaxError"),
        ("import nowhere_at_all\n", "", "served.py:1: ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path: Path, text: str, target: str, told: str) -> None:
    with pytest.raises(SetupError) as refused:
        load_board(written(tmp_path, text) + target)
    assert told in str(refused.value)


def test_a_file_that_is_not_there_is_refused_with_the_closest_one(tmp_path: Path) -> None:
    written(tmp_path, ONE, "weather.py")
    with pytest.raises(SetupError, match=r"did you mean .*weather\.py"):
        load_board(str(tmp_path / "wether.py"))
    with pytest.raises(SetupError, match="File not found"):
        load_board(str(tmp_path / "nothing" / "here.py"))


def test_a_file_that_is_not_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="not a Python file"):
        load_board(written(tmp_path, "{}", "config.json"))


def test_a_wrong_declaration_names_its_own_line(tmp_path: Path) -> None:
    with pytest.raises(PegboardError, match=r"served\.py"):
        load_board(written(tmp_path, ONE + "@board.tool\ndef f(*args: int) -> None: ...\n"))


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    written(tmp_path, "NAME = 'from next door'\n", "neighbour_of_served.py")
    text = "from neighbour_of_served import NAME\nfrom pegboard import Board\nboard = Board(NAME)\n"
    assert load_board(written(tmp_path, text)).name == "from next door"


def test_a_neighbour_does_not_take_the_place_of_a_library(tmp_path: Path) -> None:
    # One of the standard library and one that is installed, as if neither were in use yet.
    for name in ("wave", "iniconfig"):
        sys.modules.pop(name, None)
        written(tmp_path, "raise RuntimeError('not the library')\n", f"{name}.py")
    text = "import iniconfig, wave\nfrom pegboard import Board\nboard = Board(wave.__name__ + iniconfig.__name__)\n"
    assert load_board(written(tmp_path, text)).name == "waveiniconfig"


def test_a_folder_is_put_on_the_path_once(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        load_board(written(tmp_path, ONE, name))
    assert sys.path.count(str(tmp_path.resolve())) == 1


@pytest.mark.parametrize("name", ["pegboard.py", "json.py", "asyncio.py"])
def test_a_file_called_like_a_module_does_not_take_its_place(tmp_path: Path, name: str) -> None:
    before = sys.modules.get(Path(name).stem)
    assert before is not None
    assert load_board(written(tmp_path, ONE, name)).name == "one"
    assert sys.modules.get(Path(name).stem) is before
