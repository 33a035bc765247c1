"""The log of a board's changes, and the `subscriptions/listen` method.

Theory of operation. A change says that something is different, never how: the receiver reads it again. So of many
changes to one thing only the newest matters, and the log holds one entry for each thing, in the order of the newest
changes. A subscriber is a number, that of the last change it knows; what it missed is the rest of the log after that
number, already without repetitions, however slow it was. The oldest entries are dropped; a subscriber whose number is
older than the newest dropped entry may have missed anything, and is notified that everything may have changed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from threading import get_ident
from typing import Final

import msgspec
from msgspec import Struct, field

from pegboard.auth.principal import Principal
from pegboard.call import Call, Change, ChangeFilter, ChangeSource, Json, Reply, Subscribed, SubscriberChanges
from pegboard.errors import InvalidParams
from pegboard.protocol.jsonrpc import decode_json
from pegboard.protocol.revisions import OWN_NOTIFICATIONS, TASKS, has_extension, missing_extension

ANYTHING: Final = (Change("tools"), Change("prompts"), Change("resources"), Change("updated"))
"""The changes for a subscriber that may have missed some; the last one has no URI and stands for all URIs."""


class ChangeLog:
    """The changes of one board; published from any thread, watchers are called on the event loop they started on."""

    def __init__(self, keep: int = 10_000) -> None:
        self._keep = keep
        self._last = 0
        self._forgotten = 0
        self._newest: OrderedDict[Change, int] = OrderedDict()
        self._watches: tuple[_Watch, ...] = ()
        self._redirected_to: Callable[[Change], object] | None = None
        self._catch_up: Callable[[], Awaitable[object]] | None = None
        self._lock = threading.Lock()
        # Called when the set of watched resources changes.
        self.on_uris_changed: Callable[[], object] | None = None
        self._followed_watchers: list[Callable[[], object]] = []
        self._forwards: list[Callable[[Change], object]] = []
        self._also_followed: list[Callable[[], Iterable[str]]] = []

    @property
    def last(self) -> int:
        """The number of the newest change; 0 before the first."""
        return self._last

    @property
    def shared(self) -> bool:
        """Whether other processes publish changes, too."""
        return self._redirected_to is not None

    def publish(self, change: Change) -> int:
        """Number a change and notify watchers; returns the newest number, if another log assigns them."""
        for forward in self._forwards:
            forward(change)
        if self._redirected_to is not None:
            self._redirected_to(change)
            return self._last
        return self._add(None, change)

    def forward_to(self, forward: Callable[[Change], object]) -> None:
        """Pass each change that this process publishes on, too: to the log of a board that this one is mounted in."""
        self._forwards.append(forward)

    def followed_by(self, followed: Callable[[], Iterable[str]]) -> None:
        """Count these resources as followed, too: those with subscribers at a board that this one is mounted in."""
        self._also_followed.append(followed)

    def watch_followed(self, watcher: Callable[[], object]) -> None:
        """Call back when the set of followed resources changes."""
        self._followed_watchers.append(watcher)

    def redirect_to(
        self, diverted: Callable[[Change], object] | None, catch_up: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Send published changes to another log from now on, from any thread; they come back through `take`.

        `catch_up` takes all changes that others have published so far.
        """
        self._redirected_to, self._catch_up = diverted, catch_up

    async def catch_up_to(self, number: int) -> None:
        """Catch up to that number, if it exists: another process may have published one that we do not have yet."""
        if self._catch_up is not None and number > self._last:
            await self._catch_up()

    def restart(self, forgotten: int) -> None:
        """Drop all changes and continue after that number: a subscriber with a lower one may have missed some."""
        with self._lock:
            self._newest.clear()
            self._last = forgotten
            self._forgotten = max(0, forgotten)
            watches = self._watches
        self._wake_watchers(watches)

    def skip_number(self, number: int) -> None:
        """Mark this number as used without a change."""
        self._last = number

    def take(self, number: int, change: Change) -> None:
        """Add a change with its number, which is greater than all before."""
        self._add(number, change)

    def _add(self, given: int | None, change: Change) -> int:
        newest = self._newest
        with self._lock:
            self._last = number = self._last + 1 if given is None else given
            newest[change] = number
            newest.move_to_end(change)
            if len(newest) > self._keep:
                self._forgotten = newest.popitem(last=False)[1]
            watches = self._watches
        self._wake_watchers(watches)
        return number

    def _wake_watchers(self, watches: tuple[_Watch, ...]) -> None:
        for watch in watches:
            if not watch.wake():
                self._end(watch)

    def read(self, after: int) -> Sequence[tuple[int, Change]]:
        """The changes after that number, each kind and URI once, with its newest number.

        If changes after that number are no longer kept: one change of each list and one without a URI. The same for a
        number that was not reached yet, which belongs to another log. All of these but the last have the given number,
        so that a reader that stops in between gets all of them again.
        """
        found: list[tuple[int, Change]] = []
        asked = after
        with self._lock:
            if after > self._last:
                after = -1
            for change, number in reversed(self._newest.items()):
                if number <= after:
                    break
                found.append((number, change))
            forgotten = self._forgotten
        found.reverse()
        if after >= forgotten:
            return found
        known = {change for _, change in found}
        anything = [change for change in ANYTHING if change not in known]
        last = [(forgotten, change) for change in anything[-1:]]
        return [*((asked, change) for change in anything[:-1]), *last, *found]

    def followed(self) -> frozenset[str]:
        """The resources that have subscribers now."""
        here = frozenset(uri for watch in self._watches if watch.uris is not None for uri in watch.uris())
        return here.union(*(followed() for followed in self._also_followed)) if self._also_followed else here

    def uris_changed(self) -> None:
        """A watcher has changed the resources it is subscribed to."""
        if self.on_uris_changed is not None:
            self.on_uris_changed()
        for watcher in self._followed_watchers:
            watcher()

    def watch(
        self, watcher: Callable[[], object], uris: Callable[[], Iterable[str]] | None = None
    ) -> Callable[[], None]:
        """Call back soon after each change, from the event loop; returns the function that ends the watch.

        `uris` returns the resources that the watcher is subscribed to at that moment.
        """
        watch = _Watch(watcher, asyncio.get_running_loop(), uris)
        with self._lock:
            self._watches += (watch,)

        def end() -> None:
            watch.ended = True
            self._end(watch)

        return end

    def _end(self, watch: _Watch) -> None:
        with self._lock:
            self._watches = tuple(other for other in self._watches if other is not watch)


