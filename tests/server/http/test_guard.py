"""Who may knock: hosts, origins, browsers that ask first, proxies that are believed."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard.errors import SetupError
from pegboard.server.http.guard import Guard, is_loopback
from pegboard.server.http_types import Answer, Head

PORT = 7332
HERE = f"127.0.0.1:{PORT}"


def head(host: str | None = HERE, origin: str | None = None, *, server: str = "127.0.0.1", **more: Any) -> Head:
    headers = {name.encode(): value.encode("latin-1") for name, value in more.pop("headers", {}).items()}
    if host is not None:
        headers[b"host"] = host.encode("latin-1")
    if origin is not None:
        headers[b"origin"] = origin.encode("latin-1")
    return Head(b"POST", b"/mcp", b"", headers, server=server, **more)


def status(guard: Guard, asked: Head) -> int:
    verdict = guard.check(asked)
    return verdict.status if isinstance(verdict, Answer) else 200


def text(guard: Guard, asked: Head) -> str:
    verdict = guard.check(asked)
    assert isinstance(verdict, Answer)
    return verdict.body.decode()


# -- Host --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [HERE, "127.0.0.1", "localhost", f"localhost:{PORT}", f"LOCALHOST:{PORT}", "127.8.9.1", "[::1]", f"[::1]:{PORT}"],
)
def test_a_loopback_server_answers_to_the_names_of_this_machine(host: str) -> None:
    assert status(Guard(), head(host)) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        f"evil.example.com:{PORT}",
        "localhost.evil",
        f"localhost.evil:{PORT}",
        "127.0.0.1.evil",
        "127.0.0.1.nip.io",
        "evil@127.0.0.1",
        "127.0.0.1@evil",
        "127.0.0.1:80@evil",
        "localhost:80.evil",
        "localhost/evil",
        "localhost#evil",
        "localhost, evil",
        "192.0.2.1",
        "0.0.0.0",
        "[::ffff:192.0.2.1]",
        "2130706433",
        "",
        " ",
        ":80",
        "[::1",
        "löcalhost",
        None,
    ],
)
def test_a_loopback_server_answers_to_no_other_name(host: str | None) -> None:
    assert status(Guard(), head(host)) == 421


def test_the_refusal_of_a_host_names_the_setting_that_allows_it() -> None:
    assert "--allow-host evil.example.com" in text(Guard(), head("evil.example.com:80"))
    guard = Guard(hosts=["Board.Example", "other:8080"])
    assert status(guard, head("board.example")) == 200
    assert status(guard, head("BOARD.example:99")) == 200
    assert status(guard, head("other:8080")) == 200
    assert status(guard, head("other:8081")) == 421
    assert status(guard, head("sub.board.example")) == 421


PUBLIC = ("192.0.2.1", "2001:db8::1")


@pytest.mark.parametrize("server", PUBLIC)
@pytest.mark.parametrize(
    "host",
    ["192.0.2.1", f"192.0.2.1:{PORT}", "198.51.100.7", "[2001:db8::1]", f"[2001:db8::1]:{PORT}", "localhost", HERE],
)
def test_a_server_that_is_open_to_others_is_reached_by_addresses(host: str, server: str) -> None:
    assert status(Guard(), head(host, server=server)) == 200
    assert status(Guard(), head(host, f"http://{host}", server=server)) == 200


@pytest.mark.parametrize("server", PUBLIC)
@pytest.mark.parametrize(
    "host",
    [
        "board.example",
        f"evil.example:{PORT}",
        "192.0.2.1.nip.io",
        "192.0.2.1.",
        "3221225985",
        "0xc0000201",
        "192.513",
        "",
    ],
)
def test_a_server_that_is_open_to_others_answers_to_names_only_if_they_are_allowed(host: str, server: str) -> None:
    """Else a page could reach it by DNS rebinding: its own name, resolved to our address."""
    rebound = head(host, f"http://{host}" if host else None, server=server)
    assert status(Guard(), rebound) == 421
    if host:
        name = host.partition(":")[0]
        assert f"--allow-host {name}" in text(Guard(), rebound)
        assert status(Guard(hosts=[name]), rebound) == 200


def test_a_socket_file_is_reached_by_any_name() -> None:
    assert status(Guard(), head("board.example", server="")) == 200


def test_a_mounted_application_leaves_names_to_its_server_but_on_loopback() -> None:
    guard = Guard(mounted=True)
    assert status(guard, head("board.example", server="192.0.2.1")) == 200
    assert status(guard, head("board.example", server="127.0.0.1")) == 421
    assert status(Guard(hosts=["board.example"], mounted=True), head("evil.example", server="192.0.2.1")) == 421


# -- Origin ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (f"http://{HERE}", HERE),
        (f"http://localhost:{PORT}", HERE),
        (f"http://127.0.0.1:{PORT}", f"localhost:{PORT}"),
        (f"http://[::1]:{PORT}", f"localhost:{PORT}"),
        (f"HTTP://LOCALHOST:{PORT}", HERE),
        ("http://localhost", "localhost"),
        ("http://localhost:80", "localhost"),
        ("http://localhost", "localhost:80"),
        ("https://localhost", "localhost:443"),
    ],
)
def test_the_origin_that_a_request_is_sent_to_is_welcome(origin: str, host: str) -> None:
    assert status(Guard(), head(host, origin)) == 200


@pytest.mark.requirement(
    "modern/http/origin-checked", "legacy/http/origin-checked", "modern/http/origin-403", "legacy/http/origin-403"
)
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example.com",
        f"http://evil.example.com:{PORT}",
        "http://localhost.evil",
        f"http://localhost.evil:{PORT}",
        f"http://127.0.0.1:{PORT}.evil",
        f"http://127.0.0.1.evil:{PORT}",
        f"http://localhost:{PORT}@evil",
        f"http://user@localhost:{PORT}",
        f"http://localhost:{PORT}/",
        f"http://localhost:{PORT}/path",
        f"http://localhost:{PORT}?q",
        f"http://localhost:{PORT}?",
        f"http://localhost:{PORT}#evil",
        f"http://localhost:{PORT}\\@evil",
        f"http://local\thost:{PORT}",
        f"http://localhost:{PORT} ",
        f"http://localhost:{PORT}, http://evil",
        f"http://localhost:{PORT} http://evil",
        f"http://localhost:{PORT + 1}",
        f"http://localhost:0{PORT}0",
        "http://localhost:",
        "http://localhost:99999999999",
        "http://localhost",
        f"ftp://localhost:{PORT}",
        f"file://localhost:{PORT}",
        f"//localhost:{PORT}",
        f"localhost:{PORT}",
        f"http:localhost:{PORT}",
        f"http://[::1]evil:{PORT}",
        f"http://löcalhost:{PORT}",
    ],
)
def test_any_other_origin_is_forbidden(origin: str) -> None:
    refused = head(HERE, origin)
    assert status(Guard(), refused) == 403


def test_a_rebound_name_is_forbidden_though_origin_and_host_agree() -> None:
    assert status(Guard(), head(f"evil.example.com:{PORT}", f"http://evil.example.com:{PORT}")) in (403, 421)


def test_the_refusal_of_an_origin_names_the_setting_that_allows_it() -> None:
    origin = "http://localhost:6274"
    assert f"--cors {origin}" in text(Guard(), head(HERE, origin))
    assert status(Guard(origins=[origin]), head(HERE, origin)) == 200


def test_an_allowed_origin_may_read_the_answer_and_the_session() -> None:
    guard = Guard(origins=["http://localhost:6274"])
    headers = guard.check(head(HERE, "http://localhost:6274"))
    assert not isinstance(headers, Answer)
    assert dict(headers) == {
        b"access-control-allow-origin": b"http://localhost:6274",
        b"access-control-expose-headers": b"Mcp-Session-Id, WWW-Authenticate",
        b"vary": b"Origin",
    }
    assert guard.check(head(HERE)) == ()


@pytest.mark.parametrize(
    ("setting", "origin"),
    [
        ("https://App.Example.com/", "https://app.example.com"),
        ("https://app.example.com:443", "https://app.example.com"),
        ("http://app.example.com:80", "http://app.example.com"),
        ("http://[::1]:5173", "http://[::1]:5173"),
    ],
)
def test_an_origin_is_allowed_as_a_browser_writes_it(setting: str, origin: str) -> None:
    assert status(Guard(origins=[setting]), head(HERE, origin)) == 200


@pytest.mark.parametrize(
    "setting", ["*", "app.example.com", "https://", "https://a/b", "ftp://a", "https://a b", "null"]
)
def test_an_invalid_origin_setting_is_rejected_with_an_example(setting: str) -> None:
    with pytest.raises(SetupError, match=r"https://app\.example\.com"):
        Guard(origins=[setting])


def test_an_allowed_origin_is_matched_whole() -> None:
    guard = Guard(origins=["https://app.example.com"])
    for origin in ("https://app.example.com.evil", "https://app.example.com:8443", "http://app.example.com"):
        assert status(guard, head(HERE, origin)) == 403


# -- a browser that asks first -----------------------------------------------------------------------------------------


def test_a_preflight_is_answered_with_what_was_asked_for() -> None:
    guard = Guard(origins=["http://localhost:6274"])
    asked = head(
        HERE,
        "http://localhost:6274",
        headers={"access-control-request-method": "POST", "access-control-request-headers": "content-type,mcp-name"},
    )
    allowed = guard.check(asked)
    assert not isinstance(allowed, Answer)
    answer = guard.preflight(asked, allowed)
    headers = dict(answer.headers)
    assert answer.status == 204
    assert headers[b"access-control-allow-origin"] == b"http://localhost:6274"
    assert headers[b"access-control-allow-headers"] == b"content-type,mcp-name"
    assert b"DELETE" in headers[b"access-control-allow-methods"]
    assert b"access-control-allow-credentials" not in headers


def test_without_an_origin_options_only_tells_the_methods() -> None:
    answer = Guard().preflight(head(), ())
    assert dict(answer.headers) == {b"allow": b"GET, POST, DELETE, OPTIONS"}


# -- the rest ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["origin", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-x", "authorization"],
)
def test_a_header_that_identifies_is_refused_when_it_comes_twice(name: str) -> None:
    twice = head(repeated=(name.encode(),))
    assert status(Guard(), twice) == 400
    assert name in text(Guard(), twice)


def test_other_headers_may_come_twice() -> None:
    assert status(Guard(), head(repeated=(b"accept", b"cookie"))) == 200


def test_a_proxy_is_believed_only_if_it_is_trusted() -> None:
    forwarded = {
        "x-forwarded-for": "203.0.113.9, 198.51.100.2",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "b.example",
    }
    stranger = head(HERE, "https://b.example", peer="192.0.2.9", headers=forwarded)
    assert status(Guard(proxies=["192.0.2.1"]), stranger) == 403
    assert (stranger.peer, stranger.secure) == ("192.0.2.9", False)
    behind = head(HERE, "https://b.example", peer="192.0.2.1", headers=forwarded)
    assert status(Guard(proxies=["192.0.2.1"], hosts=["b.example"]), behind) == 200
    assert (behind.peer, behind.secure) == ("198.51.100.2", True)


@pytest.mark.parametrize("server", ["127.0.0.1", "192.0.2.1", ""])
def test_a_name_that_a_trusted_proxy_forwards_must_be_allowed_too(server: str) -> None:
    """The proxy tells what the client has sent, and its address can be rebound to as well."""
    forwarded = {"x-forwarded-host": "evil.example"}
    behind = head(HERE, "https://evil.example", peer="192.0.2.1", server=server, headers=forwarded)
    assert status(Guard(proxies=["192.0.2.1"]), behind) == 421


def test_verdicts_that_are_remembered_stay_few() -> None:
    guard = Guard()
    for number in range(2000):
        assert status(guard, head(f"host{number}.evil")) == 421
    assert len(guard._verdicts) <= 256
    assert status(guard, head()) == 200


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("", False), ("board", False)],
)
def test_what_stays_on_this_machine_is_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("server", ["127.0.0.1", "192.0.2.1"])
def test_where_hosts_are_named_only_they_are_answered_to_on_any_address(server: str) -> None:
    guard = Guard(hosts=["mcp.example"])
    assert status(guard, head("mcp.example", server=server)) == 200
    assert status(guard, head("evil.example", server=server)) == 421
