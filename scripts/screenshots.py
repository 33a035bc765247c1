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
from small_png import shrink

sys.path.insert(0, str(ROOT))

from pegboard import Client
from tests.console.chrome import Page, open_page, start_chromium

taken: list[Path] = []

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
        # At the end: it takes seconds, and the calls on the pages are of the last minute.
        for path in taken:
            path.write_bytes(shrink(path.read_bytes()))
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
    url = link.partition("/console")[0] + "/mcp"
    await make_calls(url)
    # A client of an older revision stays connected, for the page of the sessions.
    async with Client(url, name="older-agent", version="2025-06-18") as older:
        await older.call("everyday__clock__count_slowly", {"steps": 2}, progress=lambda *_: None)
        await take_pages(page, folder)


async def take_pages(page: Page, folder: Path) -> None:
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
        if name == "people":
            await page.fill("form.row input", "ann")
            await page.click("form.row button")
            await page.wait_for_text("allowed", "main")
        if name == "content":
            await page.fill("article:has(button[aria-label='Read Note']) input", "packing")
            await page.click("button[aria-label='Read Note']")
            await page.wait_for_text("Rain coat", "main")
        if name.startswith("tools/"):
            await fill_trip(page)
        if name == "sessions":
            await page.wait_for_text("older-agent", "main section:nth-of-type(2)")
        await save(page, folder / f"console-{name.partition('/')[0]}.png")
    await page.use_scheme("light")
    await page.run("location.hash = 'live'")
    await save(page, folder / "console-light.png")
    await page.resize(390, 844, mobile=True)
    await page.run("location.hash = 'live'")
    await save(page, folder / "console-phone.png")


async def fill_trip(page: Page) -> None:
    """Fill in the form of a tool, and call it."""
    await page.fill("[id='field/city']", "Oslo")
    await page.fill("[id='field/days']", "3")
    for traveller in ("Ada", "Grace"):
        await page.fill("[id='field/travellers']", traveller)
        await page.press("Enter", text="\r", code=13)
    await page.click("button.primary", "Call")
    await page.wait_for_text("Oslo", ".outcome")


async def make_calls(url: str) -> None:
    """Calls of three agents over some seconds."""

    async def work(name: str, pause: float) -> None:
        async with Client(url, name=name) as client:
            for number in range(24):
                tool, arguments = CALLS[(number * 3 + len(name)) % len(CALLS)]
                await client.call(tool, arguments)
                await asyncio.sleep(pause)

    await asyncio.gather(work("claude-code", 1.1), work("codex", 1.7), work("my-agent", 0.8))


async def save(page: Page, path: Path) -> None:
    # Two frames: the first one may still show what was there before.
    await page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await asyncio.to_thread(path.write_bytes, await page.screenshot())
    taken.append(path)


if __name__ == "__main__":
    main()
