"""The table of protocol revisions: which one has which method, notification and field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pegboard.call import Json

REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
MODERN: Final = "2026-07-28"
LEGACY: Final = frozenset(REVISIONS[:-1])
NEWEST_LEGACY: Final = "2025-11-25"
ASSUMED: Final = "2025-03-26"
"""What a request without a version is taken to speak: the last revision that had no header for it."""
SUPPORTED: Final = tuple(reversed(REVISIONS))
BATCHES: Final = frozenset({"2025-03-26"})
POLLING: Final = frozenset({"2025-11-25"})
"""Where a client knows events without data, and comes back to a stream whose connection we have ended."""

ASKS_MIDWAY: Final = LEGACY
"""Where questions are put and answered while a request runs; elsewhere its answer puts them."""
LINKS_FIRST: Final = frozenset({"2025-11-25"})
"""Where a refusal may name the links that a person has to open before the request is sent again."""

_AGE: Final = {revision: age for age, revision in enumerate(REVISIONS)}
_ALL: Final = (REVISIONS[0], REVISIONS[-1])
_LEGACY_ONLY: Final = (REVISIONS[0], NEWEST_LEGACY)
_MODERN_ONLY: Final = (MODERN, MODERN)

METHODS: Final[Mapping[str, tuple[str, str]]] = {
    "initialize": _LEGACY_ONLY,
    "ping": _LEGACY_ONLY,
    "server/discover": _MODERN_ONLY,
    "tools/list": _ALL,
    "tools/call": _ALL,
    "resources/list": _ALL,
    "resources/templates/list": _ALL,
    "resources/read": _ALL,
    "prompts/list": _ALL,
    "prompts/get": _ALL,
    "completion/complete": _ALL,
    "logging/setLevel": _LEGACY_ONLY,
    "resources/subscribe": _LEGACY_ONLY,
    "resources/unsubscribe": _LEGACY_ONLY,
    "subscriptions/listen": _MODERN_ONLY,
    "tasks/get": _MODERN_ONLY,
    "tasks/update": _MODERN_ONLY,
    "tasks/cancel": _MODERN_ONLY,
}
"""First and last revision that has the method, of those this server implements."""

NOTIFICATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "notifications/initialized": _LEGACY_ONLY,
    "notifications/cancelled": _ALL,
    "notifications/progress": _ALL,
    "notifications/message": _ALL,
    "notifications/tools/list_changed": _ALL,
    "notifications/prompts/list_changed": _ALL,
    "notifications/resources/list_changed": _ALL,
    "notifications/resources/updated": _ALL,
    "notifications/subscriptions/acknowledged": _MODERN_ONLY,
}

KNOWN_CAPABILITIES: Final[Mapping[str, frozenset[str]]] = {
    revision: frozenset(
        method for method, (first, last) in METHODS.items() if _AGE[first] <= _AGE[revision] <= _AGE[last]
    )
    for revision in REVISIONS
}
"""The methods of each revision."""

DEFAULT_LOG_LEVEL: Final = "info"
"""What a session hears before it has set a level: these revisions leave that to the server."""

LOG_LEVELS: Final[Mapping[str, int]] = {
    level: rank
    for rank, level in enumerate(
        ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"),
    )
}

NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The member of params that says what a method is about."""

FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "tool": {
        "annotations": "2025-03-26",
        "title": "2025-06-18",
        "outputSchema": "2025-06-18",
        "_meta": "2025-06-18",
        "icons": "2025-11-25",
    },
    "resource": {"title": "2025-06-18", "_meta": "2025-06-18", "icons": "2025-11-25"},
    "prompt": {"title": "2025-06-18", "_meta": "2025-06-18", "icons": "2025-11-25"},
    "capabilities": {"completions": "2025-03-26", "extensions": MODERN},
    "result": {"structuredContent": "2025-06-18", "resultType": MODERN, "ttlMs": MODERN, "cacheScope": MODERN},
    "notifications/progress": {"message": "2025-03-26"},
    "elicitation/create": {"mode": "2025-11-25"},
    "sampling/createMessage": {"tools": "2025-11-25", "toolChoice": "2025-11-25"},
    "implementation": {
        "title": "2025-06-18",
        "icons": "2025-11-25",
        "description": "2025-11-25",
        "websiteUrl": "2025-11-25",
    },
}
"""By kind of object: the first revision that has the field; a field that is not listed is as old as its object."""

_TOO_NEW: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    kind: {
        revision: frozenset(name for name, first in since.items() if _AGE[first] > _AGE[revision])
        for revision in REVISIONS
    }
    for kind, since in FIELDS.items()
}


def knows(table: Mapping[str, tuple[str, str]], name: str, version: str) -> bool:
    """Whether the revision has this method or notice."""
    span = table.get(name)
    return span is not None and _AGE[span[0]] <= _AGE[version] <= _AGE[span[1]]


def trim(kind: str, value: Mapping[str, Json], version: str) -> Mapping[str, Json]:
    """The object without the fields that the revision does not know; the same object where nothing is to be left out."""
    if kind not in _TOO_NEW:
        return value
    unknown = _TOO_NEW[kind][version]
    if unknown.isdisjoint(value):
        return value
    return {key: item for key, item in value.items() if key not in unknown}
