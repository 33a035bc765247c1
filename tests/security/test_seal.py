"""What a client carries for us comes back as it was, or not at all."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.errors import InvalidParams
from pegboard.security.seal import Seal

KEY, OTHER = b"k" * 32, b"o" * 32
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


SECRET = pytest.mark.parametrize("secret", [False, True], ids=["signed", "secret"])


@SECRET
@given(value=JSON)
def test_a_sealed_value_opens_as_it_was(value: object, secret: bool) -> None:
    seal = Seal("cursor", [KEY], secret=secret)
    assert seal.open(seal.close(value), now=0) == value


@SECRET
@given(place=st.integers(0, 200), change=st.integers(1, 255))
def test_a_changed_byte_is_noticed(place: int, change: int, secret: bool) -> None:
    seal = Seal("cursor", [KEY], secret=secret)
    text = seal.close({"offset": 100})
    raw = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    raw[place % len(raw)] ^= change
    with pytest.raises(InvalidParams):
        seal.open(base64.urlsafe_b64encode(raw).rstrip(b"=").decode(), now=0)


@SECRET
@given(text=st.text(max_size=80))
def test_text_that_we_never_made_is_refused(text: str, secret: bool) -> None:
    with pytest.raises(InvalidParams):
        Seal("cursor", [KEY], secret=secret).open(text, now=0)


def spellings(text: str) -> set[str]:
    """Other texts that a lenient Base64 decoder reads as the same bytes."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    spare = {2: 16, 3: 4}.get(len(text) % 4, 1)
    last = alphabet.index(text[-1])
    made = {text[:-1] + alphabet[last - last % spare + bits] for bits in range(spare)}
    made |= {text.replace("-", "+"), text.replace("_", "/"), text.translate({45: 43, 95: 47})}
    made |= {text + "=" * count for count in (1, 2, 3, 4)} | {text + "\n", " " + text, text[:4] + "\n" + text[4:]}
    return made - {text}


@SECRET
@given(value=JSON)
def test_a_sealed_value_opens_from_its_own_text_and_from_no_other_spelling_of_it(value: object, secret: bool) -> None:
    seal = Seal("cursor", [KEY], secret=secret)
    for text in spellings(seal.close(value)):
        with pytest.raises(InvalidParams, match="is malformed"):
            seal.open(text, now=0)


@SECRET
def test_a_value_sealed_for_one_purpose_does_not_open_for_another(secret: bool) -> None:
    with pytest.raises(InvalidParams, match="Invalid state"):
        Seal("state", [KEY], secret=secret).open(Seal("cursor", [KEY], secret=secret).close(1), now=0)


@SECRET
@given(
    mine=st.tuples(st.text(max_size=3), st.text(max_size=3)), theirs=st.tuples(st.text(max_size=3), st.text(max_size=3))
)
def test_a_value_opens_for_its_own_purpose_and_server_alone(
    mine: tuple[str, str], theirs: tuple[str, str], secret: bool
) -> None:
    one, two = (Seal(purpose, [KEY], audience=server, secret=secret) for purpose, server in (mine, theirs))
    if mine == theirs:
        assert two.open(one.close(1), now=0) == 1
    else:
        with pytest.raises(InvalidParams):
            two.open(one.close(1), now=0)


def test_a_secret_value_cannot_be_read_by_its_carrier() -> None:
    word = "a word to find"
    for secret in (False, True):
        text = Seal("state", [KEY], secret=secret).close({"word": word})
        assert (word.encode() in base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))) is not secret


def test_without_the_library_a_secret_value_is_signed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.security.seal.find_spec", lambda name: None)
    seal = Seal("state", [KEY], secret=True)
    assert seal.open(seal.close(1), now=0) == 1
    with pytest.raises(InvalidParams):
        Seal("state", [OTHER], secret=True).open(seal.close(1), now=0)


def test_the_same_value_is_sealed_differently_each_time_where_it_is_secret() -> None:
    seal = Seal("state", [KEY], secret=True)
    assert seal.close(1) != seal.close(1)


def test_a_value_opens_only_for_whom_it_was_given_to() -> None:
    seal = Seal("state", [KEY])
    text = seal.close(1, bearer="ada")
    assert seal.open(text, now=0, bearer="ada") == 1
    with pytest.raises(InvalidParams, match="another caller"):
        seal.open(text, now=0, bearer="bob")


def test_a_value_opens_until_it_expires() -> None:
    seal = Seal("state", [KEY])
    text = seal.close(1, expires=100)
    assert seal.open(text, now=100) == 1
    with pytest.raises(InvalidParams, match="expired"):
        seal.open(text, now=100.1)


@SECRET
def test_an_older_key_of_the_ring_still_opens(secret: bool) -> None:
    text = Seal("state", [OTHER], secret=secret).close(1)
    assert Seal("state", [KEY, OTHER], secret=secret).open(text, now=0) == 1
    with pytest.raises(InvalidParams):
        Seal("state", [KEY], secret=secret).open(text, now=0)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Seal("state", [b"short"])


@SECRET
def test_a_key_that_is_preferred_seals_and_those_before_it_still_open(secret: bool) -> None:
    seal, other = Seal("cursor", [KEY], secret=secret), Seal("cursor", [OTHER], secret=secret)
    old = seal.close("old")
    for _ in range(2):
        seal.prefer(OTHER)
        assert other.open(seal.close("new"), now=0) == "new"
        assert seal.open(old, now=0) == "old"
    with pytest.raises(InvalidParams):
        other.open(old, now=0)
