"""The wait on this machine for a person who logs in elsewhere."""

from __future__ import annotations

import asyncio
import webbrowser
from urllib.parse import urlsplit

import pytest

from pegboard.client.login.browser import BrowserLogin
from pegboard.errors import ResponseTimeout, SetupError
from tests.client.process_leftovers import nothing_left
from tests.waiting import until

URL = "https://auth.example.com/authorize?client_id=c&state=right"


async def come_back(uri: str, query: str, method: str = "GET") -> str:
    parts = urlsplit(uri)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"{method} {parts.path}?{query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_person_is_shown_the_link_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    shown: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    async with nothing_left():
        async with BrowserLogin(show=shown.append).opened(None) as redirect:
            visit = asyncio.create_task(redirect.visit(URL))
            await until(lambda: bool(opened))
            page = await come_back(redirect.uri, "code=a%20b&state=right")
            assert await visit == f"{redirect.uri}?code=a%20b&state=right"
        assert (opened, shown) == ([URL], [f"Log in here to continue:\n{URL}"])
        assert page.startswith("HTTP/1.1 200 OK\r\n")
        assert "default-src 'none'" in page
        assert "right" not in page


async def test_only_who_has_the_state_ends_the_wait() -> None:
    async with nothing_left(), BrowserLogin(browser=False, show=lambda _: None).opened(None) as redirect:
        visit = asyncio.create_task(redirect.visit(URL))
        for query in ("code=evil&state=wrong", "code=evil", "code=evil&state=right&state=wrong", "error=no"):
            assert (await come_back(redirect.uri, query)).startswith("HTTP/1.1 404")
        assert (await come_back(redirect.uri + "/more", "code=evil&state=right")).startswith("HTTP/1.1 404")
        assert (await come_back(redirect.uri, "code=evil&state=right", "POST")).startswith("HTTP/1.1 404")
        assert not visit.done()
        await come_back(redirect.uri, "code=good&state=right")
        assert (await visit).endswith("?code=good&state=right")


async def test_the_port_that_is_registered_is_taken_again_and_another_if_it_is_busy() -> None:
    login = BrowserLogin(browser=False, show=lambda _: None)
    async with login.opened(None) as first:
        uri = first.uri
        async with login.opened(uri) as second:
            assert second.uri != uri
    async with login.opened(uri) as third:
        assert third.uri == uri
        port = urlsplit(uri).port
        assert port is not None
        with pytest.raises(SetupError, match=f"port {port}"):
            async with BrowserLogin(port=port).opened(None):
                pass


async def test_the_login_wait_ends_after_the_configured_timeout() -> None:
    async with nothing_left(), BrowserLogin(browser=False, seconds=0.05, show=lambda _: None).opened(None) as redirect:
        with pytest.raises(ResponseTimeout, match=r"within 0\.05 s"):
            await redirect.visit(URL)


async def test_a_guest_who_says_nothing_is_not_waited_for() -> None:
    async with nothing_left():
        async with BrowserLogin(browser=False, show=lambda _: None).opened(None) as redirect:
            parts = urlsplit(redirect.uri)
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
            visit = asyncio.create_task(redirect.visit(URL))
            await asyncio.sleep(0)
            await come_back(redirect.uri, "code=good&state=right")
            await visit
        writer.close()


async def test_without_a_browser_the_link_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    async with BrowserLogin(browser=False, seconds=0.01).opened(None) as redirect:
        with pytest.raises(ResponseTimeout):
            await redirect.visit(URL)
    out, err = capsys.readouterr()
    assert (out, URL in err) == ("", True)
