"""What a server names for a login is asked with care: where, how much, how long, and with which secrets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pegboard.client.http.address import read_address
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.login.login_http import DOCUMENT_BYTES, LoginClient, LoginResponse
from pegboard.errors import MalformedMessage, ResponseTimeout, Unreachable
from tests.client.fakes import Answer, Asked, Fake, faking, reply
from tests.client.process_leftovers import nothing_left

REMOTE = "https://mcp.example.com/mcp"
LOCAL = "http://127.0.0.1:7332/mcp"


@asynccontextmanager
async def asking(answer: Answer, seconds: float = 5.0) -> AsyncIterator[tuple[LoginClient, str, Fake]]:
    async with nothing_left(), faking(answer) as fake:
        web = HttpPool()
        try:
            yield LoginClient(web, read_address(LOCAL), seconds), f"http://127.0.0.1:{fake.port}", fake
        finally:
            await web.close()


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (REMOTE, "http://auth.example.com/token"),
        (LOCAL, "http://auth.example.com/token"),
        (REMOTE, "http://localhost/token"),
        (REMOTE, "https://127.0.0.1/token"),
        (REMOTE, "https://[::1]/token"),
        (REMOTE, "https://169.254.169.254/latest"),
        (REMOTE, "https://10.0.0.1/token"),
        (REMOTE, "https://[fd00::1]/token"),
        (REMOTE, "https://[::ffff:10.0.0.1]/token"),
        (REMOTE, "https://[64:ff9b::a00:1]/token"),
        (REMOTE, "https://[2002:a00:1::1]/token"),
        (REMOTE, "https://127.1/token"),
        (REMOTE, "https://0x7f.0.0.1/token"),
        (REMOTE, "https://2130706433/token"),
        (REMOTE, "file:///etc/passwd"),
        (REMOTE, "javascript:alert(1)"),
        (REMOTE, "https://user:secret@auth.example.com/"),
        (REMOTE, "https://auth.example.com/\r\nX: y"),
        (REMOTE, ""),
    ],
)
async def test_some_addresses_are_not_asked(server: str, url: str) -> None:
    with pytest.raises(MalformedMessage, match="named by login metadata"):
        LoginClient(HttpPool(), read_address(server)).check_address(url)


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (REMOTE, "https://auth.example.com/token"),
        (LOCAL, "http://localhost:9000/token"),
        (LOCAL, "https://auth.example.com/token"),
        ("https://10.0.0.7/mcp", "https://10.0.0.8/token"),
    ],
)
async def test_others_are(server: str, url: str) -> None:
    assert str(LoginClient(HttpPool(), read_address(server)).check_address(url)) == url


async def test_a_form_goes_to_its_address_and_is_not_sent_after_a_redirect() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, b"", "307 Moved", Location="/elsewhere")

    async with asking(answer) as (login_client, url, fake):
        with pytest.raises(MalformedMessage, match="secrets are not sent to another address"):
            await login_client.post_form(f"{url}/token", [("code", "secret")], b"Authorization: Basic c2VjcmV0\r\n")
        assert [asked.target for asked in fake.asked] == ["/token"]


async def test_a_document_is_followed_to_where_it_moved_but_not_everywhere() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        match asked.target:
            case "/moved":
                reply(writer, b"", "302 Found", Location="/here")
            case "/away":
                reply(writer, b"", "302 Found", Location="http://auth.example.com/")
            case "/round":
                reply(writer, b"", "302 Found", Location="/round")
            case _:
                reply(writer, {"a": 1})

    async with asking(answer) as (login_client, url, fake):
        assert (await login_client.get(f"{url}/moved")).document == {"a": 1}
        with pytest.raises(MalformedMessage, match="it is not https"):
            await login_client.get(f"{url}/away")
        with pytest.raises(MalformedMessage, match="redirected more than 3 times"):
            await login_client.get(f"{url}/round")
        assert len(fake.asked) == 2 + 1 + 4


async def test_answers_have_a_size_and_a_time() -> None:
    forever = asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.target == "/slow":
            await forever.wait()
        reply(writer, b'"' + b"x" * DOCUMENT_BYTES + b'"')

    async with asking(answer) as (login_client, url, _):
        with pytest.raises(MalformedMessage, match=f"more than {DOCUMENT_BYTES} bytes"):
            await login_client.get(f"{url}/large")
    async with asking(answer, seconds=0.2) as (login_client, url, _):
        with pytest.raises(ResponseTimeout, match=r"no response within 0\.2 s"):
            await login_client.get(f"{url}/slow")


async def test_a_response_without_a_json_object_has_no_document_and_an_unavailable_server_is_reported() -> None:
    answers = iter([(b"<html>", "200 OK"), (b"[1]", "404 No"), (b"", "503 Busy")])

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, *next(answers))

    async with asking(answer) as (login_client, url, _):
        assert await login_client.get(url) == LoginResponse(200, None)
        assert await login_client.get(url) == LoginResponse(404, None)
        with pytest.raises(Unreachable, match="returned status 503"):
            await login_client.get(url)


def test_a_login_error_is_described_in_one_line_without_secrets() -> None:
    told = LoginResponse(400, {"error": "invalid_grant", "error_description": "code s3cret\nis\x1b[31m used"})
    assert told.describe_error(["s3cret", ""]) == "invalid_grant, code …\\nis used"
    assert told.reason == "invalid_grant"
    assert LoginResponse(400, {"error": 1}).describe_error() == "status 400"
    assert "s3cret" not in repr(told)
