"""A certificate for servers on this machine that no authority has signed."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    assert shutil.which("openssl"), "the TLS test makes its certificate with the `openssl` command: install it"
    folder = tmp_path_factory.mktemp("tls")
    pair = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,DNS:inside.example", "-out", pair[0], "-keyout", pair[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    return pair


def served(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """How a server with this certificate speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context
