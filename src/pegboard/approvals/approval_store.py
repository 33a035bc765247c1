"""The approval requests of a server, in a store that its replicas share.

Theory of operation. Each request is a record with a time to live, and one more record lists those that are alive. A
request is created, decided and used by writing its record with `if_version`, so that of several processes one succeeds:
it is decided once, and used by one call. Identical calls find the same request by its digest. Every step is an entry of
a feed, which is the history, and the hint for the calls that wait in any process. After a crash nothing is lost but the
waiting itself: the caller repeats its call and finds the request.

No clock alone decides how long a request lives. The store removes it by its own clock; the wall clock ends it at
`expires`, or when it runs backwards beyond `since`; and each process ends it by the monotonic clock, counted from when the
process saw it first.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from pegboard.approvals.approval_request import ApprovalRequest, person_id
from pegboard.auth.principal import Principal
from pegboard.bounded_dict import BoundedDict
from pegboard.errors import AccessDenied, InvalidParams, LimitReached
from pegboard.limits import Limits
from pegboard.logs.audit_sink import NO_AUDIT, AuditSink, Decision, DecisionOutcome
from pegboard.logs.printable import printable
from pegboard.rules.rule import Approval
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store import Store, wait_for_hint

_log = logging.getLogger("pegboard.approvals")

MAX_REASON: Final = 500
"""Characters of the reason for a decision."""
_KEPT_EVENTS: Final = 1000
_REREAD_SECONDS: Final = 2.0
# How far the clocks of the machines that share a store may differ.
_SKEW_SECONDS: Final = 60.0
_LISTED: Final = 100


class ApprovalEvent(Struct, frozen=True, kw_only=True):
    """A step of a request in the history: it was asked, approved, refused or used.

    by: the principal that took the step.
    how: where from: a call, the page, the console or the command line.
    """

    at: float
    step: str
    by: str
    how: str
    reason: str = ""
    request: ApprovalRequest


class _Listed(Struct, array_like=True):
    """A request in the list of those that are alive; `own` if its requester may decide it."""

    id: str
    digest: str
    requester: str
    expires: float
    own: bool


_encode = msgspec.msgpack.Encoder().encode
_read_request = msgspec.msgpack.Decoder(ApprovalRequest).decode
_read_list = msgspec.msgpack.Decoder(list[_Listed]).decode
_read_event = msgspec.msgpack.Decoder(ApprovalEvent).decode


class Approvals:
    """The approval requests of the server of that name; in memory, until a store is given."""

    def __init__(
        self,
        name: str,
        limits: Limits,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        find_audit: Callable[[], AuditSink] = lambda: NO_AUDIT,
    ) -> None:
        self._name = name
        self._limits = limits
        self._clock = clock
        self._ticks = ticks
        self._find_audit = find_audit
        self._given: Store | None = None
        self._seen: BoundedDict[str, float] = BoundedDict(4 * limits.approvals)
        self.url = ""
        """The address of the pages for people, such as `https://tools.example.com/approvals`; empty without them."""

    def use_store(self, store: Store) -> None:
        """Keep the requests in this store, which other processes share."""
        self._given = store

    @property
    def _store(self) -> Store:
        if self._given is None:
            self._given = MemoryStore(self._limits)
        return self._given

    def link(self, request_id: str) -> str:
        """The page of a request; empty if this server has no pages."""
        return f"{self.url}/{request_id}" if self.url else ""

    # -- for calls ---------------------------------------------------------------------------------------------------

    async def ask(self, wanted: ApprovalRequest) -> ApprovalRequest:
        """The request for the approval of this call: a new one, unless there is one with the same digest.

        LimitReached if the requester, or all together, have too many. A requester that may decide itself drops its oldest
        one: it has left that question unanswered.
        """
        records, limits = self._store.records, self._limits
        while True:
            found = await records.get(self._list_key)
            listed, version = ([], 0) if found is None else (_read_list(found.value), found.version)
            listed = [entry for entry in listed if entry.expires > self._clock()]
            same = next((entry for entry in listed if entry.digest == wanted.digest), None)
            if same is not None:
                known = await self.get(same.id)
                if known is not None and known.state != "used":
                    return known
                listed.remove(same)
            own = [entry for entry in listed if entry.requester == wanted.requester]
            dropped = None
            if len(own) >= limits.approvals_per_caller or len(listed) >= limits.approvals:
                dropped = next((entry for entry in own if entry.own), None)
                if dropped is None:
                    raise LimitReached(
                        f"{len(own)} calls already wait for an approval; wait until some are decided",
                        "approvals",
                        retry_after=60,
                    )
                listed.remove(dropped)
            await records.put(self._key(wanted.id), _encode(wanted), ttl=self._left(wanted))
            is_own = wanted.approval.by == "self"
            entry = _Listed(wanted.id, wanted.digest, wanted.requester, wanted.expires, is_own)
            if await records.put(self._list_key, _encode([*listed, entry]), if_version=version) is not None:
                if dropped is not None:
                    await records.delete(self._key(dropped.id))
                await self._publish("asked", wanted, wanted.requester, "call")
                return wanted
            await records.delete(self._key(wanted.id))

    async def wait(self, request_id: str, seconds: float) -> ApprovalRequest | None:
        """The request once it is decided, or as it is after that time; None if it has expired."""
        hint = asyncio.Event()
        end_watch = self._store.feeds.watch(self._feed, hint.set)
        until = self._ticks() + seconds
        try:
            while True:
                request = await self.get(request_id)
                left = until - self._ticks()
                if request is None or request.state != "open" or left <= 0:
                    return request
                await wait_for_hint(hint, min(left, _REREAD_SECONDS))
        finally:
            end_watch()

    async def use(self, request: ApprovalRequest) -> bool:
        """Use an approval for a call; False if it was used before, or has expired."""
        found = await self._store.records.get(self._key(request.id))
        known = None if found is None else self._alive(_read_request(found.value))
        if found is None or known is None or known.state != "approved":
            return False
        known.state = "used"
        if not await self._write(known, found.version):
            return False
        await self._unlist(known.id)
        await self._publish("used", known, known.requester, "call")
        return True

    async def withdraw(self, request: ApprovalRequest) -> None:
        """Forget an open request: its caller was asked, and does not want the call any more."""
        await self._store.records.delete(self._key(request.id))
        await self._unlist(request.id)

    async def remember_server(self, request: ApprovalRequest) -> None:
        """Approve all later calls of this server by the same requester, by the same rule."""
        key = self._server_key(request.requester, request.toolbox, request.server, request.approval)
        await self._store.records.put(key, b"1", ttl=self._limits.first_use_seconds)

    async def knows_server(self, requester: str, toolbox: str, server: str, approval: Approval) -> bool:
        """Whether a call of this server by this requester was approved before."""
        key = self._server_key(requester, toolbox, server, approval)
        return await self._store.records.get(key) is not None

    async def carry(self, ticket: str, digest: str, request_id: str) -> None:
        """An approved call has asked its caller something: let the next round of it, with this ticket, continue."""
        carried = f"{digest} {request_id}".encode()
        await self._store.records.put(self._round_key(ticket), carried, ttl=self._limits.ticket_seconds)

    async def resume(self, ticket: str, digest: str) -> str | None:
        """The id of the request, if the ticket continues an approved call; once for each ticket."""
        key = self._round_key(ticket)
        found = await self._store.records.get(key)
        carried, _, request_id = ("" if found is None else found.value.decode()).partition(" ")
        return request_id if carried == digest and await self._store.records.delete(key) else None

    # -- for people --------------------------------------------------------------------------------------------------

    async def get(self, request_id: str) -> ApprovalRequest | None:
        """A request; None if there is none with this id, or it has expired."""
        found = await self._store.records.get(self._key(request_id))
        return None if found is None else self._alive(_read_request(found.value))

    async def decide(
        self, request_id: str, principal: Principal, *, approve: bool, reason: str = "", how: str = "api"
    ) -> ApprovalRequest:
        """Approve or refuse a request.

        AccessDenied if the principal may not decide it. InvalidParams if there is no such request, or it was decided
        before; the message says what to do.
        """
        while True:
            found = await self._store.records.get(self._key(request_id))
            request = None if found is None else self._alive(_read_request(found.value))
            if found is None or request is None or not request.concerns(principal):
                raise InvalidParams(
                    f"There is no approval request {printable(request_id[:64])!r} that you can decide, or it has "
                    "expired; let the caller make the call again"
                )
            objection = request.objection(principal)
            if objection:
                raise AccessDenied(f"{request.place}: {objection}")
            if request.state != "open":
                raise InvalidParams(_decided_before(request))
            if await self._settle(request, found.version, person_id(principal), approve, reason, how):
                return request

    async def approve_own(self, request_id: str) -> None:
        """Approve a request that its caller may decide itself, and did in its client; unless it was decided before."""
        while (found := await self._store.records.get(self._key(request_id))) is not None:
            request = self._alive(_read_request(found.value))
            if request is None or request.state != "open" or request.approval.by != "self":
                return
            if await self._settle(request, found.version, request.requester, True, "", "elicitation"):
                return

    async def open_for(self, principal: Principal, limit: int = _LISTED) -> list[ApprovalRequest]:
        """The open requests that a principal may decide, oldest first."""
        return await self._list(lambda request: request.state == "open" and not request.objection(principal), limit)

    async def made_by(self, principal: Principal, limit: int = _LISTED) -> list[ApprovalRequest]:
        """The requests of a principal that are alive, oldest first."""
        person = person_id(principal)
        return await self._list(lambda request: person != "" and request.requester == person, limit)

    async def history(self, principal: Principal, limit: int = 100) -> list[ApprovalEvent]:
        """The latest steps of the requests that a principal made or may decide, newest first."""
        last = (await self._store.feeds.read(self._feed, 0, 1)).last
        page = await self._store.feeds.read(self._feed, max(0, last - _KEPT_EVENTS), _KEPT_EVENTS)
        events = [_read_event(entry.data) for entry in reversed(page.entries)]
        return [event for event in events if event.request.concerns(principal)][:limit]

    def watch(self, watcher: Callable[[], object]) -> Callable[[], None]:
        """Call back after each step of any request, in any process; returns the function that ends the watch."""
        return self._store.feeds.watch(self._feed, watcher)

    # -- the records -------------------------------------------------------------------------------------------------

    async def _list(self, admits: Callable[[ApprovalRequest], bool], limit: int) -> list[ApprovalRequest]:
        found = await self._store.records.get(self._list_key)
        requests: list[ApprovalRequest] = []
        for entry in [] if found is None else _read_list(found.value):
            request = await self.get(entry.id)
            if request is not None and admits(request):
                requests.append(request)
                if len(requests) == limit:
                    break
        return requests

    async def _settle(
        self, request: ApprovalRequest, version: int, person: str, approve: bool, reason: str, how: str
    ) -> bool:
        """Write a decision; False if the request has changed meanwhile."""
        request.state = "approved" if approve else "refused"
        request.decided_by, request.reason = person, reason.strip()[:MAX_REASON]
        request.since = self._clock()
        # By the limits of the server that made the request, also if another program decides.
        request.expires = request.since + request.seconds
        await self._record(request, how)
        if not await self._write(request, version):
            # Another decision was faster: the record of this one must not stand alone.
            await self._record(request, how, "failed")
            return False
        await self._relist(request)
        await self._publish(request.state, request, person, how)
        return True

    async def _write(self, request: ApprovalRequest, version: int) -> bool:
        written = await self._store.records.put(
            self._key(request.id), _encode(request), ttl=self._left(request), if_version=version
        )
        return written is not None

    async def _unlist(self, request_id: str) -> None:
        await self._change_list(lambda listed: [entry for entry in listed if entry.id != request_id])

    async def _relist(self, request: ApprovalRequest) -> None:
        """A decision begins its own time."""

        def extend(listed: list[_Listed]) -> list[_Listed]:
            for entry in listed:
                if entry.id == request.id:
                    entry.expires = request.expires
            return listed

        await self._change_list(extend)

    async def _change_list(self, change: Callable[[list[_Listed]], list[_Listed]]) -> None:
        records = self._store.records
        while (found := await records.get(self._list_key)) is not None:
            changed = _encode(change(_read_list(found.value)))
            if await records.put(self._list_key, changed, if_version=found.version) is not None:
                return

    async def _record(self, request: ApprovalRequest, how: str, outcome: DecisionOutcome = "ok") -> None:
        details = {"id": request.id, "for": request.requester, "digest": request.digest, "reason": request.reason}
        action = "approvals.grant" if request.state == "approved" else "approvals.refuse"
        _log.info(
            "%s was %s by %s for %s (request %s, by %s)%s",
            *map(printable, (request.place, request.state, request.decided_by, request.requester or "anonymous")),
            request.id,
            how,
            "" if outcome == "ok" else ": too late",
        )
        await self._find_audit().record(
            Decision(
                action,
                principal=request.decided_by,
                name=request.place,
                outcome=outcome,
                transport=how,
                details=details,
            )
        )

    async def _publish(self, step: str, request: ApprovalRequest, by: str, how: str) -> None:
        # Arguments may contain secrets: they are deleted with the request, and not kept in the history.
        about = msgspec.structs.replace(request, arguments="")
        event = ApprovalEvent(at=self._clock(), step=step, by=by, how=how, reason=request.reason, request=about)
        await self._store.feeds.publish(self._feed, _encode(event), keep=_KEPT_EVENTS)

    def _alive(self, request: ApprovalRequest) -> ApprovalRequest | None:
        now, ticks = self._clock(), self._ticks()
        # A decision begins its own time.
        known = f"{request.id} {request.since}"
        ends = self._seen.get(known)
        if ends is None:
            ends = self._seen[known] = ticks + max(0.0, request.expires - now)
        is_alive = request.since - _SKEW_SECONDS <= now < request.expires and ticks < ends
        return request if is_alive else None

    def _left(self, request: ApprovalRequest) -> float:
        return max(1.0, request.expires - self._clock())

    @property
    def _feed(self) -> str:
        return f"approvals {self._name}"

    @property
    def _list_key(self) -> str:
        return f"approvals {self._name}"

    def _key(self, request_id: str) -> str:
        # The id comes from a URL: with a space in it, it could be a request of a server with a longer name.
        return f"approval {self._name} {quote(request_id)}"

    def _server_key(self, requester: str, toolbox: str, server: str, approval: Approval) -> str:
        parts = _encode([requester, toolbox, server, approval.approvers])
        return f"approved-server {self._name} {hashlib.sha256(parts).hexdigest()}"

    def _round_key(self, ticket: str) -> str:
        return f"approved-round {self._name} {hashlib.sha256(ticket.encode()).hexdigest()}"


def _decided_before(request: ApprovalRequest) -> str:
    who = f" by {printable(request.decided_by)}"
    if request.state == "used":
        return f"{request.place}: the approval{who} was used already; the next call needs another one"
    return f"{request.place}: the request was already {request.state}{who}"
