"""Whose metadata are whose, and where they are looked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.client.http.address import read_address
from pegboard.client.login.discovery import (
    canonical,
    covers,
    read_resource,
    read_server,
    resource_locations,
    server_locations,
)
from pegboard.errors import MalformedMessage

SERVER = read_address("https://mcp.example.com/public/mcp")
SEGMENTS = st.lists(st.from_regex(r"[a-z0-9._~-]{1,6}", fullmatch=True), max_size=4)


def test_a_resource_is_looked_for_below_its_path_then_at_the_root() -> None:
    root = "https://mcp.example.com/.well-known/oauth-protected-resource"
    assert resource_locations(SERVER) == [f"{root}/public/mcp", root]
    assert resource_locations(read_address("https://mcp.example.com")) == [root]


def test_an_issuer_with_a_path_is_never_looked_for_at_the_root() -> None:
    assert server_locations("https://auth.example.com/tenant1") == [
        "https://auth.example.com/.well-known/oauth-authorization-server/tenant1",
        "https://auth.example.com/.well-known/openid-configuration/tenant1",
        "https://auth.example.com/tenant1/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize("issuer", ["https://auth.example.com", "https://auth.example.com/"])
def test_an_issuer_without_a_path_is_looked_for_at_the_root(issuer: str) -> None:
    assert server_locations(issuer) == [
        "https://auth.example.com/.well-known/oauth-authorization-server",
        "https://auth.example.com/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize(
    "resource",
    [
        "https://mcp.example.com/public/mcp",
        "https://mcp.example.com/public/mcp/",
        "https://mcp.example.com/public",
        "https://mcp.example.com",
        "https://mcp.example.com/",
        "https://MCP.example.com:443",
    ],
)
def test_a_resource_covers_the_server_below_it(resource: str) -> None:
    assert covers(resource, SERVER)


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.example.com/public/mcp",
        "http://mcp.example.com/public/mcp",
        "https://mcp.example.com:8443/public/mcp",
        "https://mcp.example.com/pub",
        "https://mcp.example.com/public/mcp/more",
        "https://mcp.example.com/public/mcp?tenant=1",
        "https://mcp.example.com/public/mcp#part",
        "https://mcp.example.com@evil.example.com/public/mcp",
        "mcp.example.com",
        "urn:example:mcp",
        "",
    ],
)
def test_a_resource_covers_no_other_server(resource: str) -> None:
    assert not covers(resource, SERVER)


@given(SEGMENTS, SEGMENTS)
def test_a_resource_covers_exactly_the_paths_that_begin_with_its_segments(above: list[str], path: list[str]) -> None:
    server = read_address("https://h.example/" + "/".join(path))
    assert covers("https://h.example/" + "/".join(above), server) == (path[: len(above)] == above)


def test_the_metadata_of_another_server_are_refused() -> None:
    with pytest.raises(MalformedMessage, match=r"not of https://mcp\.example\.com/public/mcp"):
        read_resource({"resource": "https://evil.example.com/mcp"}, SERVER, "there")


@pytest.mark.parametrize(
    "issuer", ["https://a.example/", "https://A.example", "https://a.example:443", "https://b.example"]
)
def test_the_issuer_is_compared_to_the_letter(issuer: str) -> None:
    with pytest.raises(MalformedMessage, match="is not exactly"):
        read_server({"issuer": issuer, "token_endpoint": "https://a.example/token"}, "https://a.example", "there")


@pytest.mark.parametrize("document", [{}, {"issuer": 1}, {"issuer": "https://a.example", "token_endpoint": None}])
def test_invalid_metadata_is_reported_with_its_location(document: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage, match="there: "):
        read_server(document, "https://a.example", "there")


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["issuer", "token_endpoint", "scopes_supported", "registration_endpoint"]), json)
)
def test_any_document_is_read_or_refused(document: dict[str, Any]) -> None:
    try:
        read = read_server(document, "https://a.example", "there")
    except MalformedMessage:
        return
    assert read.issuer == "https://a.example"


def test_a_server_that_does_not_say_what_it_is_is_called_by_its_address() -> None:
    assert canonical(read_address("https://mcp.example.com/")) == "https://mcp.example.com"
    assert canonical(SERVER) == "https://mcp.example.com/public/mcp"
