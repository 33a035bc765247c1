"""The examples of docs/middleware.md: each does what it says, and the document quotes them as they are."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import re
from pathlib import Path
from types import ModuleType

import pytest

from pegboard import Client
from pegboard.errors import REFUSED, InvalidParams
from pegboard.middleware import count_tokens
from pegboard.middleware.limits import rate_limit
from pegboard.testing import expect
from tests.middleware.valkey import valkey

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_snippet_of_the_document_is_part_of_an_example() -> None:
    sources = [path.read_text() for path in EXAMPLES.glob("*.py")]
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "middleware.md").read_text(), re.DOTALL)
    assert len(snippets) > 4
    assert [snippet for snippet in snippets if not any(snippet in source for source in sources)] == []


async def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long eleven calls take: another one is allowed after 0.6 s.
    monkeypatch.setattr(rate_limit, "_microseconds", lambda: 0)
    async with Client(load("limits").board) as client:
        results = await asyncio.gather(*(client.call("search", {"query": "x"}) for _ in range(11)))
        assert sum(result.is_error for result in results) == 1
        assert results[-1].text == (
            "search was not run: the limit of 100 calls per minute is reached. Try again in 0.6 s."
        )
        assert (await client.call("report", {"year": 2026})).text == "2026 went well."


@pytest.mark.peer
async def test_shared_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with valkey() as server:
        monkeypatch.setenv("REDIS_URL", server.url)
        example = load("shared_limits")
        async with Client(example.board) as client:
            assert (await client.call("translate", {"text": "a"})).text == "A"
            server.kill()
            refused = await client.call("translate", {"text": "a"})
        await example.store.close()
    assert refused.meta[REFUSED] == {"reason": "rate_limit_unavailable", "retryAfter": 1.0}


async def test_budgets() -> None:
    async with Client(load("budgets").board) as client:
        cut = await client.call("read_log", {"lines": 5000})
        assert count_tokens(cut.text) <= 2000
        link = cut.content[-1]
        page, note = await client.read(link["uri"])
        assert page["text"].startswith("0: all is well\n1: all")
        assert note["text"].startswith("Page 1 of ")
        with pytest.raises(InvalidParams, match=r"Resource not found: pegboard://results/guessed"):
            await client.request("resources/read", name="pegboard://results/guessed")
        refused = await client.call("export", {"rows": 10_000})
        assert refused.meta[REFUSED] == {"reason": "token_budget", "limit": 10_000, "estimated": 60_010}
        expect(await client.call("check_disk")).notes('- read_log {"lines": 100}: shows what has been written')
        assert 1000 < (await client.call("token_usage")).structured["read_log"] < 2100


async def test_watching(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pegboard.calls")
    async with Client(load("watching").board) as client:
        await client.call("greet", {"name": "Ann"})
        assert (await client.call("statistics")).structured["greet"] > 0
    first = json.loads(caplog.records[0].getMessage())
    assert (first["tool"], first["outcome"], first["tokens_out"]) == ("greet", "ok", count_tokens("Hello, Ann!"))
