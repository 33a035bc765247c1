"""WWW-Authenticate as servers write it, and as nobody should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.client.login.discovery import read_bearer, read_challenges


def test_a_bearer_challenge_says_where_its_metadata_are_and_what_it_wants() -> None:
    told = read_bearer(
        'Bearer error="insufficient_scope", scope="files:read files:write",\r\n'
        ' resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource", error_description="a, \\"b\\""'
    )
    assert told.error == "insufficient_scope"
    assert told.scopes == ["files:read", "files:write"]
    assert told.metadata_url == "https://mcp.example.com/.well-known/oauth-protected-resource"
    assert told.parameters["error_description"] == 'a, "b"'


@pytest.mark.parametrize(
    "text",
    [
        'Basic realm="x", Bearer scope="a"',
        'bearer scope=a, Basic realm="Bearer scope=b"',
        'Negotiate YWJj==, BEARER   scope = "a"',
        'Negotiate, Bearer scope="a"',
        'DPoP algs="ES256", Bearer Scope="a", scope="b"',
    ],
)
def test_it_is_found_among_others(text: str) -> None:
    assert read_bearer(text).scopes == ["a"]


def test_an_address_without_quotes_is_taken() -> None:
    assert read_bearer("Bearer resource_metadata=https://a.example/x?y=1").metadata_url == "https://a.example/x?y=1"


@pytest.mark.parametrize("text", ["", "Basic x", 'scope="a"', 'Digest nonce="Bearer"', "Bearerish scope=a"])
def test_what_asks_for_no_bearer_token_asks_for_nothing(text: str) -> None:
    assert read_bearer(text).scopes == []


@given(st.text())
def test_nothing_that_comes_breaks_it(text: str) -> None:
    for one in read_challenges(text):
        assert one.scheme


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True), st.text(st.characters(max_codepoint=126, min_codepoint=32))
    )
)
def test_quoted_values_are_read_unchanged(parameters: dict[str, str]) -> None:
    def quote(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    written = "Bearer " + ", ".join(f"{name}={quote(value)}" for name, value in parameters.items())
    assert read_bearer(written).parameters == parameters
