"""Keeps agents from the network and from the settings of this machine.

Theory of operation. On Linux the bench moves itself into a new network namespace, which has a loopback interface and
nothing else: no request can leave it. Where that is not allowed, proxy variables send requests to a proxy of ours, which
rejects them; a program that ignores these variables is then not stopped. The proxy runs in both cases, because it
records which hosts an agent tried to reach.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from agent_bench.job import ROOT

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1


def leave_the_network() -> bool:
    """Move this process into a namespace with only a loopback interface; whether that was possible."""
    if sys.platform != "linux":
        return False
    import fcntl

    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(_NEW_USER | _NEW_NETWORK):
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, _GET_FLAGS, request))[1]
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))
    return True


class RejectingProxy:
    """An HTTP proxy that rejects every request and remembers its host."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[RejectingProxy]:
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:  # noqa: N805  # `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            def reject(self) -> None:
                host = self.path.removeprefix("http://").partition("/")[0]
                proxy.hosts.add(host.removesuffix(":443"))
                self.send_error(403, "The bench of agents has no network")

            do_CONNECT = do_GET = do_POST = do_HEAD = do_PUT = reject  # noqa: N815  # the names that http.server calls

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the method that it replaces
                """Hosts are remembered instead."""

        return Handler


def private_variables(home: Path, proxy: str) -> dict[str, str]:
    """The environment variables of an agent: a home of its own, the proxy, and nothing of this machine's settings."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
    return {
        "PATH": os.pathsep.join([str(ROOT / ".peers" / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        **proxies,
    }
