"""Finds the board that a target names: a file, a module or a folder with a `pyproject.toml`."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import sys
import sysconfig
import tomllib
import traceback
from collections.abc import Callable
from importlib.machinery import FileFinder
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

from pegboard.board import Board
from pegboard.errors import PegboardError, SetupError
from pegboard.server.hosting import loading
from pegboard.tools.naming import suggest
from pegboard.tools.signature import source_of, unwrap
from pegboard.tools.tool_discovery import mark_of

TARGET: Final = "FILE, package.module or FOLDER"
"""The forms of a target, for texts; each can be followed by `:NAME`, the name of the board."""

FILES: Final = ("board.py", "server.py", "app.py", "main.py", "tools.py")
"""The usual names of a file with a board, for folders whose `pyproject.toml` names none."""

_log = logging.getLogger("pegboard")

_LOCATED: Final = re.compile(r".+\.py:\d+: ")
"""The beginning of a message that names its line already."""

Loaded = TypeVar("Loaded")


def load_board(target: str) -> Board:
    """The board of `FILE`, `package.module` or `FOLDER`, or of one of them followed by `:NAME`."""
    place, name = _split(target)
    path = Path(place)
    if path.is_dir():
        place, inner = _split(_read_folder(path))
        name = name or inner
        module = _import_target(place, path)
    else:
        module = _import_target(place, Path())
    board = _find_board(module, place, name)
    _report_lost(module, board)
    return board


def files_of(target: str) -> list[Path]:
    """The files that decide what a target is, as far as they are known before it is loaded: a mistake may be in them."""
    place, _ = _split(target)
    path = Path(place)
    if path.is_dir():
        return [path / name for name in ("pyproject.toml", *FILES) if (path / name).is_file()]
    return [path] if path.suffix == ".py" else []


def _report_lost(module: ModuleType, board: Board) -> None:
    """Warn about functions that are marked with `@tool`, and that nothing added."""
    added = {id(unwrap(tool.function)) for tool in board.tools if hasattr(tool, "function")}
    for name, value in vars(module).items():
        is_own = mark_of(value) is not None and getattr(value, "__module__", "") == module.__name__
        if is_own and id(unwrap(value)) not in added:
            _log.warning(
                "%s: %s is marked with @tool, but no board has it; use @board.tool, or board.discover(__name__) at the end of "
                "the file",
                source_of(value),
                name,
            )


def _find_board(module: ModuleType, place: str, name: str) -> Board:
    boards = {key: value for key, value in vars(module).items() if isinstance(value, Board)}
    if name:
        board = getattr(module, name, None)
        if isinstance(board, Board):
            return board
        hint = f"; it has {', '.join(boards)}" if boards else ""
        raise SetupError(f"{place}: {name!r} is not a Board{hint}")
    if len({id(board) for board in boards.values()}) == 1:
        return next(iter(boards.values()))
    for key in ("board", "app", "server", "mcp"):
        if key in boards:
            return boards[key]
    if boards:
        raise SetupError(f"{place} has several boards; name one, for example {place}:{next(iter(boards))}")
    raise SetupError(f"{place} has no board; add one: from pegboard import Board; board = Board('name')")


def _split(target: str) -> tuple[str, str]:
    place, colon, name = target.rpartition(":")
    return (place, name) if colon and name.isidentifier() else (target, "")


def names_board(folder: Path) -> bool:
    """Whether the `pyproject.toml` of a folder names a board."""
    return _read_project(folder) is not None


def has_board(folder: Path) -> bool:
    """Whether a folder is a target: its `pyproject.toml` names a board, or it has a file with a usual name."""
    return _find_in(folder) is not None


def _read_folder(folder: Path) -> str:
    """The target in a folder; SetupError if there is none."""
    found = _find_in(folder)
    if found is not None:
        return found
    example = 'add [tool.pegboard] with board = "package.module:board"'
    file = folder / "pyproject.toml"
    if not file.is_file():
        raise SetupError(f"{folder} is a folder without a pyproject.toml; name a file, or {example} to one")
    raise SetupError(f"{file} does not name a board; {example}")


def _find_in(folder: Path) -> str | None:
    return _read_project(folder) or next((name for name in FILES if (folder / name).is_file()), None)


def _read_project(folder: Path) -> str | None:
    """The target that the `pyproject.toml` of a folder names."""
    file = folder / "pyproject.toml"
    if not file.is_file():
        return None
    try:
        entry = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("pegboard", {}).get("board")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(f"{file}: {error}") from None
    if entry is not None and not isinstance(entry, str):
        raise SetupError(f"{file} does not name a board: [tool.pegboard] has board = {entry!r:.80}, expected a text")
    return entry


def _import_target(place: str, folder: Path) -> ModuleType:
    """Import a file or a module, looked for in `folder` and its `src`."""
    path = folder / place
    if path.is_file():
        return _import_file(path)
    if all(part.isidentifier() for part in place.split(".")) and not place.endswith(".py"):
        roots = [root for root in (folder.resolve(), folder.resolve() / "src") if root.is_dir()]
        return _import_module(place, roots)
    near = suggest(path.name, [file.name for file in path.parent.glob("*.py")]) if path.parent.is_dir() else []
    hint = f", did you mean {path.parent / near[0]}?" if near else ""
    raise SetupError(f"File not found: {path}{hint}")


def _import_file(path: Path) -> ModuleType:
    """Import a file: as part of its package, so that relative imports work, or by itself."""
    root, names = path.resolve().parent, [path.stem]
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    if len(names) > 1:
        return _import_module(".".join(names[:-1] if path.stem == "__init__" else names), [root])
    # A prefix, so that a file with the name of a loaded module does not replace it.
    name = path.stem if path.stem not in sys.modules else f"pegboard_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    loader = None if spec is None else spec.loader
    if spec is None or loader is None:
        hint = (
            f"; a configuration is served with `pegboard up {path}`"
            if path.suffix in (".json", ".toml")
            else "; name a file that ends in .py"
        )
        raise SetupError(f"{path} is not a Python file{hint}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _extend_path([root])
    _run(lambda: loader.exec_module(module), [root], str(path))
    return module


def _import_module(name: str, roots: list[Path]) -> ModuleType:
    _extend_path(roots)
    return _run(lambda: importlib.import_module(name), roots, name)


def _extend_path(roots: list[Path]) -> None:
    # Appended, so that a file beside the board does not shadow a library.
    sys.path.extend(str(root) for root in roots if str(root) not in sys.path)
    # As `importlib.invalidate_caches()`, which would also import `importlib.metadata`, and with it thirty modules.
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, FileFinder):
            finder.invalidate_caches()


def _run(load: Callable[[], Loaded], roots: list[Path], target: str) -> Loaded:
    """Import, and report an error with the file and line where it happened."""
    token = loading.set(True)
    try:
        return load()
    except PegboardError as error:
        place = _where(error, roots)
        if not place or _LOCATED.match(str(error)):
            raise
        raise SetupError(f"{place}: {error}") from error
    except SyntaxError as error:
        _log.debug("importing %s failed", target, exc_info=error)
        raise SetupError(f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}") from error
    except SystemExit as error:
        raise SetupError(
            f"{_where(error, roots) or target}: the file ends the program while it is imported (SystemExit: {error}); "
            "move that below: if __name__ == '__main__':"
        ) from error
    except Exception as error:
        _log.debug("importing %s failed", target, exc_info=error)
        raise SetupError(f"{_where(error, roots) or target}: {type(error).__name__}: {error}") from error
    finally:
        loading.reset(token)


def _where(error: BaseException, roots: list[Path]) -> str:
    """The innermost line of the project's own code that led to an error."""
    libraries = [Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib")]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_file()]
    own = [
        frame
        for frame in frames
        if any(Path(frame.filename).resolve().is_relative_to(root) for root in roots)
        and not any(Path(frame.filename).is_relative_to(library) for library in libraries)
        and not Path(frame.filename).resolve().is_relative_to(Path(__file__).resolve().parent)
    ]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""
