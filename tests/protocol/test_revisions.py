"""The tables of the revisions: what each has, what is left out for each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.errors import UnsupportedVersion
from pegboard.protocol.revisions import (
    FIELDS,
    LEGACY,
    MODERN,
    NEWEST_LEGACY,
    REVISIONS,
    SUPPORTED,
    find_revision,
    trim,
)

SINCE = [
    ("tool", "annotations", "2025-03-26"),
    ("tool", "title", "2025-06-18"),
    ("tool", "outputSchema", "2025-06-18"),
    ("tool", "_meta", "2025-06-18"),
    ("tool", "icons", "2025-11-25"),
    ("resource", "title", "2025-06-18"),
    ("resource", "_meta", "2025-06-18"),
    ("resource", "icons", "2025-11-25"),
    ("prompt", "title", "2025-06-18"),
    ("prompt", "_meta", "2025-06-18"),
    ("prompt", "icons", "2025-11-25"),
    ("capabilities", "completions", "2025-03-26"),
    ("capabilities", "extensions", MODERN),
    ("result", "structuredContent", "2025-06-18"),
    ("result", "resultType", MODERN),
    ("result", "ttlMs", MODERN),
    ("result", "cacheScope", MODERN),
    ("notifications/progress", "message", "2025-03-26"),
    ("elicitation/create", "mode", "2025-11-25"),
    ("sampling/createMessage", "tools", "2025-11-25"),
    ("sampling/createMessage", "toolChoice", "2025-11-25"),
    ("implementation", "title", "2025-06-18"),
    ("implementation", "icons", "2025-11-25"),
    ("implementation", "description", "2025-11-25"),
    ("implementation", "websiteUrl", "2025-11-25"),
]


def test_the_revisions_are_in_order_and_the_newest_is_offered_first() -> None:
    assert list(REVISIONS) == sorted(REVISIONS)
    assert tuple(reversed(REVISIONS)) == SUPPORTED
    assert max(LEGACY) == NEWEST_LEGACY
    assert MODERN not in LEGACY


def test_each_property_holds_for_the_revisions_that_the_specification_gives_it() -> None:
    def having(name: str) -> list[str]:
        return [revision.name for revision in REVISIONS.values() if getattr(revision, name)]

    assert having("has_sessions") == having("asks_midway") == sorted(LEGACY)
    assert having("allows_batches") == ["2025-03-26"]
    assert having("polls_streams") == having("links_in_errors") == ["2025-11-25"]


def test_an_unknown_revision_is_rejected_with_those_that_are_known() -> None:
    assert find_revision("2025-06-18") is REVISIONS["2025-06-18"]
    with pytest.raises(UnsupportedVersion) as rejected:
        find_revision("1999-01-01")
    assert rejected.value.data == {"requested": "1999-01-01", "supported": list(SUPPORTED)}


@pytest.mark.parametrize(("kind", "field", "first"), SINCE)
@pytest.mark.parametrize("version", SUPPORTED)
def test_a_field_is_left_out_before_the_revision_that_brought_it(
    kind: str, field: str, first: str, version: str
) -> None:
    value = {"name": "n", field: "v"}
    assert trim(kind, value, version) == (value if version >= first else {"name": "n"})


def test_every_field_of_the_tables_is_proven_here() -> None:
    assert {(kind, field) for kind, fields in FIELDS.items() for field in fields} == {row[:2] for row in SINCE}


@settings(deadline=None)
@given(
    st.sampled_from([*FIELDS, "unheard of"]),
    st.dictionaries(st.text(max_size=8) | st.sampled_from([row[1] for row in SINCE]), st.integers()),
    st.sampled_from(SUPPORTED),
)
def test_what_no_table_names_is_carried_untouched(kind: str, value: dict[str, Any], version: str) -> None:
    kept = trim(kind, value, version)
    known = FIELDS.get(kind, {})
    assert {key: item for key, item in kept.items() if key not in known} == {
        key: item for key, item in value.items() if key not in known
    }
    assert list(kept) == [key for key in value if key in kept]
    if kept == value:
        assert kept is value


@pytest.mark.parametrize(
    ("method", "legacy", "modern"),
    [
        ("initialize", True, False),
        ("ping", True, False),
        ("server/discover", False, True),
        ("tools/list", True, True),
        ("tools/call", True, True),
        ("logging/setLevel", True, False),
        ("resources/subscribe", True, False),
        ("subscriptions/listen", False, True),
        ("tasks/get", False, True),
        ("unknown/method", False, False),
        ("", False, False),
    ],
)
def test_a_method_exists_in_the_revisions_that_have_it(method: str, legacy: bool, modern: bool) -> None:
    assert [method in revision.methods for revision in REVISIONS.values()] == [legacy] * 4 + [modern]


def test_a_notice_exists_in_the_revisions_that_have_it() -> None:
    assert "notifications/initialized" not in REVISIONS[MODERN].notifications
    assert all("notifications/progress" in revision.notifications for revision in REVISIONS.values())
