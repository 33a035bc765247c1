"""Finds the board in a Python file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from pegboard.board import Board
from pegboard.errors import PegboardError, SetupError
from pegboard.tools.naming import suggest


def load_board(target: str) -> Board:
    """The board of `FILE` or `FILE:NAME`."""
    path_text, name = _split(target)
    module = _load(Path(path_text))
    if name:
        board = getattr(module, name, None)
        if isinstance(board, Board):
            return board
        known = [key for key, value in vars(module).items() if isinstance(value, Board)]
        hint = f"; it has {', '.join(known)}" if known else ""
        raise SetupError(f"{path_text}: {name!r} is not a Board{hint}")
    boards = {key: value for key, value in vars(module).items() if isinstance(value, Board)}
    if len({id(board) for board in boards.values()}) == 1:
        return next(iter(boards.values()))
    for key in ("board", "app", "server", "mcp"):
        if key in boards:
            return boards[key]
    if boards:
        raise SetupError(f"{path_text} has several boards; name one, for example {path_text}:{next(iter(boards))}")
    raise SetupError(f"{path_text} has no board; add one: from pegboard import Board; board = Board('name')")


def _split(target: str) -> tuple[str, str]:
    path, colon, name = target.rpartition(":")
    return (path, name) if colon and name.isidentifier() else (target, "")


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        near = suggest(path.name, [file.name for file in path.parent.glob("*.py")]) if path.parent.is_dir() else []
        hint = f", did you mean {path.parent / near[0]}?" if near else ""
        raise SetupError(f"File not found: {path}{hint}")
    # A prefix, so that a file with the name of a loaded module does not replace it.
    name = path.stem if path.stem not in sys.modules else f"pegboard_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SetupError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # Appended, so that a file beside the board does not shadow a library.
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except PegboardError:
        raise
    except SyntaxError as error:
        raise SetupError(f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}") from error
    except Exception as error:
        lines = traceback.extract_tb(error.__traceback__)
        mine = [line for line in lines if Path(line.filename).resolve() == path.resolve()] or lines[-1:]
        raise SetupError(f"{path}:{mine[-1].lineno}: {type(error).__name__}: {error}") from error
    return module
