"""Addresses and challenges that a server sends cost in proportion to their length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pegboard.client.http.address import read_address
from pegboard.client.login.discovery import covers, read_challenges
from pegboard.errors import PegboardError
from tests.work import grows_linearly

pytestmark = pytest.mark.same_on_every_python

HERE = read_address("https://mcp.example.com/a/b")


@pytest.mark.parametrize(
    "piece",
    ["a", "/", "../", "a/../", "@", ":", "?", "#", "%2e/", "[", "]", "é", "xn--a.", "a.", "\t", "127."],
    ids=repr,
)
@pytest.mark.parametrize("head", ["", "/", "//", "https://", "https://a/", "https://["])
def test_an_address_is_read_in_proportion_to_its_length(head: str, piece: str) -> None:
    def read(size: int) -> Callable[[], object]:
        reference = head + piece * size

        def run() -> None:
            for attempt in (HERE.join, read_address, lambda text: covers(text, HERE)):
                try:
                    attempt(reference)
                except PegboardError:
                    pass

        return run

    assert grows_linearly(read, 500)


@pytest.mark.parametrize(
    "piece", ['a="b", ', 'a="', "\\", '"', "a ", "a=", ",", " ", "Bearer ", 'a="\\"', "=,"], ids=repr
)
def test_a_challenge_is_read_in_proportion_to_its_length_and_no_more_beyond_the_longest(piece: str) -> None:
    def read(size: int) -> Callable[[], object]:
        text = "Bearer " + (piece * size)[:size]
        return lambda: read_challenges(text)

    assert grows_linearly(read, 2_000)
    read_challenges("Bearer " + piece * 200_000)
