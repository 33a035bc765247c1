"""Compares a server's definitions with the lock file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pegboard.config.gateway_config import GatewayConfig, LockPolicy
from pegboard.errors import SetupError
from pegboard.gateway.lock.definition_diff import describe_differences
from pegboard.gateway.lock.lock_file import MEMBERS, Kind, Lock, Pin, digest, name_place, read_lock
from pegboard.gateway.servers.server_catalog import Definition

CHANGED: Final = (
    "its definition changed after it was accepted; the operator of this gateway can review and accept the change"
)
ADDED: Final = "it has not been accepted yet; the operator of this gateway can review and accept it"
_NAMED: Final = 5
_CHANGES: Final = 20

_log = logging.getLogger("pegboard.gateway")

POLL_SECONDS: Final = 1.0


class PinVerdict(Struct, frozen=True):
    """`served` may be listed and called; `withheld` maps names to the reason for callers; `notes` are for operators."""

    served: tuple[Definition, ...]
    withheld: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()


class Pins:
    """Policy `off`: everything is served; `report`: everything is served, and differences are logged; `quarantine`: new
    and changed definitions wait for acceptance.

    The same sequence of definitions is compared once: a server's catalog stays the same object until it changes.
    """

    def __init__(self, lock: Lock | None, policy: LockPolicy = "report", *, config: str = "CONFIG") -> None:
        self._lock = lock
        self._policy = policy
        self._command = f"pegboard lock {config}"
        self._judged: dict[tuple[Kind, str, str], tuple[Sequence[Definition], PinVerdict]] = {}

    def judge(
        self, toolbox: str, server: str, definitions: Sequence[Definition], *, kind: Kind = "tools"
    ) -> PinVerdict:
        """The definitions of a server that may be served."""
        if self._policy == "off":
            return PinVerdict(tuple(definitions))
        key = kind, toolbox, server
        before = self._judged.get(key)
        if before is None or before[0] is not definitions:
            before = self._judged[key] = definitions, self._compare(toolbox, server, definitions, kind)
        return before[1]

    @property
    def quarantines(self) -> bool:
        """Whether definitions are served only after they were accepted."""
        return self._policy == "quarantine"

    @property
    def is_empty(self) -> bool:
        """Whether there is no lock file to compare with."""
        return self._lock is None

    def has_accepted(self, kind: Kind, toolbox: str, server: str, definition: Definition) -> bool:
        """Whether this exact definition is pinned."""
        if self._lock is None:
            return False
        pin = self._lock.pins.get(name_place(kind, toolbox, server, definition))
        return pin is not None and pin.digest == digest(definition)

    def _compare(self, toolbox: str, server: str, definitions: Sequence[Definition], kind: Kind) -> PinVerdict:
        member = MEMBERS[kind]
        if self._lock is None:
            # Without any pins, do not warn about every server.
            if self._policy == "report" or not definitions:
                return PinVerdict(tuple(definitions))
            names = [str(definition[member]) for definition in definitions]
            note = (
                f"all {kind} of {toolbox}/{server} are withheld, because nothing is pinned yet: run `{self._command}`"
            )
            return PinVerdict((), dict.fromkeys(names, ADDED), (note,))
        pins = self._lock.of_server(kind, toolbox, server)
        served: list[Definition] = []
        withheld: dict[str, str] = {}
        added: list[str] = []
        notes: list[str] = []
        for definition in definitions:
            name = str(definition[member])
            pin = pins.pop(name, None)
            if pin is not None and pin.digest == digest(definition):
                served.append(definition)
                continue
            if pin is None:
                added.append(name)
            else:
                notes.append(self._describe_change(f"{toolbox}/{server}/{name}", pin, definition))
            if self._policy == "report":
                served.append(definition)
            else:
                withheld[name] = ADDED if pin is None else CHANGED
        if added:
            notes.append(self._describe(f"{toolbox}/{server} offers {kind} that were not accepted{self._waits}", added))
        if pins:
            notes.append(self._describe(f"{toolbox}/{server} no longer offers what was accepted", list(pins)))
        return PinVerdict(tuple(served), withheld, tuple(notes))

    def _describe_change(self, place: str, pin: Pin, definition: Definition) -> str:
        words = [line for line in describe_differences(pin.definition, definition) if not line.startswith(" ")]
        more = [f"and {len(words) - _CHANGES} more changes"] if len(words) > _CHANGES else []
        summary = "; ".join(words[:_CHANGES] + more).replace(":;", ";").removesuffix(":")
        return (
            f"{place} differs from what was accepted{self._waits}: {summary}. `{self._command} --diff` shows it in full"
        )

    def _describe(self, what: str, names: list[str]) -> str:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        listed = ", ".join(map(repr, names[:_NAMED]))
        return f"{what}: {listed}{more}. `{self._command} --diff` shows the differences, `--accept` accepts them"

    @property
    def _waits(self) -> str:
        return ", and withheld" if self.quarantines else ""


def read_pins(config: GatewayConfig) -> Pins:
    """The pins of a configuration's lock file; a configuration made in code may have none."""
    lock = None if config.lock == "off" or not config.lock_path else read_lock(config.lock_path)
    return Pins(lock, config.lock, config=Path(config.path).name)


async def watch_lock_file(config: Callable[[], GatewayConfig], take: Callable[[Pins], None]) -> None:
    """Check repeatedly, until cancelled; an invalid file changes nothing and is reported once."""
    # Starts unseen: the file may have been written between the reading and the first look.
    seen: tuple[int, int] | None = None
    while True:
        await asyncio.sleep(POLL_SECONDS)
        now = await asyncio.to_thread(_stamp, Path(config().lock_path))
        if now == seen:
            continue
        seen = now
        try:
            pins = await asyncio.to_thread(read_pins, config())
        except SetupError as problem:
            _log.error("The lock file is not used, the previous one stays in force. %s", problem)
            continue
        take(pins)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
