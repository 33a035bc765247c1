"""Runs the `pegboard` command as a server that foreign clients can reach."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
PEGBOARD = Path(sys.executable).with_name("pegboard")
START_WITHIN = 20.0
STEP = 0.05
STOP_WITHIN = 60.0


@contextmanager
def serve(*words: str | Path, **env: str) -> Iterator[str]:
    """Runs `pegboard <words> --http --port P` until the block ends; gives the address of its root."""
    port = free_port()
    with running([str(PEGBOARD), *map(str, words), "--http", "--port", str(port)], port, **env) as address:
        yield address


@contextmanager
def running(command: Sequence[str], port: int, **env: str) -> Iterator[str]:
    """Runs a server of ours at a port until the block ends; whatever it meets, it must not have logged a traceback."""
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_healthy(address, process, log)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"{' '.join(command)} ignored SIGTERM for {STOP_WITHIN:g} s") from None
        log.seek(0)
        said = log.read()
        assert "Traceback" not in said, said


def _wait_until_healthy(address: str, process: subprocess.Popen[bytes], log: IO[str]) -> None:
    # Counted in steps and not by the clock, as in `tests/waiting.py`.
    for _ in range(round(START_WITHIN / STEP)):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=START_WITHIN):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(STEP)
    log.seek(0)
    what = "is not healthy" if process.poll() is None else f"ended with status {process.returncode}"
    raise AssertionError(f"{address} {what}; it said:\n{log.read()}")
