"""A company's proxy: it opens TLS with a certificate of its own, and serves one npm and one PyPI package."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

HOST: Final = "packages.company.test"
PACKAGE: Final = "company-tools"

_JS: Final = """#!/usr/bin/env node
const say = (id, result) => console.log(JSON.stringify({jsonrpc: '2.0', id, result}))
require('readline').createInterface({input: process.stdin}).on('line', line => {
  const {id, method} = JSON.parse(line)
  if (method === 'initialize')
    say(id, {protocolVersion: '2025-06-18', capabilities: {tools: {}}, serverInfo: {name: 'js', version: '1'}})
  else if (method === 'tools/list') say(id, {tools: [{name: 'hello', inputSchema: {type: 'object'}}]})
  else if (method === 'tools/call') say(id, {content: [{type: 'text', text: 'from npm'}]})
  else if (id !== undefined) console.log(JSON.stringify({jsonrpc: '2.0', id, error: {code: -32601, message: 'no'}}))
})
"""
_PYTHON: Final = """
import json, sys

def main():
    for line in sys.stdin:
        asked = json.loads(line)
        answer = {"jsonrpc": "2.0", "id": asked.get("id")}
        match asked["method"]:
            case "initialize":
                server = {"name": "python", "version": "1"}
                answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
            case "tools/list":
                answer["result"] = {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                answer["result"] = {"content": [{"type": "text", "text": "from PyPI"}]}
            case _:
                answer["error"] = {"code": -32601, "message": "no"}
        if "id" in asked:
            print(json.dumps(answer), flush=True)
"""


class CompanyProxy:
    """The only way to the packages. Whoever does not trust its certificate cannot install anything.

    Packages are delivered once `delivers` is set; `asked` is set when the first one is asked for.
    """

    def __init__(self, folder: Path) -> None:
        assert shutil.which("openssl"), "this test makes its certificate with the `openssl` command: install it"
        self.authority, pair = _make_certificates(folder)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(*pair)
        self.delivers = threading.Event()
        self.asked = threading.Event()
        package, wheel, name = _npm_package(), _wheel(), f"{PACKAGE.replace('-', '_')}-1.0.0-py3-none-any.whl"
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
        dist = {"tarball": f"https://{HOST}/tools.tgz", "integrity": integrity}
        release = {"name": PACKAGE, "version": "1.0.0", "bin": {PACKAGE: "server.js"}, "dist": dist}
        packument = {"name": PACKAGE, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": release}}
        link = f'<a href="/{name}#sha256={hashlib.sha256(wheel).hexdigest()}">{name}</a>'
        self.pages: dict[str, tuple[str, bytes]] = {
            f"/{PACKAGE}": ("application/json", json.dumps(packument).encode()),
            "/tools.tgz": ("application/octet-stream", package),
            f"/simple/{PACKAGE}/": ("text/html", f"<!DOCTYPE html><html><body>{link}</body></html>".encode()),
            f"/{name}": ("application/octet-stream", wheel),
        }

    @contextmanager
    def serve(self) -> Iterator[dict[str, str]]:
        """The variables that tell npx and uvx how to get through it."""

        class Handler(_Handler):
            proxy = self

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield {
                "HTTPS_PROXY": f"http://127.0.0.1:{server.server_port}",
                "NPM_CONFIG_REGISTRY": f"https://{HOST}/",
                "NODE_EXTRA_CA_CERTS": str(self.authority),
                "UV_DEFAULT_INDEX": f"https://{HOST}/simple/",
                "SSL_CERT_FILE": str(self.authority),
            }
        finally:
            self.delivers.set()
            server.shutdown()
            thread.join()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    proxy: CompanyProxy
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_CONNECT(self) -> None:
        if self.path != f"{HOST}:443":
            self.send_error(403)
            return
        self.send_response(200)
        self.end_headers()
        try:
            self.connection = self.proxy.tls.wrap_socket(self.connection, server_side=True)
        except OSError:
            # It does not trust the certificate.
            self.close_connection = True
            return
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.close_connection = False

    def do_GET(self) -> None:
        kind, body = self.proxy.pages.get(self.path, ("text/plain", b""))
        if self.command == "GET" and self.path.endswith((".tgz", ".whl")):
            self.proxy.asked.set()
            self.proxy.delivers.wait(120)
        with suppress(OSError):
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 — the name in the standard library

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the name in the standard library
        pass


def _make_certificates(folder: Path) -> tuple[Path, tuple[Path, Path]]:
    """The company's own authority, and a certificate for the host that it has signed, with its key."""
    authority, ca_key = folder / "authority.pem", folder / "authority.key"
    pair = folder / "host.pem", folder / "host.key"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    for command in (
        [*new, "-subj", "/CN=The company", "-out", authority, "-keyout", ca_key],
        [*new, "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}", "-addext", "basicConstraints=CA:FALSE",
         "-CA", authority, "-CAkey", ca_key, "-out", pair[0], "-keyout", pair[1]],
    ):  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
    return authority, pair


def _npm_package() -> bytes:
    about = json.dumps({"name": PACKAGE, "version": "1.0.0", "bin": {PACKAGE: "server.js"}})
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in (("package.json", about), ("server.js", _JS)):
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(text), 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def _wheel() -> bytes:
    module = PACKAGE.replace("-", "_")
    about = f"{module}-1.0.0.dist-info"
    files = {
        f"{module}.py": _PYTHON,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{PACKAGE} = {module}:main\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()
