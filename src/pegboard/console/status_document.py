"""The status of a server at `/operator/status`, for `pegboard status`: its servers, and the calls and errors of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pegboard.call import Json
from pegboard.console.console_access import ConsoleAccess
from pegboard.console.console_subject import ConsoleSubject
from pegboard.errors import StoreDown
from pegboard.middleware.observability.history import MAX_CALLS
from pegboard.protocol.json_values import objects_in
from pegboard.server.http.responses import method_not_allowed, text_response
from pegboard.server.http_types import Answer, EndpointResult, Head, Sink
from pegboard.server.pages.sign_in import SignIn
from pegboard.server.streamable_http.readiness import FRESH
from pegboard.stores.operator_proof import HEADER, is_proven

ROUTE: Final = "/operator"
PATH: Final = "/operator/status"

_FAILED: Final = frozenset({"failed", "refused"})
_HEADER: Final = HEADER.lower().encode()


class StatusDocument:
    """Describes a board or a gateway to its operator; `accept` is a route of its HTTP endpoint.

    Where callers authenticate, it is for those who may read the console, and for those who can read the store of the
    server. Elsewhere everyone who reaches the server sees the states and numbers, as at `/ready`.
    """

    def __init__(self, subject: ConsoleSubject) -> None:
        self._subject = subject
        self._access = ConsoleAccess(subject.board.verdict)
        subject.served.routes[ROUTE] = self.accept
        # For programs alone: it has no page, and knows no browser.
        self._sign_in = SignIn(subject.board.name, subject.served.auth, subject.served.routes)

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        """Answer a request for the status."""
        if not head.path.endswith(PATH.encode()):
            return text_response(404, f"Not found; the status is {PATH}")
        return method_not_allowed(b"GET") if head.method != b"GET" else self._answer(head)

    async def _answer(self, head: Head) -> Answer:
        try:
            allowed = await self._is_operator(head)
            if isinstance(allowed, Answer):
                return allowed
            return _json(await self._describe(detailed=allowed))
        except StoreDown:
            return _json({"error": "The store cannot be read now"}, 503)

    async def _is_operator(self, head: Head) -> bool | Answer:
        """Whether the sender may see everything; an Answer rejects the request."""
        served = self._subject.served
        proof, shared = head.headers.get(_HEADER), served.shared_store
        records = None if shared is None else shared.store.records
        if proof is not None and records is not None and await is_proven(records, proof.decode("latin-1")):
            return True
        if served.auth is None:
            return False
        visitor = await self._sign_in.visitor(head, ROUTE)
        if isinstance(visitor, Answer):
            return _json({"error": "Credentials are needed"}, 401)
        if not self._access.rights(visitor.principal):
            return _json({"error": f"This needs the scope console.read, which {visitor.principal.id} lacks"}, 403)
        return True

    async def _describe(self, *, detailed: bool) -> dict[str, Json]:
        calls = await self._subject.history.latest(MAX_CALLS)
        made = Counter(call.lane for call in calls)
        failed = Counter(call.lane for call in calls if call.outcome in _FAILED)
        servers: dict[str, Json] = {
            name: {
                "state": about["state"],
                "tools": about.get("tools", 0),
                "calls": made[name],
                "errors": failed[name],
                **({"problem": about["problem"]} if detailed and about.get("problem") else {}),
            }
            for name, about in self._servers()
        }
        return {
            "servers": servers,
            "calls": {"calls": len(calls), "errors": failed.total(), "since": calls[0].at if calls else None},
        }

    def _servers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for toolbox in objects_in(self._subject.overview()["toolboxes"]):
            for server in objects_in(toolbox["servers"]):
                yield f"{toolbox['name']}/{server['name']}", dict(server)


def _json(value: dict[str, Json], status: int = 200) -> Answer:
    return Answer(status, msgspec.json.encode(value), headers=FRESH)
