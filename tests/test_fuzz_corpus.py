"""Every input of the fuzzers' corpus, what they found included, keeps the promises of its reader within its time."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parent.parent / "fuzz"
TARGETS = sorted(file.stem for file in (FUZZ / "targets").glob("[a-z]*.py"))
SECONDS = 0.1
"""CPU time for one input; what the first input of a target compiles is not counted."""


def test_every_target_has_seeds_and_every_seed_a_target() -> None:
    assert sorted(folder.name for folder in (FUZZ / "corpus").iterdir()) == TARGETS
    assert all(any((FUZZ / "corpus" / target).iterdir()) for target in TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_read_as_promised(target: str) -> None:
    check = importlib.import_module(f"fuzz.targets.{target}").check
    files = sorted((FUZZ / "corpus" / target).iterdir())
    check(files[0].read_bytes())
    for file in files:
        data = file.read_bytes()
        began = time.thread_time()
        try:
            check(data)
        except Exception as error:
            error.add_note(f"the input is {file.relative_to(FUZZ.parent)}")
            raise
        assert time.thread_time() - began < SECONDS, file
