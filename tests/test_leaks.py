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

leaks.GRACE = 0.05
kept = []

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


def run(folder: Path, source: str, *options: str) -> str:
    """What pytest reports for these tests with the plugins of all our tests."""
    file = folder / "test_sample.py"
    file.write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", ROOT / "pyproject.toml"]
    ended = subprocess.run(
        [*command, "--rootdir", folder, "-p", "no:cacheprovider", *options, file],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(tmp_path_factory.mktemp("leaking"), LEAKING)


@pytest.mark.parametrize(
    ("test", "left"),
    [
        ("thread", r"this test left behind:\nthe thread 'lingering', started at .*test_sample\.py:\d+"),
        ("task", r"this test left behind:\nthe task 'lingering' of <coroutine object Event\.wait"),
        (
            "child_process",
            r"this test left behind:\nthe child process \d+ \(.*lingering\), started at .*test_sample\.py:\d+",
        ),
        ("dead_child_process", r"this test left behind:\nthe child process \d+ \(ended, and nothing waited for it\)"),
        ("socket", r"this test left behind:\nthe socket \d+ socket:"),
        ("file_descriptor", r"this test left behind:\nthe file descriptor \d+ .*test_sample\.py"),
        ("temporary_folder", r"this test left behind:\nthe temporary file or folder .*/lingering-"),
        ("task_of_a_property", r"this test left behind:\nthe task 'lingering'"),
        ("fixture", r"this test left behind:\nthe socket \d+ socket:"),
        ("module_fixture", r"the module fixture 'unclosed' left behind:\nthe socket \d+ socket:"),
    ],
)
def test_a_test_that_leaves_something_behind_is_an_error_that_says_what(report: str, test: str, left: str) -> None:
    parts = re.split(r"^_+ ERROR at teardown of test_(\w+) _+$", report, flags=re.MULTILINE)
    errors = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert re.search(left, errors[test]), report


def test_each_leak_is_counted_once_and_for_no_other_test(report: str) -> None:
    assert "10 passed, 10 errors" in report


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["in one process", "in two"])
def test_what_fixtures_share_or_close_and_what_is_about_to_end_is_not_reported(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    report = run(tmp_path, CLEAN, *options)
    assert re.search(r"\b6 passed in ", report), report
