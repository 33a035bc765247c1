"""The check of tests/leaks.py: a test that leaves something behind is an error, and its report says what and whence."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Each test and each fixture leaks what its name says. The process that runs them ends soon after.
LEAKING = """
import asyncio, os, socket, subprocess, sys, tempfile, threading
import pytest
from hypothesis import given, settings, strategies
from tests import leaks

kept = []

@pytest.fixture(scope="module", autouse=True)
def little_grace():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaks, "GRACE", 0.05)
        yield

def keep(thing):
    kept.append(thing)

def test_thread():
    thread = threading.Thread(target=threading.Event().wait, name="lingering", daemon=True)
    thread.start()

async def test_task():
    keep(asyncio.create_task(asyncio.Event().wait(), name="lingering"))

def test_child_process():
    keep(subprocess.Popen([sys.executable, "-c", "input()  # lingering"], stdin=subprocess.PIPE))

def test_dead_child_process():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    keep(child)

def test_socket():
    keep(socket.socket())

def test_file_descriptor():
    keep(open(__file__))

def test_temporary_folder():
    tempfile.mkdtemp(prefix="lingering-")

@settings(max_examples=3)
@given(strategies.booleans())
async def test_task_of_a_property(value):
    keep(asyncio.create_task(asyncio.Event().wait(), name="lingering"))

@pytest.fixture
def opened():
    keep(socket.socket())

def test_fixture(opened): ...

@pytest.fixture(scope="module")
def unclosed():
    keep(socket.socket())
    yield

def test_module_fixture(unclosed): ...
"""

CLEAN = '''
import asyncio, os, socket, subprocess, sys, tempfile, threading
import pytest

class Held:
    """A thread, a child process, a socket, a file and a folder, each open until it is closed."""

    def __init__(self):
        self.end = threading.Event()
        self.more = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        self.child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.socket = socket.socket()
        self.file = open(__file__)
        self.folder = tempfile.TemporaryDirectory()

    def run(self):
        self.more.wait()
        threading.Thread(target=self.end.wait, name="a second").start()
        self.end.wait()

    def close(self):
        self.more.set()
        self.end.set()
        self.child.communicate(b"\\n")
        self.socket.close()
        self.file.close()
        self.folder.cleanup()

@pytest.fixture(scope="module")
def shared():
    held = Held()
    yield held
    held.close()

@pytest.fixture(scope="session")
def shared_by_name(request):
    held = Held()
    yield held
    held.close()

@pytest.fixture
def own():
    held = Held()
    yield held
    held.close()

def test_first(shared, own): ...

def test_second(shared, own):
    shared.more.set()
    while not any(thread.name == "a second" for thread in threading.enumerate()): ...

def test_by_name(request):
    assert request.getfixturevalue("shared_by_name").thread.is_alive()

def test_after_it(shared_by_name):
    assert shared_by_name.thread.is_alive()

async def test_what_is_about_to_end():
    asyncio.get_running_loop().call_later(0.02, asyncio.ensure_future, asyncio.sleep(0))
    asyncio.create_task(asyncio.sleep(0.05))
    threading.Timer(0.05, int).start()

class Cycle:
    def __init__(self):
        self.itself = self
        self.pipe = os.pipe()

    def __del__(self):
        for end in self.pipe:
            os.close(end)

def test_garbage_that_closes_itself():
    Cycle()
'''


def run(folder: Path, *options: str, **sources: str) -> str:
    """What pytest reports for these files with the plugins of all our tests."""
    for name, source in sources.items():
        (folder / f"test_{name}.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", ROOT / "pyproject.toml"]
    ended = subprocess.run(
        [*command, "--rootdir", folder, "-p", "no:cacheprovider", *options, folder],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(tmp_path_factory.mktemp("leaking"), clean=CLEAN, leaking=LEAKING)


LEAKS = {
    "thread": r"the thread 'lingering', started at .*test_leaking\.py:\d+",
    "task": r"the task 'lingering' of <coroutine object Event\.wait",
    "child_process": r"the child process \d+ \(.*lingering\), started at .*test_leaking\.py:\d+",
    "dead_child_process": r"the child process \d+ \(ended, and nothing waited for it\)",
    "socket": r"the socket \d+ socket:",
    "file_descriptor": r"the file descriptor \d+ .*test_leaking\.py",
    "temporary_folder": r"the temporary file or folder .*/lingering-",
    "task_of_a_property": r"the task 'lingering'",
    "fixture": r"the socket \d+ socket:",
    "module_fixture": r"the socket \d+ socket:",
}


@pytest.mark.parametrize("test", LEAKS)
def test_a_test_that_leaves_something_behind_is_an_error_that_says_what(report: str, test: str) -> None:
    parts = re.split(r"^_+ ERROR at teardown of test_(\w+) _+$", report, flags=re.MULTILINE)
    errors = dict(zip(parts[1::2], parts[2::2], strict=True))
    owner = "the module fixture 'unclosed'" if test == "module_fixture" else "this test"
    assert re.search(f"{owner} left behind:\n{LEAKS[test]}", errors[test]), report


def test_each_leak_is_reported_once_and_what_fixtures_share_or_close_is_not(report: str) -> None:
    assert "16 passed, 10 errors" in report


def test_nothing_of_pytest_xdist_is_taken_for_a_leak(tmp_path: Path) -> None:
    report = run(tmp_path, "-n", "2", clean=CLEAN)
    assert re.search(r"\b6 passed in ", report), report
