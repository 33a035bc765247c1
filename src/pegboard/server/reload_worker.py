"""The worker that loads a version of a program and serves it, and the function that starts its parent."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pegboard.background_tasks import OwnedTasks
from pegboard.errors import SetupError
from pegboard.logs.log_lines import announce_lines
from pegboard.server.http.listener import BACKLOG, WorkerSockets
from pegboard.server.http_serving import address, end_seconds, serve_in_worker
from pegboard.server.reloader import Loaded, Reloader, Version
from pegboard.server.serving_options import ServingOptions
from pegboard.server.shared_store import ServedApp
from pegboard.server.worker_process import WorkerControl

_MOST_FILES: Final = 2000


class LoadedApp(NamedTuple):
    """What was loaded, and what to print once it is served at a URL for the first time."""

    served: ServedApp
    announce: Callable[[str], None]


def run_reloading(load: Callable[[], LoadedApp], options: ServingOptions, files: Sequence[Path]) -> None:
    """Serve what `load` returns, and load it again after an edit, until a signal.

    load: called in a new process each time; raises SetupError if there is a mistake.
    files: what is looked at until a version could be loaded.
    """
    if options["transport"] == "stdio":
        raise SetupError(
            "`pegboard dev` and --reload are for HTTP: the client of a server on stdio starts it again itself"
        )
    if options["workers"] > 1:
        raise SetupError("`pegboard dev` and --reload serve with one worker: omit --workers and PEGBOARD_WORKERS")
    options["transport"] = "http"
    sockets = WorkerSockets(1, options["host"], options["port"], options["uds"])
    url = address(options, sockets.port)
    for listening in sockets.take(0):
        # Connections wait here until a version can be loaded.
        listening.listen(BACKLOG)
    try:
        with _shared_store(options):
            work = _Work(load, options, sockets, url)
            Reloader(work, [path.resolve() for path in files], end_seconds=end_seconds(options)).run()
    finally:
        sockets.close()


@contextlib.contextmanager
def _shared_store(options: ServingOptions) -> Iterator[None]:
    """In place of memory, a file that lives as long as this process: one version leaves its state there for the next."""
    if options["store"] != "memory":
        yield
        return
    with tempfile.TemporaryDirectory(prefix="pegboard-dev-", ignore_cleanup_errors=True) as folder:
        options["store"] = f"sqlite:{folder}/store.db"
        yield


class _Work:
    """What a worker does: load, report what was loaded, serve."""

    def __init__(
        self, load: Callable[[], LoadedApp], options: ServingOptions, sockets: WorkerSockets, url: str
    ) -> None:
        self._load = load
        self._options = options
        self._sockets = sockets
        self._url = url

    def __call__(self, version: Version, control: WorkerControl) -> None:
        began = time.monotonic()
        try:
            app = self._load()
        except SetupError as problem:
            _report(control, Loaded(files=_with_neighbours(_own_files()), problem=str(problem)))
            return
        lists = app.served.list_digests()
        changed = [kind for kind in lists if not version.is_first and lists[kind] != version.lists.get(kind)]
        tasks = OwnedTasks()

        async def announce() -> None:
            # Published before the version before has to leave, so that its subscribers still get it.
            await app.served.announce_changes(changed)
            _report(control, Loaded(files=_own_files(), lists=lists))
            control.ready()
            if version.is_first:
                app.announce(self._url)
            else:
                _announce_reload(version, changed, time.monotonic() - began)

        app.served.listens_at(self._url)
        serve_in_worker(
            app.served,
            self._options,
            self._sockets.take(0),
            control,
            lambda: tasks.start(announce()),
            is_first=version.is_first,
        )


def _announce_reload(version: Version, changed: Sequence[str], seconds: float) -> None:
    lists = f"; changed: {', '.join(changed)}" if changed else ""
    announce_lines([f"reloaded in {seconds:.2f} s after an edit of {', '.join(version.edited[:5])}{lists}"])


def _report(control: WorkerControl, loaded: Loaded) -> None:
    control.say(msgspec.json.encode(loaded).decode())


def _own_files() -> list[str]:
    """The files of the modules that belong to the program: not those of Python, of libraries or of Pegboard."""
    libraries = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")}
    libraries.add(Path(__file__).resolve().parents[1])
    found = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            path = Path(file).resolve()
            if not any(path.is_relative_to(library) for library in libraries):
                found.append(str(path))
    return found[:_MOST_FILES]


def _with_neighbours(files: Sequence[str]) -> list[str]:
    """Also the folders of these files and the modules there: the mistake may be in one that could not be imported."""
    folders = {Path(file).parent for file in files}
    beside = [str(path) for folder in folders for path in sorted(folder.glob("*.py"))]
    return [*dict.fromkeys([*files, *map(str, folders), *beside])][:_MOST_FILES]
