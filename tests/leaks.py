"""A test that leaves something behind is an error: a thread, a task, a child process, a socket, a file, a folder.

Theory of operation. What the process holds is compared before the first fixture of a test is set up and after its last one
is torn down. A fixture of a wider scope (class, module, package, session) owns what appears while it is set up and the
threads that its threads start later; all this has to be gone when that fixture has been torn down. That is the one way in
which tests share something on purpose. Where something seems to be left, garbage is collected and the check waits, within a
bound, for whatever is about to end. Tasks are looked for by the loop that runs a test, before it cancels them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.resources import Resource, note_origins, snapshot

try:
    import uvloop
except ImportError:  # uvloop does not exist on every platform
    uvloop = None

GRACE = 5.0
"""How long something that is about to end may take; only a leak waits for all of it."""

_owners: dict[Resource, set[Resource]] = {}
"""What fixtures of wider scopes own now, each with all that its fixture owns."""

_tasks: list[str] = []
_last_file = [""]


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    """Fail the test that leaves something behind."""
    before = snapshot()
    _tasks.clear()
    yield
    _fail_for("this test", [*_tasks, *_lasting(lambda: snapshot() - before - _owners.keys())])


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """Let a fixture of a wider scope own what it opens."""
    if fixturedef.scope == "function":
        return (yield)
    before, others = snapshot(), set(_owners)
    owned: set[Resource] = set()

    def check() -> None:
        left = _lasting(lambda: snapshot() & owned)
        for resource in list(owned):
            del _owners[resource]
        _fail_for(f"the {fixturedef.scope} fixture {fixturedef.argname!r}", left)

    # The first finalizer to be added runs last, after the fixture's own.
    fixturedef.addfinalizer(check)
    try:
        return (yield)
    finally:
        # What other fixtures opened meanwhile, by `getfixturevalue`, belongs to them.
        owned.update(snapshot() - before - (_owners.keys() - others))
        _owners.update(dict.fromkeys(owned, owned))


def _inherit(thread: Resource, parent: Resource) -> None:
    """What a thread of a fixture starts belongs to that fixture too."""
    owned = _owners.get(parent)
    if owned is not None:
        owned.add(thread)
        _owners[thread] = owned


async def note_tasks() -> None:
    """Note which other tasks of this loop do not end: its runner would cancel them silently."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, pending = await asyncio.wait(others, timeout=GRACE)
        _tasks.extend(map(_describe, pending))


def _lasting(look: Callable[[], set[Resource]]) -> set[Resource]:
    """What is still there after garbage was collected and whatever was about to end has ended."""
    # Counted and not read from the clock: on a busy machine, all of this takes longer.
    waited, pause = 0.0, 0.002
    while (found := look()) and waited < GRACE:
        # Most things end by themselves within milliseconds; collecting garbage takes longer than that.
        if pause > 0.1:
            # What was alive when memory was settled may be garbage by now. To search all of it takes a third of a second.
            gc.unfreeze()
        if pause > 0.01:
            gc.collect()
        if pause > 0.1:
            gc.freeze()
        time.sleep(pause)
        waited += pause
        pause = min(2 * pause, 1.0)
    return found


def _describe(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    place = f", at {frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else ""
    return f"the task {task.get_name()!r} of {task.get_coro()}{place}"


def _fail_for(owner: str, left: Iterable[object]) -> None:
    lines = sorted(map(str, left))
    if lines:
        pytest.fail("\n".join([f"{owner} left behind:", *lines]), pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    # The first loop of libuv opens a pipe that stays for as long as the process lives.
    if uvloop is not None:
        uvloop.new_event_loop().close()
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    note_origins(patch, _inherit)
    # Each process of a run has a temporary folder of its own, so that nothing else makes entries there. Pytest keeps its
    # folders for a while, in the usual place.
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ:
        patch.setenv("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    own = tempfile.mkdtemp(prefix="pegboard-")
    config.add_cleanup(lambda: shutil.rmtree(own, ignore_errors=True))
    patch.setenv("TMPDIR", own)
    patch.setattr(tempfile, "tempdir", own)


def pytest_collection_finish() -> None:
    _settle_memory()


def pytest_runtest_logfinish(location: tuple[str, int | None, str]) -> None:
    if location[0] != _last_file[0]:
        _last_file[0] = location[0]
        _settle_memory()


def _settle_memory() -> None:
    """Take what is there for what stays, so that collecting garbage, which many tests do, need not search all of it."""
    gc.collect()
    gc.freeze()
