"""Masking: secrets by the words of their key, and inside texts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.middleware import mask
from pegboard.middleware.observability.masking import is_secret

SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "Password",
        "user_password",
        "dbPassword",
        "PASSWORD",
        "passwd",
        "secret",
        "client_secret",
        "clientSecret",
        "token",
        "access_token",
        "refreshToken",
        "authorization",
        "Authorization",
        "Proxy-Authorization",
        "api_key",
        "apiKey",
        "API-KEY",
        "x-api-key",
        "apikey",
        "private_key",
        "privateKey",
        "cookie",
        "Set-Cookie",
        "credentials",
        "AWS_SECRET_ACCESS_KEY",
        "githubToken",
        "jwt",
    ],
)
def test_a_key_that_names_a_secret_hides_its_value_at_any_depth(key: str) -> None:
    assert is_secret(key)
    value = {"a": [{"b": {key: SECRET}}], "c": {key: {"nested": [SECRET]}}}
    assert SECRET not in str(mask(value))


@pytest.mark.parametrize(
    "key",
    [
        "max_tokens",
        "tokens",
        "keyboard",
        "key",
        "monkey",
        "author",
        "passenger",
        "compass",
        "secretary",
        "tokenizer",
        "primary_key",
        "query",
    ],
)
def test_a_key_that_only_looks_alike_is_left(key: str) -> None:
    assert mask({key: "value"}) == {key: "value"}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("Authorization: Bearer ${TOKEN}", "Authorization: Bearer ${TOKEN}"),
        ('"token": "${env:TOKEN}"', '"token": "${env:TOKEN}"'),
        ("token=${TOKEN}sesame", "token=***}sesame"),
        ("token=${TOKEN:-sesame}", "token=***}"),
        ("bearer  abcdef123", "bearer ***"),
        ("Authorization: Basic Zm9vOmJhcg==", "Authorization: Basic ***"),
        ("postgres://me:pw@host/db", "postgres://me:***@host/db"),
        ("https://x.test/?token=abc&page=2", "https://x.test/?token=***&page=2"),
        ('{"password": "abc", "page": 2}', '{"password": "***", "page": 2}'),
        ('{\\"password\\": \\"abc\\"}', '{\\"password\\": \\"***\\"}'),
        ("key sk-abcdefghijklmnop used", "key sk-*** used"),
        ("ghp_abcdefghijklmnopqrst", "ghp_***"),
        ("the bearer of good news has no token to give", "the bearer of good news has no token to give"),
        ("https://example.test:8080/path", "https://example.test:8080/path"),
    ],
)
def test_secrets_inside_a_text_are_hidden(text: str, masked: str) -> None:
    assert mask(text) == masked
    assert mask(masked) == masked, "masking again changes nothing"


# Beyond ASCII, some letters are the same as these in any case.
ALIKE = {"s": "sS\u017f", "k": "kK\u212a", "i": "iI\u0130\u0131"}
SECRETS = (
    "Bearer abcdef123", "x://me:abcdef@host", "eyJabcdefghijklm", "sk-abcdefghijklmnop", "ghs_abcdefghijklmnop", "github_pat_abcdefghijklm",
    "xoxb-abcdefghijklm", "AKIAABCDEFGHIJKLM", "glpat-abcdefghijklm", "passwd=abcdef", "passphrase: abcdef", "secret=abcdef", "token=abcdef",
    "api-key=abcdef", "apikey=abcdef", "authorization: abcdef",
)  # fmt: skip


@given(st.data(), st.sampled_from(SECRETS), st.sampled_from(["", "…"]))
def test_a_secret_is_hidden_in_any_case(data: st.DataObject, secret: str, more: str) -> None:
    letters = [ALIKE.get(letter.lower(), letter.lower() + letter.upper()) for letter in secret]
    assert "***" in str(mask(more + "".join(data.draw(st.sampled_from(choice)) for choice in letters)))


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("abc xyz", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz", max_size=5), inner, max_size=3),
)


@given(json)
def test_what_holds_no_secret_stays_equal(value: object) -> None:
    assert mask(value) == value


def test_the_value_itself_is_not_changed() -> None:
    value = {"password": "x", "list": [{"token": "y"}]}
    mask(value)
    assert value == {"password": "x", "list": [{"token": "y"}]}


@pytest.mark.parametrize("piece", ["a-", "token ", "://", "://a:", "bearer ", 'password"', "sk-", "eyJ."])
def test_time_grows_with_the_length_and_not_its_square(piece: str) -> None:
    def cost(length: int) -> float:
        text = piece * (length // len(piece))
        spells = []
        for _ in range(3):
            began = time.process_time()
            mask(text)
            spells.append(time.process_time() - began)
        return min(spells)

    assert cost(400_000) < 100 * cost(20_000) + 0.05
