"""The process that loads a program again when its files are edited.

Theory of operation. The parent holds the listening sockets and looks at the files; it never loads the program itself.
A worker, forked from it, loads the program and serves it. After an edit a second worker is forked. If it can load the
program, it accepts connections from then on; the first one gets the order to leave: it accepts nothing new,
finishes the calls that it has, and ends. If the program cannot be loaded, the worker reports why and ends, and the
first one continues. Sessions, resumable streams and changes are in a store that both share, as with `--workers`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from pegboard.file_watch import FileWatch, forget_bytecode
from pegboard.server.worker_process import ParentSignals, WorkerControl, WorkerProcess

_log = logging.getLogger("pegboard")

LOOK_SECONDS: Final = 0.15
MOST_LEAVING: Final = 4
"""How many earlier versions may still finish their calls; the oldest ends first."""


class Loaded(Struct):
    """What a worker reports: the files that it has loaded, a digest of each of its lists, and why it cannot serve."""

    files: Sequence[str] = ()
    lists: Mapping[str, str] = {}
    problem: str = ""


class Version(Struct):
    """What a worker has to know of the version before it, if one is served: its lists, and what was edited since."""

    is_first: bool
    lists: Mapping[str, str] = {}
    edited: Sequence[str] = ()


class Reloader:
    """Serves the newest version that can be loaded, until it is stopped; a worker ends within `end_seconds`.

    work: loads and serves the program in a worker; it reports what it has loaded before it is ready.
    files: what is looked at until a version could be loaded.
    """

    def __init__(
        self,
        work: Callable[[Version, WorkerControl], None],
        files: Sequence[Path],
        *,
        end_seconds: float,
    ) -> None:
        self._work = work
        self._files = tuple(files)
        self._end_seconds = end_seconds
        self._watch = FileWatch()
        self._lists: Mapping[str, str] = {}
        self._forked_at = 0.0
        self._current: WorkerProcess | None = None
        self._successor: WorkerProcess | None = None
        self._leaving: list[WorkerProcess] = []
        self._obeyed = 0
        self._deadline = 0.0
        self._selector = selectors.DefaultSelector()
        self._signals = ParentSignals(self._selector, "--reload", "omit it, and restart after an edit")

    def run(self) -> None:
        """Return when it was stopped and all workers have ended."""
        try:
            with self._signals:
                # Otherwise each worker would search what it shares with this process for garbage.
                gc.collect()
                gc.freeze()
                self._start(())
                while not self._is_over():
                    for key, _ in self._selector.select(self._timeout_seconds()):
                        if isinstance(key.data, WorkerProcess):
                            self._listen(key.data)
                        else:
                            self._signals.clear()
                    self._reap()
                    if not self._signals.stops and (edited := self._watch.look()):
                        self._start(edited)
        finally:
            for worker in self._workers():
                worker.kill()
                self._forget(worker)
            self._selector.close()

    def _workers(self) -> list[WorkerProcess]:
        return [worker for worker in (self._current, self._successor, *self._leaving) if worker is not None]

    def _timeout_seconds(self) -> float:
        return max(0.0, self._deadline - time.monotonic()) if self._signals.stops else LOOK_SECONDS

    def _is_over(self) -> bool:
        """Forward requests to stop; whether all workers have ended, or had the time to."""
        while self._obeyed < self._signals.stops:
            self._obeyed += 1
            if self._obeyed == 1:
                self._deadline = time.monotonic() + self._end_seconds
            for worker in self._workers():
                if not worker.ready:
                    # It may be loading for long, and has no calls.
                    self._end(worker)
                elif self._obeyed == 1:
                    worker.drain()
                else:
                    worker.hurry()
        return self._obeyed > 0 and (not self._workers() or time.monotonic() >= self._deadline)

    def _start(self, edited: Sequence[Path]) -> None:
        """Fork a worker that loads the program as it is now."""
        if self._successor is not None:
            self._end(self._successor)
        for path in edited:
            forget_bytecode(path)
        self._forked_at = time.time()
        self._watch.follow([*self._watch.paths, *self._files], self._forked_at)
        version = Version(self._current is None, self._lists, [path.name for path in edited])
        worker = WorkerProcess.fork(lambda control: self._work(version, control), self._close_in_worker)
        self._selector.register(worker.report, selectors.EVENT_READ, worker)
        self._successor = worker

    def _close_in_worker(self) -> None:
        self._selector.close()
        self._signals.close()
        for other in self._workers():
            other.close()

    def _listen(self, worker: WorkerProcess) -> None:
        if not worker.listen():
            self._selector.unregister(worker.report)
        elif worker is self._successor and worker.ready:
            self._promote(worker)
        if worker.drained:
            worker.release()

    def _promote(self, worker: WorkerProcess) -> None:
        loaded = self._read(worker)
        self._lists = loaded.lists
        before, self._current, self._successor = self._current, worker, None
        if before is not None:
            before.hand_over()
            self._leaving.append(before)
            for oldest in self._leaving[:-MOST_LEAVING]:
                oldest.hurry()

    def _read(self, worker: WorkerProcess) -> Loaded:
        """What a worker has reported; its files are looked at from now on."""
        try:
            loaded = msgspec.json.decode(worker.said or "{}", type=Loaded)
        except msgspec.MsgspecError:
            loaded = Loaded(problem=worker.said)
        if loaded.files:
            # Of a version that could not be loaded, the files of the one that is served are still of interest.
            more = self._watch.paths if loaded.problem else ()
            self._watch.follow([*map(Path, loaded.files), *self._files, *more], self._forked_at)
        return loaded

    def _reap(self) -> None:
        for worker in self._workers():
            code = worker.poll()
            if code is None:
                continue
            leaving, loading = worker in self._leaving, worker is self._successor
            self._forget(worker)
            if loading:
                self._report_failure(worker, code)
            elif not leaving and not self._signals.stops:
                _log.error("the server ended %s; it starts again after the next edit", _how(code))

    def _report_failure(self, worker: WorkerProcess, code: int) -> None:
        problem = self._read(worker).problem or f"the program ended {_how(code)} before it could serve"
        kept = "the previous version is served until it is fixed" if self._current else "waiting for an edit"
        _log.error("%s  (%s)", problem, kept)

    def _end(self, worker: WorkerProcess) -> None:
        worker.kill()
        self._forget(worker)

    def _forget(self, worker: WorkerProcess) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(worker.report)
        worker.close()
        if worker in self._leaving:
            self._leaving.remove(worker)
        elif worker is self._successor:
            self._successor = None
        else:
            self._current = None


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with code {code}"
