"""A load balancer without sticky sessions: consecutive requests of a kind go to different replicas."""

from __future__ import annotations

import json
import select
import socket
import socketserver
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle, takewhile
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.peers.judges import DEADLINE


class Answer(NamedTuple):
    """The method of a JSON-RPC request, the replica that answered it and the HTTP status of the response."""

    method: str
    replica: str
    status: int


class Balancer:
    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.answers: list[Answer] = []
        self.replicas: Sequence[str] = ()
        # A turn for each method: a client that lists the tools before every call also meets each replica with its calls.
        self._turns: defaultdict[str, Iterator[str]] = defaultdict(lambda: cycle(self.replicas))

    def serve(self, client: socket.socket) -> None:
        """Forward the one request of a connection; the client opens another connection for its next request."""
        client.settimeout(DEADLINE)
        with client.makefile("rb") as sent:
            request, *headers = takewhile(bytes.strip, sent)
            named = {name.strip().lower(): value for name, _, value in (line.partition(b":") for line in headers)}
            body = sent.read(int(named.get(b"content-length", 0)))
        headers = [line for line in headers if not line.lower().startswith(b"connection:")]
        posted = request.startswith(b"POST ")
        method = json.loads(body)["method"] if posted else request.split()[0].decode()
        replica = next(self._turns[method])
        place = urlsplit(replica)
        with socket.create_connection((place.hostname, place.port), DEADLINE) as server:
            server.sendall(b"".join((request, *headers, b"Connection: close\r\n\r\n", body)))
            status = server.recv(len("HTTP/1.1 200"), socket.MSG_WAITALL)
            if posted:
                self.answers.append(Answer(method, replica, int(status.split()[1])))
            client.sendall(status)
            # Until the replica has answered or the client has left.
            while server in select.select([client, server], [], [], DEADLINE)[0] and (chunk := server.recv(65536)):
                client.sendall(chunk)


@contextmanager
def balancing() -> Iterator[Balancer]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            # The client may leave at any time, also before it sends a request.
            with suppress(OSError):
                if self.request.recv(1, socket.MSG_PEEK):
                    balancer.serve(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        balancer = Balancer(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield balancer
        finally:
            server.shutdown()
            thread.join()
