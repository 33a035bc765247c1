"""What gateways leave on this machine: one store for each configuration, and not for ever."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from pegboard.gateway.state_folder import UNUSED_DAYS, state_folder, store_path
from pegboard.stores.sqlite.database_file import connect, prepare


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_STATE", str(tmp_path / "state"))


def age(*files: Path, days: float = UNUSED_DAYS + 1) -> None:
    then = time.time() - days * 24 * 3600
    for file in files:
        os.utime(file, (then, then))


def a_store(name: str) -> Path:
    path = store_path(name)
    prepare(path)
    return path


def left() -> list[str]:
    return sorted(file.name for file in state_folder().iterdir())


def test_each_configuration_has_its_own_store_and_always_the_same() -> None:
    assert store_path("a/pegboard.json") == store_path("a/pegboard.json") != store_path("b/pegboard.json")
    assert store_path("a/pegboard.json").parent == state_folder()


def test_stores_of_gateways_unused_for_long_are_removed() -> None:
    old, recent, own = a_store("old.json"), a_store("recent.json"), a_store("own.json")
    age(old, own)
    age(recent, days=UNUSED_DAYS - 1)

    assert store_path("own.json") == own
    assert left() == sorted([own.name, recent.name])


def test_a_store_that_is_in_use_stays_however_old_it_is() -> None:
    store = a_store("used.json")
    connection = connect(store)
    try:
        connection.execute("SELECT count(*) FROM sessions").fetchone()
        age(*state_folder().iterdir())
        store_path("other.json")
        assert store.exists()
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
        connection.execute("INSERT INTO leases VALUES ('x', 1)")
    finally:
        connection.close()
    age(*state_folder().iterdir())
    store_path("other.json")
    assert left() == []


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    folder = a_store("ours.json").parent
    foreign = folder / "notes-0123456789ab.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    elsewhere = tmp_path / "elsewhere.sqlite"
    prepare(elsewhere)
    (folder / "linked-0123456789ab.sqlite").symlink_to(elsewhere)
    (folder / "folder-0123456789ab.sqlite").mkdir()
    (folder / "text-0123456789ab.sqlite").write_text("no database")
    prepare(folder / "mine.sqlite")
    (folder / "tokens").mkdir()
    before = left()
    age(*folder.iterdir(), elsewhere)

    store_path("ours.json")
    assert left() == before
    assert elsewhere.exists()
