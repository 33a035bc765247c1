"""Opens a browser for a login and receives the redirect on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

from pegboard.client.http.address import read_address
from pegboard.errors import LoginRequired, ResponseTimeout, SetupError
from pegboard.logs.printable import printable_lines

LOGIN_SECONDS: Final = 300.0
_PATH: Final = "/callback"
_HEAD_BYTES: Final = 16 * 1024
_HEAD_SECONDS: Final = 5.0
_DONE: Final = "<h1>Done</h1><p>You can close this page and return to your program.</p>"
_NOT_HERE: Final = "<h1>Not found</h1><p>This page waits for a login, and this is not its redirect.</p>"


class Redirect(Protocol):
    """A redirect URI that an authorization server can send a person back to."""

    @property
    def uri(self) -> str:
        """The redirect URI."""

    async def visit(self, url: str) -> str:
        """Open the login page; returns the whole URL of the redirect."""


class Login(Protocol):
    """How to get a person's consent; a program without a browser can implement its own."""

    def opened(self, registered: str | None) -> AbstractAsyncContextManager[Redirect]:
        """A redirect URI: the registered one if possible."""


class NoBrowser:
    """The login of a person who is not here: it fails, and the message says where the person can log in."""

    def __init__(self, message: str) -> None:
        self._message = message

    def opened(self, registered: str | None) -> AbstractAsyncContextManager[Redirect]:
        raise self.required()

    def required(self) -> LoginRequired:
        return LoginRequired(self._message)


class BrowserLogin:
    """Opens the browser of this machine, and shows the link in case there is none.

    port: the port that the redirect arrives at; 0 for any free port.
    browser: whether to open the browser.
    seconds: the time that the person has.
    show: receives the text for the person; without it, the text is written to stderr.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        browser: bool = True,
        seconds: float = LOGIN_SECONDS,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self._port = port
        self._browser = browser
        self._seconds = seconds
        self._show = show or _write

    @asynccontextmanager
    async def opened(self, registered: str | None) -> AsyncIterator[Redirect]:
        """Listen for the redirect on this machine, at the registered port if it is free."""
        waiting = _CallbackServer(self._seconds, self._browser, self._show)
        ports = [self._port] if self._port else [*_port_of(registered), 0]
        for port in ports:
            try:
                server = await asyncio.start_server(waiting.serve, "127.0.0.1", port, limit=_HEAD_BYTES)
                break
            except OSError as problem:
                if port == ports[-1]:
                    raise SetupError(f"Cannot listen for the login at port {port}: {problem.strerror}") from None
        else:
            raise AssertionError("at least one port is tried")
        # A person reads this URI, and native clients of one machine differ in the port only (RFC 8252).
        waiting.uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_PATH}"
        try:
            yield waiting
        finally:
            server.close()
            await waiting.close()


class _CallbackServer:
    """Waits for one redirect; requests with another state are rejected, and the wait continues."""

    def __init__(self, seconds: float, browser: bool, show: Callable[[str], None]) -> None:
        self.uri = ""
        self._seconds = seconds
        self._browser = browser
        self._show = show
        self._state = ""
        self._callback: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._connections: set[asyncio.Task[None]] = set()

    async def visit(self, url: str) -> str:
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._show(f"Log in here to continue:\n{url}")
        if self._browser:
            # The URL is known to be http(s), and is passed as one argument, never through a shell.
            await asyncio.to_thread(_open, url)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._callback
        except TimeoutError:
            raise ResponseTimeout(f"No login within {self._seconds:g} s") from None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                target = _target_of(head)
                expected = self._state != "" and urlsplit(target).path == _PATH
                expected = expected and parse_qs(urlsplit(target).query).get("state") == [self._state]
                writer.write(_page("200 OK", _DONE) if expected else _page("404 Not Found", _NOT_HERE))
                await writer.drain()
            if expected and not self._callback.done():
                self._callback.set_result(self.uri.removesuffix(_PATH) + target)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def close(self) -> None:
        self._callback.cancel()
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=1.0)
            for task in late:
                task.cancel()


def _target_of(head: bytes) -> str:
    words = head.partition(b"\r\n")[0].decode("ascii").split(" ")
    return words[1] if len(words) == 3 and words[0] == "GET" and words[1].startswith("/") else ""


def _page(status: str, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>Pegboard</title>{text}".encode()
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body


def _port_of(registered: str | None) -> list[int]:
    try:
        address = read_address(registered or "")
    except SetupError:
        return []
    return [address.port] if address.host == "127.0.0.1" and address.target == _PATH else []


def _open(url: str) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(url)


def _write(text: str) -> None:
    sys.stderr.write(printable_lines(text) + "\n")
    sys.stderr.flush()
