"""A real Chromium, driven through its debugging protocol.

Chromium is that of the system, or the one in the npm package @sparticuz/chromium, which `make setup` installs and the
first test unpacks into `.peers`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

ROOT = Path(__file__).parents[2]
NODE = ROOT / ".peers" / "bin" / "node"
PACKAGES = ROOT / "tests" / "peers" / "node"
PACKED = PACKAGES / "node_modules" / "@sparticuz" / "chromium"
SECONDS = 120

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


@cache
def executable() -> str:
    """The path of a Chromium; unpacks the one from npm if the system has none."""
    named = os.environ.get("CHROME")
    for name in (named, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        found = shutil.which(name) if name else None
        if found:
            return found
    assert PACKED.exists(), "There is no Chromium: run `make setup`."
    version = json.loads((PACKED / "package.json").read_text())["version"]
    folder = ROOT / ".peers" / f"chromium-{version}"
    if not folder.exists():
        _unpack(folder)
    return str(folder / "chromium")


def _unpack(folder: Path) -> None:
    """Unpack the Chromium from npm; another process may do the same at the same time, and the first one to finish wins."""
    script = "import('@sparticuz/chromium').then((m) => m.default.executablePath())"
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="unpacking-") as own:
        unpacked = Path(own) / "chromium"
        unpacked.mkdir()
        # The package unpacks into the temporary folder.
        done = subprocess.run(
            [NODE, "-e", script],
            cwd=PACKAGES,
            env={**os.environ, "TMPDIR": str(unpacked)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"Chromium cannot be unpacked: {done.stderr}"
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.exists():
                raise


class Page:
    """One tab of the browser."""

    def __init__(self, connection: ClientConnection, session: str | None) -> None:
        self._connection = connection
        self._session = {} if session is None else {"sessionId": session}
        self._number = 0
        self.problems: list[str] = []

    async def send(self, method: str, **params: Any) -> Any:
        """Send a command and return its result; what the page logs as an error meanwhile is a problem."""
        self._number += 1
        number = self._number
        await self._connection.send(json.dumps({"id": number, "method": method, "params": params, **self._session}))
        async with asyncio.timeout(SECONDS):
            while True:
                message = json.loads(await self._connection.recv())
                if message.get("id") == number and message.get("sessionId") == self._session.get("sessionId"):
                    assert "error" not in message, f"{method}: {message['error']}"
                    return message["result"]
                self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    async def open(self, url: str) -> None:
        await self.send("Page.enable")
        await self.send("Runtime.enable")
        await self.send("Log.enable")
        await self.send("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        result = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def wait_for(self, condition: str) -> Any:
        """Wait until an expression is true, and return its value."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            value = await self.run(condition)
            if value:
                return value
            await asyncio.sleep(0.05)
        raise AssertionError(
            f"{condition} did not become true; the page shows:\n{await self.text()}\n{self.problems[-3:]}"
        )

    async def wait_for_text(self, text: str, within: str = "body") -> None:
        await self.wait_for(f"document.querySelector({json.dumps(within)})?.innerText.includes({json.dumps(text)})")

    async def text(self, selector: str = "body") -> str:
        return str(await self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def click(self, selector: str, text: str = "") -> None:
        """Click the first element that matches and contains a text."""
        find = (
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            f".find((element) => element.innerText?.includes({json.dumps(text)}) || {json.dumps(text)} === '')"
        )
        await self.wait_for(f"Boolean({find})")
        await self.run(f"{find}.click()")

    async def fill(self, selector: str, text: str) -> None:
        """Type a text into a field in place of its content."""
        await self.wait_for(f"Boolean(document.querySelector({json.dumps(selector)}))")
        await self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.run(f"document.querySelector({json.dumps(selector)}).select?.()")
        await self.send("Input.insertText", text=text)

    async def press(self, key: str, *, text: str = "", code: int = 0) -> None:
        """Press and release a key."""
        given: dict[str, Any] = {
            "key": key,
            "windowsVirtualKeyCode": code or (ord(key.upper()) if len(key) == 1 else 0),
        }
        typed = text or (key if len(key) == 1 else "")
        await self.send("Input.dispatchKeyEvent", type="keyDown", text=typed, **given)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **given)

    async def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )

    async def use_scheme(self, scheme: str) -> None:
        """Prefer a `light` or a `dark` page."""
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def screenshot(self) -> bytes:
        """The visible part as PNG."""
        shot = await self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


@contextmanager
def start_chromium() -> Iterator[str]:
    """A browser with an empty profile; yields the address of its debugging protocol."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [executable(), *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": profile},
            start_new_session=True,
        )
        try:
            yield _address(Path(profile), process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """The address that the browser writes into its profile."""
    until = time.monotonic() + 2 * SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "Chromium ended at its start"
        try:
            port, path = (profile / "DevToolsActivePort").read_text().split("\n")
        except (OSError, ValueError):
            time.sleep(0.05)
            continue
        return f"ws://127.0.0.1:{port}{path}"
    raise AssertionError("Chromium did not start")


@asynccontextmanager
async def open_page(address: str) -> AsyncIterator[Page]:
    """A page in a private window of its own, closed at the end."""
    async with connect(address, max_size=None) as connection:
        browser = Page(connection, None)
        context = await browser.send("Target.createBrowserContext")
        target = await browser.send("Target.createTarget", url="about:blank", **context)
        attached = await browser.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(connection, attached["sessionId"])
        try:
            yield page
        finally:
            await browser.send("Target.disposeBrowserContext", **context)
    assert page.problems == []
