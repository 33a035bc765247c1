"""Addresses as they are typed, and the proxies on the way to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.client.http.address import Proxy, find_proxy, read_address
from pegboard.errors import SetupError


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("http://a", "a", "/"),
        ("https://a:443/mcp", "a", "/mcp"),
        ("http://a:443/mcp?x=1#frag", "a:443", "/mcp?x=1"),
        ("http://[::1]:8000/", "[::1]:8000", "/"),
    ],
)
def test_an_address_is_read(url: str, authority: str, target: str) -> None:
    address = read_address(url)
    assert (address.authority, address.target) == (authority, target)


@pytest.mark.parametrize(
    "url",
    ["", "a", "ftp://a/", "http://", "http://a:0x/", "http://a b/", "http://a/\r\nX: y", "http://a/\x7f", "http://a/é"],
)
def test_what_is_not_an_address_is_refused(url: str) -> None:
    with pytest.raises(SetupError, match="is not a valid URL"):
        read_address(url)


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(SetupError, match="send them as a header") as refused:
        read_address("https://me:hunter2@a/")
    assert "hunter2" not in str(refused.value)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = read_address("http://" + text)
    except SetupError:
        return
    written = f"GET {address.target} HTTP/1.1\r\nHost: {address.authority}\r\n"
    assert written.count("\r\n") == 2
    assert written.count(" ") == 3
    assert read_address(str(address)) == address


@pytest.mark.parametrize(
    ("url", "environment", "host"),
    [
        ("https://a/", {"HTTPS_PROXY": "http://p:3128"}, "p"),
        ("https://a/", {"https_proxy": "p:3128"}, "p"),
        ("https://a/", {"http_proxy": "http://p:3128"}, None),
        ("http://a/", {"http_proxy": "http://p:3128"}, "p"),
        # A web server sets this one from a stranger's header.
        ("http://a/", {"HTTP_PROXY": "http://p:3128"}, None),
        ("https://localhost/", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("https://127.0.0.1/", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("https://a.b.c/", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "x, b.c"}, None),
        ("https://a.b.c/", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": ".b.c"}, None),
        ("https://a.b.c/", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "*.b.c"}, None),
        ("https://ab.c/", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "b.c"}, "p"),
        ("https://a/", {"HTTPS_PROXY": "http://p:3128", "no_proxy": "*"}, None),
        ("https://a:8443/", {"HTTPS_PROXY": "http://p:3128", "no_proxy": "a:8443"}, None),
        ("https://a/", {"HTTPS_PROXY": "http://p:3128", "no_proxy": "a:8443"}, "p"),
        ("https://10.1.2.3/", {"HTTPS_PROXY": "http://p:3128", "no_proxy": "10.0.0.0/8"}, None),
        ("https://11.1.2.3/", {"HTTPS_PROXY": "http://p:3128", "no_proxy": "10.0.0.0/8"}, "p"),
    ],
)
def test_the_environment_names_the_proxy(url: str, environment: dict[str, str], host: str | None) -> None:
    proxy = find_proxy(read_address(url), environment)
    assert (proxy and proxy.host) == host


def test_a_proxy_may_want_credentials() -> None:
    proxy = find_proxy(read_address("https://a/"), {"HTTPS_PROXY": "http://me:p%40ss@p"})
    assert proxy == Proxy("p", 80, "Basic bWU6cEBzcw==")


@pytest.mark.parametrize("value", ["https://p:1", "socks5://p:1", "http://", "http://p:x"])
def test_a_proxy_we_cannot_use_is_said_so(value: str) -> None:
    with pytest.raises(SetupError, match="is not a valid proxy URL"):
        find_proxy(read_address("https://a/"), {"HTTPS_PROXY": value})