class _Watch(Struct, eq=False):
    """A watcher on its own loop; changes that come before it has looked result in one call."""

    watcher: Callable[[], object]
    loop: asyncio.AbstractEventLoop
    uris: Callable[[], Iterable[str]] | None = None
    ended: bool = False
    _thread: int = field(default_factory=get_ident)
    _called: bool = False

    def wake(self) -> bool:
        """Schedule the callback; False if its loop is closed."""
        if self._called:
            return True
        self._called = True
        try:
            if get_ident() == self._thread:
                self.loop.call_soon(self._look)
            else:
                self.loop.call_soon_threadsafe(self._look)
        except RuntimeError:
            return False
        return True

    def _look(self) -> None:
        # Cleared before the callback, so that a change that it misses schedules it again.
        self._called = False
        if not self.ended:
            self.watcher()


class _Wanted(Struct, rename="camel"):
    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []
    own_notifications: bool = field(name=OWN_NOTIFICATIONS, default=False)
    # Of the tasks extension: we do not send status notifications, clients poll.
    task_ids: Json = None


class _Listen(Struct):
    notifications: _Wanted


class ListenMethod(Struct, eq=False):
    """The Handler of `subscriptions/listen`: subscribes the caller to what it asks for and the board offers."""

    changes: ChangeSource
    offers: Callable[[], Mapping[str, Json]]
    uris: int
    uri_bytes: int
    filter_for: Callable[[Principal], SubscriberChanges | None] = lambda _: None

    async def __call__(self, call: Call) -> Reply:
        wanted = _read(bytes(call.params))
        if wanted.task_ids and not has_extension(TASKS, call.caller.capabilities, call.caller.version):
            # "the server MUST return a JSON-RPC error specifying the missing capabilities" (Task Status Notifications)
            raise missing_extension("params.notifications.taskIds", TASKS)
        offered = self.offers()
        resources = "resources" in offered
        return Subscribed(
            self.changes,
            ChangeFilter(
                tools=wanted.tools_list_changed,
                prompts=wanted.prompts_list_changed and "prompts" in offered,
                resources=wanted.resources_list_changed and resources,
                notification=wanted.own_notifications,
                uris=self._bound(wanted.resource_subscriptions) if resources else frozenset(),
            ),
            self.filter_for(call.caller.principal),
            call.caller.account,
        )

    def _bound(self, uris: Sequence[str]) -> frozenset[str]:
        """As many as fit; the acknowledgement lists them."""
        room, taken = self.uri_bytes, set[str]()
        for uri in dict.fromkeys(uris):
            room -= len(uri)
            if room < 0 or len(taken) == self.uris:
                break
            taken.add(uri)
        return frozenset(taken)


def _read(params: bytes) -> _Wanted:
    try:
        return msgspec.json.decode(params or b"{}", type=_Listen).notifications
    except msgspec.ValidationError:
        raise _explain(params) from None


def _explain(params: bytes) -> InvalidParams:
    value = decode_json(params or b"{}")
    wanted = value.get("notifications") if isinstance(value, dict) else None
    if not isinstance(wanted, dict):
        return InvalidParams('params.notifications must be an object, such as {"toolsListChanged": true}')
    uris = wanted.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        return InvalidParams("params.notifications.resourceSubscriptions must be a list of URIs")
    return InvalidParams("Each list in params.notifications (toolsListChanged, …) must be true or false")
