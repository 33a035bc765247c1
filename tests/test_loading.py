"""Finding the board that a target names."""

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


def test_a_mistake_in_a_composition_names_the_line_that_made_it(tmp_path: Path) -> None:
    file = tmp_path / "composed.py"
    composed = "from pegboard import Board\nboard = Board('shop')\n@board.tool\ndef add(a: int) -> int:\n    return a\n"
    file.write_text(composed + "board.add(board.tools.find('add').transformed(name='more', arguments={'count': {}}))\n")
    with pytest.raises(SetupError, match=r"composed\.py:6: add has no argument 'count'; it has a"):
        load_board(str(file))
    file.write_text(composed + "board.mount(board, prefix='own')\n")
    with pytest.raises(SetupError, match=r"composed\.py:6: mount: 'shop' cannot contain itself"):
        load_board(str(file))


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


# -- packages, modules and folders -------------------------------------------------------------------------------------

SERVER = "from pegboard import Board\nfrom .stock import count\nboard = Board(f'shop {count}')\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with its package in `src`."""
    package = tmp_path / "src" / "pegboard_test_shop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "stock.py").write_text("count = 3\n")
    (package / "server.py").write_text(SERVER)
    return tmp_path


def test_a_file_in_a_package_can_use_relative_imports(project: Path) -> None:
    assert load_board(str(project / "src" / "pegboard_test_shop" / "server.py")).name == "shop 3"


@pytest.mark.parametrize("target", ["pegboard_test_shop.server", "pegboard_test_shop.server:board"])
def test_a_module_is_found_in_the_folder_and_its_src(
    project: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(project)
    assert load_board(target).name == "shop 3"


def test_the_package_itself_can_hold_the_board(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "src" / "pegboard_test_shop" / "__init__.py").write_text(ONE)
    monkeypatch.chdir(project)
    assert load_board("pegboard_test_shop").name == "one"
    assert load_board("src/pegboard_test_shop/__init__.py").name == "one"


@pytest.mark.parametrize("entry", ["pegboard_test_shop.server:board", "src/pegboard_test_shop/server.py"])
def test_a_folder_names_its_board_in_pyproject_toml(project: Path, entry: str) -> None:
    (project / "pyproject.toml").write_text(f'[tool.pegboard]\nboard = "{entry}"\n')
    assert load_board(str(project)).name == "shop 3"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "is a folder without a pyproject.toml; name a file, or add"),
        ("[project]\n", 'does not name a board; add [tool.pegboard] with board = "package.module:board"'),
        ("[tool.pegboard]\nboard = 3\n", "does not name a board"),
        ("[tool\n", "pyproject.toml: "),
    ],
)
def test_a_folder_that_names_no_board_is_rejected_with_the_fix(tmp_path: Path, text: str | None, told: str) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(SetupError) as rejected:
        load_board(str(tmp_path))
    assert told in str(rejected.value)


def test_an_import_error_names_the_file_and_line_where_it_happened(project: Path) -> None:
    (project / "src" / "pegboard_test_shop" / "stock.py").write_text("import json\ncount = json.loads('{')\n")
    with pytest.raises(SetupError, match=r"stock\.py:2: JSONDecodeError: "):
        load_board(str(project / "src" / "pegboard_test_shop" / "server.py"))


def test_an_unknown_module_is_rejected_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SetupError, match=r"no_such_package\.server: ModuleNotFoundError: No module named"):
        load_board("no_such_package.server:board")


def test_a_run_in_a_file_does_not_serve_while_the_file_is_imported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load_board(written(tmp_path, ONE + "board.run(port=0)\n")).name == "one"
    assert "one: run() is ignored while the file is imported" in caplog.text


def test_a_file_that_ends_the_program_is_rejected_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "ends.py"
    file.write_text("import sys\nsys.exit('no key')\n")
    with pytest.raises(SetupError, match=r"ends\.py:2: .* ends the program .*SystemExit: no key.*__main__"):
        load_board(str(file))


def test_a_file_with_a_usual_name_is_the_board_of_a_folder_whose_project_names_none(tmp_path: Path) -> None:
    (tmp_path / "board.py").write_text("from pegboard import Board\nboard = Board('usual')\n")
    assert load_board(str(tmp_path)).name == "usual"
    (tmp_path / "pyproject.toml").write_text("[tool")
    with pytest.raises(SetupError, match="pyproject"):
        load_board(str(tmp_path))
