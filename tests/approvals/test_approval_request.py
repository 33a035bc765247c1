"""The digest and the text of a call's arguments: the same for the same call, and different for any other."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.approvals.approval_request import digest_of, write_arguments
from tests.depth import examples

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def turned(value: Any) -> Any:
    """The same JSON with the members of every object in the opposite order."""
    if isinstance(value, dict):
        return {name: turned(member) for name, member in reversed(value.items())}
    return [turned(member) for member in value] if isinstance(value, list) else value


@settings(max_examples=examples(50))
@given(one=ARGUMENTS, other=ARGUMENTS)
def test_a_digest_is_that_of_one_call(one: Any, other: Any) -> None:
    digest = digest_of("ann", "delete", raw=encode(one), repaired=None)
    assert digest_of("ann", "delete", raw=encode(turned(one)), repaired=None) == digest
    assert digest_of("bob", "delete", raw=encode(one), repaired=None) != digest
    assert digest_of("ann", "delete", raw=encode(one), repaired=one | {"n": 1}) != digest
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest_of("ann", "delete", raw=encode(other), repaired=None) == digest) == same


@settings(max_examples=examples(50))
@given(arguments=ARGUMENTS)
def test_the_text_is_the_same_value_and_shows_every_character(arguments: Any) -> None:
    shown = write_arguments(encode(arguments), None)
    assert json.loads(shown) == arguments
    assert not any(unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp") for one in shown.replace("\n", ""))


def test_of_repeated_members_the_last_is_shown_as_it_runs() -> None:
    assert write_arguments(b'{"to": "me", "to": "you"}', None) == '{\n  "to": "you"\n}'
