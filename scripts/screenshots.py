"""Takes the screenshots of the console for the documentation, from a real demo in a real browser.

`.venv/bin/python scripts/screenshots.py [FOLDER]` writes them to docs/images.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from interpreters import ROOT

sys.path.insert(0, str(ROOT))

from pegboard import Client
from tests.console.chrome import Page, open_page, start_chromium

CALLS = (
    ("everyday__desk__calculate", {"a": 2, "b": 3}),
    ("everyday__desk__plan_trip", {"city": "Oslo", "days": "3", "travellers": "Ada", "flexible": "yes"}),
    ("everyday__desk__convert", {"value": 26.2, "source": "mi", "target": "km"}),
    ("office__notes__add_note", {"name": "packing", "text": "Rain coat"}),
    ("office__notes__find_notes", {"words": "coat"}),
    ("everyday__desk__calculate", {"a": "two", "b": 3}),
    ("everyday__clock__count_slowly", {"steps": 2}),
    ("everyday__clock__time_in", {"zone": "Europe/Oslo"}),
)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    demo = subprocess.Popen(
        [sys.executable, "-m", "pegboard", "demo", "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    try:
        link = wait_for_link(demo)
        with start_chromium() as address:
            asyncio.run(take_all(address, link, folder))
    finally:
        demo.terminate()
        demo.wait()


async def take_all(address: str, link: str, folder: Path) -> None:
    async with open_page(address) as page:
        await take(page, link, folder)


def wait_for_link(demo: subprocess.Popen[str]) -> str:
    assert demo.stderr is not None
    link = ""
    for line in demo.stderr:
        found = re.search(r"console\s+(http\S+)", line)
        link = found[1] if found else link
        if "Ctrl+C" in line:
            return link
    raise SystemExit("The demo did not start")


async def take(page: Page, link: str, folder: Path) -> None:
    await page.resize(1280, 720)
    await page.use_scheme("dark")
    await page.open(link)
    await page.wait_for_text("Live calls")
    await make_calls(link.partition("/console")[0] + "/mcp")
    await save(page, folder / "console-live.png")
    await page.click(".calls tbody tr", "repaired")
    await page.wait_for_text("Where the", "aside")
    await save(page, folder / "console-call.png")
    await page.press("Escape", code=27)
    for name in (
        "tools/everyday__desk__plan_trip",
        "content",
        "tokens",
        "latency",
        "servers",
        "people",
        "sessions",
        "connect",
    ):
        await page.run(f"location.hash = '{name}'")
        await page.wait_for(f"document.querySelector('nav a.current').hash === '#{name.partition('/')[0]}'")
        await page.wait_for("!document.body.innerText.includes('Loading…')")
        await save(page, folder / f"console-{name.partition('/')[0]}.png")
    await page.use_scheme("light")
    await page.run("location.hash = 'live'")
    await save(page, folder / "console-light.png")
    await page.resize(390, 844, mobile=True)
    await page.run("location.hash = 'live'")
    await save(page, folder / "console-phone.png")


async def make_calls(url: str) -> None:
    """Calls of three agents over some seconds."""

    async def work(name: str, pause: float) -> None:
        async with Client(url, name=name) as client:
            for number in range(24):
                tool, arguments = CALLS[(number * 3 + len(name)) % len(CALLS)]
                await client.call(tool, arguments)
                await asyncio.sleep(pause)

    await asyncio.gather(work("claude-code", 0.5), work("codex", 0.9), work("my-agent", 0.3))


async def save(page: Page, path: Path) -> None:
    # Two frames: the first one may still show what was there before.
    await page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await asyncio.to_thread(path.write_bytes, await page.screenshot())


if __name__ == "__main__":
    main()
