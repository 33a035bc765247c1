"""What the tests of logins share: an authorization server, and a board that trusts it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.peers.judges import HERE, NODE
from tests.peers.serving import PEGBOARD, running
from tests.ports import free_port


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    port = free_port()
    command = [str(NODE), str(HERE / "node" / "issuer.mjs"), str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE / "node"
    ) as server:
        assert server.stdout is not None
        try:
            assert any(line.strip() == "ready" for line in server.stdout)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def locked(issuer: str) -> Iterator[str]:
    port = free_port()
    command = [str(PEGBOARD), "run", str(HERE / "locked_board.py"), "--http", "--port", str(port)]
    with running(command, port, ISSUER=issuer, PUBLIC_URL=f"http://127.0.0.1:{port}") as address:
        yield address
