"""The table of protocol revisions: which one has which method, notification, field and extension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pegboard.call import ChangeKind, Json
from pegboard.errors import MissingCapability, UnsupportedVersion

MODERN: Final = "2026-07-28"
NEWEST_LEGACY: Final = "2025-11-25"
ASSUMED: Final = "2025-03-26"
"""The revision of a request that states none: the last one without a header for it."""

_OLDEST: Final = "2024-11-05"
_ALL: Final = (_OLDEST, MODERN)
_LEGACY_ONLY: Final = (_OLDEST, NEWEST_LEGACY)
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
"""The first and last revision that has the method, for the methods that this server implements."""

OWN_NOTIFICATIONS: Final = "dev.pegboard/notifications"
"""The member of a filter that asks for the notifications of a server's author."""

RESOURCE_UPDATED: Final = "notifications/resources/updated"

CHANGE_METHODS: Final[Mapping[ChangeKind, str]] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
    "updated": RESOURCE_UPDATED,
}
"""The notification of each kind of change."""

CHANGE_KINDS: Final[Mapping[str, ChangeKind]] = {method: kind for kind, method in CHANGE_METHODS.items()}

NOTIFICATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "notifications/initialized": _LEGACY_ONLY,
    "notifications/cancelled": _ALL,
    "notifications/progress": _ALL,
    "notifications/message": _ALL,
    **dict.fromkeys(CHANGE_KINDS, _ALL),
    "notifications/subscriptions/acknowledged": _MODERN_ONLY,
}

TASKS: Final = "io.modelcontextprotocol/tasks"


class Revision(Struct, frozen=True, kw_only=True):
    """One revision of the protocol, and what distinguishes it from the others.

    `has_sessions`: `initialize` opens a session; without, every request states its version and capabilities itself.
    `allows_batches`: several messages may come in one array.
    `asks_midway`: a server asks its client while a request runs; without, the result of the request asks.
    `polls_streams`: clients accept events without data, and reconnect to a stream that the server has closed early.
    `links_in_errors`: an error may name links that the user has to open before the request is sent again.
    """

    name: str
    has_sessions: bool = False
    allows_batches: bool = False
    asks_midway: bool = False
    polls_streams: bool = False
    links_in_errors: bool = False
    methods: frozenset[str]
    notifications: frozenset[str]


def _revision(name: str, **properties: bool) -> Revision:
    return Revision(name=name, methods=_known(METHODS, name), notifications=_known(NOTIFICATIONS, name), **properties)


def _known(spans: Mapping[str, tuple[str, str]], name: str) -> frozenset[str]:
    # Revisions are ISO dates, so the order of their names is their order in time.
    return frozenset(key for key, (first, last) in spans.items() if first <= name <= last)


REVISIONS: Final[Mapping[str, Revision]] = {
    revision.name: revision
    for revision in (
        _revision("2024-11-05", has_sessions=True, asks_midway=True),
        _revision("2025-03-26", has_sessions=True, asks_midway=True, allows_batches=True),
        _revision("2025-06-18", has_sessions=True, asks_midway=True),
        _revision("2025-11-25", has_sessions=True, asks_midway=True, polls_streams=True, links_in_errors=True),
        _revision("2026-07-28"),
    )
}
"""All supported revisions, oldest first."""

SUPPORTED: Final = tuple(reversed([*REVISIONS]))
"""Their names, newest first."""

LEGACY: Final = frozenset(name for name, revision in REVISIONS.items() if revision.has_sessions)

DEFAULT_LOG_LEVEL: Final = "info"
"""The log level of a session before it sets one: these revisions leave that to the server."""

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
"""The member of params that names the subject of a method."""

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
"""By kind of object, the first revision that has the field; fields that are not listed are as old as their object."""

_TOO_NEW: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    kind: {revision: frozenset(name for name, first in since.items() if first > revision) for revision in REVISIONS}
    for kind, since in FIELDS.items()
}


def find_revision(name: str) -> Revision:
    """The revision with that name; rejects an unknown one."""
    revision = REVISIONS.get(name)
    if revision is None:
        raise UnsupportedVersion(name, SUPPORTED)
    return revision


def trim(kind: str, value: Mapping[str, Json], version: str) -> Mapping[str, Json]:
    """The object without the fields that the revision does not have; the same object if there are none."""
    if kind not in _TOO_NEW:
        return value
    unknown = _TOO_NEW[kind][version]
    if unknown.isdisjoint(value):
        return value
    return {key: item for key, item in value.items() if key not in unknown}


def has_extension(name: str, capabilities: Mapping[str, Json], version: str) -> bool:
    """Whether a client of this revision has declared the extension; older revisions have no extensions."""
    declared = trim("capabilities", capabilities, version).get("extensions")
    return isinstance(declared, Mapping) and isinstance(declared.get(name), Mapping)


def missing_extension(what: str, name: str) -> MissingCapability:
    """The error for a feature whose extension the client has not declared."""
    return MissingCapability(f"{what}: needs a client with the extension {name}", {"extensions": {name: {}}})
