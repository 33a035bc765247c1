"""Converts an ASGI scope to a Head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from pegboard.bounded_dict import BoundedDict
from pegboard.limits import Limits
from pegboard.server.http.head_rules import LENGTH, SESSION
from pegboard.server.http.request_reader import LISTS
from pegboard.server.http.responses import body_too_large, plain_error
from pegboard.server.http_types import Answer, Head

AsgiScope: TypeAlias = MutableMapping[str, Any]

_REMEMBERED: Final = 1024
_REMEMBERED_BYTES: Final = 4096


class HeadCache:
    """Reads request heads, and caches valid ones: a client repeats the same head except for the length of its body.

    The requests of a proxy differ in the id of the session as well, which therefore is not part of the cache key either.

    `places` maps our paths to those of the endpoint, `mounted` those where a framework has removed the rest; the
    endpoint sees what follows `base`.
    """

    __slots__ = ("_base", "_known", "_length_at", "_limits", "_locate", "_mounted", "_places", "_session_at")

    def __init__(
        self,
        places: Mapping[str, bytes],
        mounted: Mapping[str, bytes],
        limits: Limits,
        base: str = "",
        locate: Callable[[str], bytes] = lambda _path: b"",
    ) -> None:
        self._locate = locate
        self._places = places
        self._base = base
        self._mounted = mounted
        self._limits = limits
        self._known: BoundedDict[tuple[Any, ...], Head] = BoundedDict(_REMEMBERED)
        # The indexes of the two fields in the last request; most servers keep the client's order.
        self._length_at = self._session_at = 0

    def find(self, scope: AsgiScope) -> Head | Answer:
        """The head of a request, or an error response."""
        fields, at = scope["headers"], self._length_at
        if at >= len(fields) or fields[at][0] != LENGTH:
            return self._read(scope)
        key = _key(scope, at, self._session_at)
        try:
            head = self._known.get(key)
        except TypeError:
            # Some servers use lists instead of tuples: such heads are not cached.
            head = None
        if head is None:
            return self._read(scope)
        session = fields[self._session_at][1] if SESSION in key else None
        if head.headers[LENGTH] == fields[at][1] and (session is None or head.headers[SESSION] == session):
            return head
        return self._adapt(key, head, fields[at][1], session)

    def _adapt(self, key: tuple[Any, ...], head: Head, length: bytes, session: bytes | None) -> Head | Answer:
        """A known head with another length or session: the endpoint's findings do not depend on these."""
        headers = (
            {**head.headers, LENGTH: length} if session is None else {**head.headers, LENGTH: length, SESSION: session}
        )
        adapted = replace(head, headers=headers)
        refused = check(adapted, self._limits)
        if refused is None:
            self._known[key] = adapted
        return adapted if refused is None else refused

    def _read(self, scope: AsgiScope) -> Head | Answer:
        fields = scope["headers"]
        headers: dict[bytes, bytes] = dict(fields)
        repeated: tuple[bytes, ...] = ()
        if len(headers) != len(fields):
            headers, repeated = join_repeated(fields)
        path, places = scope["path"], self._places
        prefix = self._base
        if scope.get("root_path"):
            path, places, prefix = strip_root(scope), self._mounted, scope["root_path"].rstrip("/") + prefix
        client, server = scope.get("client"), scope.get("server")
        head = Head(
            scope["method"].encode(),
            places.get(path) or self._locate(path),
            scope["query_string"],
            headers,
            repeated,
            client[0] if client else "",
            server[0] if server and server[1] is not None else "",
            scope.get("scheme") == "https",
            prefix=prefix,
            mount=scope.get("root_path", "").rstrip("/"),
        )
        return check(head, self._limits) or self._remember(scope, head)

    def _remember(self, scope: AsgiScope, head: Head) -> Head:
        if (
            not head.path
            or LENGTH not in head.headers
            or head.repeated
            or sum(map(len, head.headers.values())) > _REMEMBERED_BYTES
        ):
            return head
        places = {field[0]: place for place, field in enumerate(scope["headers"])}
        self._length_at, self._session_at = places[LENGTH], places.get(SESSION, self._session_at)
        key = _key(scope, self._length_at, self._session_at)
        try:
            known = self._known.get(key)
        except TypeError:
            return head
        if known is not None:
            # Not the headers as they came: credentials were removed from the known ones when they were verified.
            varying = {name: head.headers[name] for name in (LENGTH, SESSION) if name in head.headers}
            head = replace(known, headers={**known.headers, **varying})
        self._known[key] = head
        return head


def _key(scope: AsgiScope, at: int, session_at: int) -> tuple[Any, ...]:
    """The cache key: the head without the length of the body and the id of the session, and the rest of the scope."""
    parts = [*scope["headers"]]
    if session_at < len(parts) and parts[session_at][0] == SESSION:
        parts[session_at] = SESSION
    client = scope.get("client")
    parts[at] = (
        scope["method"],
        scope["path"],
        scope["query_string"],
        scope.get("root_path"),
        scope.get("scheme"),
        scope.get("server"),
        client and client[0],
    )
    return tuple(parts)


def join_repeated(fields: Iterable[tuple[bytes, bytes]]) -> tuple[dict[bytes, bytes], tuple[bytes, ...]]:
    """Each field once, and the names of repeated ones."""
    headers: dict[bytes, bytes] = {}
    repeated: dict[bytes, None] = {}
    for name, value in fields:
        if name not in headers:
            headers[name] = value
            continue
        repeated[name] = None
        if name in LISTS:
            headers[name] += b", " + value
    return headers, tuple(repeated)


def strip_root(scope: AsgiScope) -> str:
    """The path without the mount points; servers differ on whether it still contains them."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    rest = path.removeprefix(root)
    return rest if not rest or rest[0] == "/" else path


def check(head: Head, limits: Limits) -> Answer | None:
    """Reject what our own HTTP server rejects and another server may have let through."""
    headers = head.headers
    if b"host" in head.repeated:
        return plain_error(400, "A request must have exactly one Host field.")
    if b"content-encoding" in headers and headers[b"content-encoding"].lower() != b"identity":
        return plain_error(415, "The body of a request must not be compressed.")
    length = headers.get(b"content-length")
    if length is not None:
        if b"content-length" in head.repeated or b"transfer-encoding" in headers or not length.isdigit():
            return plain_error(400, "The length of the body is ambiguous.")
        if len(length) > 18 or int(length) > limits.body_bytes:
            return body_too_large(limits.body_bytes)
    return None
