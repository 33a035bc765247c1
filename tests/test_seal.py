"""What a client carries for us comes back as it was, or not at all."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.errors import InvalidParams
from pegboard.seal import Seal

KEY, OTHER = b"k" * 32, b"o" * 32
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_a_sealed_value_opens_as_it_was(value: object) -> None:
    seal = Seal("cursor", [KEY])
    assert seal.open(seal.close(value), now=0) == value


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_is_noticed(place: int, change: int) -> None:
    seal = Seal("cursor", [KEY])
    text = seal.close({"offset": 100})
    raw = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    raw[place % len(raw)] ^= change
    with pytest.raises(InvalidParams):
        seal.open(base64.urlsafe_b64encode(raw).rstrip(b"=").decode(), now=0)


@given(st.text(max_size=80))
def test_text_that_we_never_made_is_refused(text: str) -> None:
    with pytest.raises(InvalidParams):
        Seal("cursor", [KEY]).open(text, now=0)


def test_a_value_sealed_for_one_purpose_does_not_open_for_another() -> None:
    with pytest.raises(InvalidParams, match="Invalid state"):
        Seal("state", [KEY]).open(Seal("cursor", [KEY]).close(1), now=0)


def test_a_value_opens_only_for_whom_it_was_given_to() -> None:
    seal = Seal("state", [KEY])
    text = seal.close(1, bearer="ada")
    assert seal.open(text, now=0, bearer="ada") == 1
    with pytest.raises(InvalidParams, match="somebody else"):
        seal.open(text, now=0, bearer="bob")


def test_a_value_opens_until_it_expires() -> None:
    seal = Seal("state", [KEY])
    text = seal.close(1, expires=100)
    assert seal.open(text, now=100) == 1
    with pytest.raises(InvalidParams, match="expired"):
        seal.open(text, now=100.1)


def test_an_older_key_of_the_ring_still_opens() -> None:
    text = Seal("state", [OTHER]).close(1)
    assert Seal("state", [KEY, OTHER]).open(text, now=0) == 1
    with pytest.raises(InvalidParams):
        Seal("state", [KEY]).open(text, now=0)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Seal("state", [b"short"])
