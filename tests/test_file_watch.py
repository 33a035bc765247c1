"""Edits of files are noticed once they are finished, and only if the content differs."""

from __future__ import annotations

import os
import py_compile
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from pegboard.file_watch import FileWatch, forget_bytecode


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "tools.py"
    made.write_text("one")
    return made


def followed(*paths: Path) -> FileWatch:
    watch = FileWatch()
    watch.follow(paths, time.time() + 1)
    return watch


def test_an_edit_counts_when_the_file_has_looked_the_same_twice(file: Path) -> None:
    watch = followed(file)
    assert watch.look() == []
    file.write_text("twelve")
    assert [watch.look(), watch.look(), watch.look()] == [[], [file], []]


def test_a_file_that_is_only_touched_does_not_count(file: Path) -> None:
    watch = followed(file)
    os.utime(file, (1, 1))
    assert [watch.look(), watch.look(), watch.look()] == [[], [], []]


def test_a_file_that_was_written_while_it_was_loaded_counts(file: Path) -> None:
    watch = FileWatch()
    watch.follow([file], file.stat().st_mtime - 1)
    assert [watch.look(), watch.look()] == [[], [file]]


def test_a_file_that_is_removed_and_comes_back_counts_twice(file: Path) -> None:
    watch = followed(file)
    file.unlink()
    assert [watch.look(), watch.look()] == [[], [file]]
    file.write_text("one")
    assert [watch.look(), watch.look()] == [[], [file]]


def test_a_folder_counts_when_a_module_is_added_to_it(file: Path) -> None:
    watch = followed(file.parent)
    file.with_name("notes.txt").touch()
    assert [watch.look(), watch.look()] == [[], []]
    file.with_name("more.py").touch()
    assert [watch.look(), watch.look()] == [[], [file.parent]]


def test_files_that_are_followed_again_keep_what_is_known_of_them(file: Path) -> None:
    watch = followed(file)
    file.write_text("twelve")
    watch.follow([file], time.time() + 1)
    assert [watch.look(), watch.look()] == [[], [file]]


def imported(file: Path) -> Any:
    spec = spec_from_file_location("edited", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_edit_of_the_same_size_within_one_second_is_compiled_again(file: Path) -> None:
    for text in ("value = 1", "value = 2"):
        file.write_text(text)
        os.utime(file, (5, 5))
        if text == "value = 1":
            py_compile.compile(str(file))
    assert imported(file).value == 1
    forget_bytecode(file)
    assert imported(file).value == 2
