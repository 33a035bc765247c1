"""The records of tasks, with limits per caller and in total."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.accounts.account import Account
from pegboard.accounts.accounts import Accounts
from pegboard.call import Caller, Json
from pegboard.errors import LimitReached
from pegboard.limits import Limits
from pegboard.stores.store import Records

POLL_MS: Final = 1000

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
ENDED: Final = frozenset({"completed", "failed", "cancelled"})

_OUTCOMES: Final[Mapping[str, str]] = {"input_required": "inputRequests", "completed": "result", "failed": "error"}


class TaskRecord(Struct, kw_only=True):
    """The record of one task; `outcome` goes with its status: open questions, a result or an error."""

    principal: str
    created: float
    updated: float
    seconds: float
    # The process that runs it, if there are several.
    owner: str = ""
    status: Status = "working"
    message: str | None = None
    outcome: Json = None

    def initial_task(self, task_id: str) -> dict[str, Json]:
        """The task as reported when it is created."""
        task: dict[str, Json] = {"taskId": task_id, "status": self.status}
        if self.message is not None:
            task["statusMessage"] = self.message
        return {
            **task,
            "createdAt": _iso(self.created),
            "lastUpdatedAt": _iso(self.updated),
            "ttlMs": int(self.seconds * 1000),
            "pollIntervalMs": POLL_MS,
        }

    def full_task(self, task_id: str) -> dict[str, Json]:
        """The task as reported by tasks/get."""
        task = self.initial_task(task_id)
        if self.status in _OUTCOMES:
            task[_OUTCOMES[self.status]] = self.outcome
        return task


class _TaskSlot(Struct):
    """The room that a task takes: its record, and its request while it runs."""

    account: Account | None
    until: float
    request_size: int
    size: int = 0
    version: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(TaskRecord).decode


class TaskStore:
    """Keeps the records of tasks, each for `limits.task_seconds` from its creation, within limits per caller.

    The limits on all tasks are those of this process, for the tasks created here.
    """

    def __init__(
        self,
        records: Records,
        limits: Limits,
        clock: Callable[[], float] = time.time,
        accounts: Accounts | None = None,
    ) -> None:
        self.accounts = Accounts(limits) if accounts is None else accounts
        self._records = records
        self._limits = limits
        self._owner = ""
        self.clock = clock
        # All are kept equally long, so they expire in the order of creation.
        self._places: dict[str, _TaskSlot] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._places)

    def use_store(self, records: Records, owner: str) -> None:
        """Keep them in this store, which other processes share; `owner` is this process."""
        self._records = records
        self._owner = owner

    async def create(self, task_id: str, caller: Caller, request_size: int = 0) -> TaskRecord:
        """Begin the record of a task; LimitReached where there is no room for one more, or for its request."""
        now = self.clock()
        self._sweep(now)
        limits, account = self._limits, self.accounts.of(caller)
        if (
            len(self._places) >= limits.tasks
            or not self._has_capacity(account, request_size + 1)
            or (account is not None and not account.take("tasks"))
        ):
            raise LimitReached(
                "There are too many tasks already, or their requests and results are too large: wait until some have ended",
                "tasks",
                retry_after=next((max(1.0, place.until - now) for place in self._places.values()), None),
            )
        record = TaskRecord(
            principal=caller.principal.id, created=now, updated=now, seconds=limits.task_seconds, owner=self._owner
        )
        self._places[task_id] = _TaskSlot(account, now + limits.task_seconds, request_size)
        self._weigh(account, request_size)
        try:
            await self.save(task_id, record)
        except BaseException:
            self._leave(task_id)
            raise
        return record

    def release_request(self, task_id: str) -> None:
        """Count the request of a task no longer: its work has ended."""
        place = self._places.get(task_id)
        if place is not None:
            self._weigh(place.account, -place.request_size)
            place.request_size = 0

    def has_capacity(self, task_id: str, size: int) -> bool:
        """Whether this many more bytes can be kept for a task."""
        place = self._places.get(task_id)
        return self._has_capacity(None if place is None else place.account, size)

    async def save(self, task_id: str, record: TaskRecord) -> bool:
        """Write the current record; False if another process wrote it because it considered this one dead."""
        place = self._places.get(task_id)
        left = record.created + record.seconds - self.clock()
        if place is None or left <= 0:
            return True
        written = _encode(record)
        self._weigh(place.account, len(written) - place.size)
        place.size = len(written)
        version = await self._records.put(task_key(task_id), written, ttl=left, if_version=place.version)
        if version is None:
            return False
        place.version = version
        return True

    async def read(self, task_id: str) -> TaskRecord | None:
        """The record of a task; None if it is unknown or expired."""
        self._sweep(self.clock())
        found = await self._records.get(task_key(task_id))
        return None if found is None else _decode(found.value)

    async def fail_orphan(self, task_id: str, code: int, message: str) -> TaskRecord | None:
        """End a task whose process is gone, unless it has ended; returns its record."""
        found = await self._records.get(task_key(task_id))
        if found is None:
            return None
        record = _decode(found.value)
        if record.status in ENDED:
            return record
        now = self.clock()
        record.status, record.message, record.updated = "failed", message, now
        record.outcome = {"code": code, "message": message}
        left = record.created + record.seconds - now
        if await self._records.put(task_key(task_id), _encode(record), ttl=max(1.0, left), if_version=found.version):
            return record
        return await self.read(task_id)

    def _has_capacity(self, account: Account | None, size: int) -> bool:
        room = account is None or account.unclaimed or account.has_room("task_bytes", size)
        return room and size <= self._limits.task_bytes - self._size

    def _weigh(self, account: Account | None, more: int) -> None:
        self._size += more
        if account is not None:
            account.held["task_bytes"] += more

    def _sweep(self, now: float) -> None:
        while self._places:
            task_id, place = next(iter(self._places.items()))
            if place.until > now:
                return
            self._leave(task_id)

    def _leave(self, task_id: str) -> None:
        place = self._places.pop(task_id)
        self._weigh(place.account, -place.size - place.request_size)
        if place.account is not None:
            place.account.give_back("tasks")


def task_key(task_id: str) -> str:
    """The digest that identifies a task in stores and logs."""
    # A reader of the store must not be able to take over a task.
    return "task:" + hashlib.sha256(task_id.encode("utf-8", "replace")).hexdigest()[:32]


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
