"""The one contract: a Handler takes a Call and returns a Reply.

The dispatcher is a Handler, middleware wraps one, and a transport calls one. Everything here is in terms of revision
2026-07-28; requests of older clients are translated before a Call exists, and responses after a Reply is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import getrandbits
from typing import Any, ClassVar, Literal, NoReturn, Protocol, TypeAlias, final

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from pegboard.argument_problems import ParseError, ParseWarning
from pegboard.auth.principal import ANONYMOUS, Principal
from pegboard.auth.request_credentials import RequestCredentials
from pegboard.call_target import KIND_OF_METHOD, UNKNOWN_ITEM, CalledTool, Kind
from pegboard.deadline import Deadline, paused
from pegboard.read_only import read_only

Json: TypeAlias = object
RequestId: TypeAlias = str | int
ProgressToken: TypeAlias = str | int

EMPTY_OBJECT = Raw(b"{}")


class CallScoped:
    """A parameter annotated with a subclass of this receives the call itself; callers do not send it.

    `awaited` marks types whose methods are awaited, which a plain function on the event loop cannot do.
    """

    __slots__ = ()
    awaited: ClassVar[bool] = False


class Caller(Struct, frozen=True, kw_only=True):
    """The client that sent a request.

    version: its protocol revision.
    transport: the transport of the request, such as `http` or `stdio`.
    principal: who the caller is, as the server has authenticated it; falsy without authentication.
    account: what its use is counted under: the id of its principal, or the network address of an anonymous caller from
        another machine (docs/limits.md); empty if it is not counted.
    session: the id of the legacy session, or an empty text.
    client: the name and version that the client states about itself.
    capabilities: the capabilities that it declared.
    log_level: the lowest level of log messages that it wants, or None for no messages.
    resource_metadata: the URL of the OAuth metadata of the endpoint it used, or an empty text.
    credentials: what it authenticated with, only in a gateway that exchanges its callers' tokens.
    """

    version: str
    transport: str
    principal: Principal = ANONYMOUS
    account: str = ""
    session: str = ""
    client: Mapping[str, Json] = {}
    capabilities: Mapping[str, Json] = {}
    log_level: str | None = None
    resource_metadata: str = ""
    credentials: RequestCredentials | None = None


NO_CALLER = Caller(version="", transport="")
"""Stands for the caller of a request whose session has not been found yet."""


class Notification(Struct, frozen=True):
    """A notification from a running call to its caller."""

    method: str
    params: Mapping[str, Json]


class Question(Struct, frozen=True):
    """A question to the caller's side: to its user, to its model, or for its roots."""

    method: str
    params: Mapping[str, Json]


class NeedInput(BaseException):
    """Ends the call because the caller can be asked only in the response; the caller repeats it with the answers.

    Not an Exception, so that a tool's `except Exception` does not catch it.
    """

    def __init__(self, questions: Mapping[str, Question]) -> None:
        super().__init__(
            f"the call ends here and is repeated with the answer to {', '.join(questions)}; do not catch this"
        )
        self.questions = questions


class Channel(Protocol):
    """What a running call can send to its caller."""

    async def emit(self, notice: Notification) -> None:
        """Send a notice; waits only if the caller reads too slowly."""

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        """The result of each question as the caller sends it; NeedInput if it cannot be asked while the call runs."""

    async def close_stream(self, retry_ms: int) -> None:
        """Close the connection of a caller that can resume the stream later; does nothing for other callers."""


class OutboundStream(Protocol):
    """A stream from a running call to its caller: chunks of bytes or of JSON, then an end."""

    async def write(self, chunk: Json) -> None:
        """Send a chunk; waits while the caller reads too slowly."""

    def finish(self, summary: Json = None) -> None: ...

    def fail(self, message: str, code: int = -32000, data: Json = None) -> None: ...


class CallStream(Protocol):
    """The streams between a call and its caller, if the caller started the call with a stream."""

    @property
    def id(self) -> str: ...

    @property
    def binary(self) -> bool: ...

    @property
    def meta(self) -> Mapping[str, Json]: ...

    @property
    def summary(self) -> Json: ...

    async def read(self) -> Json:
        """The next chunk of the caller's stream, UNSET at its end."""

    def open(self, meta: Mapping[str, Json]) -> OutboundStream:
        """Start a stream to the caller."""


class NullChannel:
    """The channel of calls that cannot reach their caller while they run."""

    __slots__ = ()

    async def emit(self, notice: Notification) -> None:
        """Drop the notice."""

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        await ask_in_result(questions)

    async def close_stream(self, retry_ms: int) -> None:
        """Nothing to close."""


NULL_CHANNEL = NullChannel()


async def ask_in_result(questions: Mapping[str, Question]) -> NoReturn:
    """How callers of 2026-07-28 are asked: "servers MUST send server-to-client requests using the MRTR pattern"."""
    raise NeedInput(questions)


class ClientSpan(Protocol):
    """The span of a request to another server."""

    @property
    def carried(self) -> Mapping[str, Json]:
        """The trace context for the request's `_meta`."""

    def end(self, result: Mapping[str, Json] | None, error: Exception | None) -> None:
        """The request has ended with a result or an error, or was cancelled."""


class ClientSpans(Protocol):
    """Starts spans below the span of a call."""

    def begin(self, method: str, name: str, server: str) -> ClientSpan:
        """Start the span of a request to that server."""


class ReadArguments(Protocol):
    """The arguments of a call after validation and repair."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments by name."""

    @property
    def warnings(self) -> Sequence[ParseWarning]:
        """The repairs that were made."""

    @property
    def errors(self) -> Sequence[ParseError]:
        """What is wrong with them."""


WaitKind: TypeAlias = Literal["limit", "thread", "server"]
"""What a call waits for: a limit of concurrent calls, a thread for its tool, or a slot of its server."""


class CallNotes(Struct):
    """What is noted about a call while it runs.

    log_id: its name in the log, if something was logged.
    trace_id: the id of its trace.
    facts: what parts of the server add to its record in the audit log and the history.
    """

    log_id: str = ""
    trace_id: str = ""
    facts: Mapping[str, Json] = {}


class Call(Struct, kw_only=True):
    """One request from a client.

    method: the method of the protocol, such as `tools/call`.
    caller: the client that sent the request.
    channel: sends notifications and questions to the client.
    id: the id of the request.
    name: the name of the tool or prompt, or the URI of the resource; for a completion, that of what it is about.
    raw: the arguments as JSON text.
    params: the params of the request as JSON text.
    token: the progress token of the request.
    answers: the answers to the questions of the previous round, as JSON text.
    ticket: the `requestState` of the previous round.
    headers: the headers of the HTTP request.
    address: the network address that the request came from, as the server or a trusted proxy saw it.
    stream: the stream that started the call.
    environment: what an embedding program passes to its declared tools.
    tool: the tool; for a prompt, a resource or an unknown name (`known`), an object with the same attributes.
    parsed: the arguments after validation and repair, once the tool was reached.
    failed: whether the result is an error for the model.
    spans: starts a span for each request to a server that the call is forwarded to, if it is traced.
    rule: the rule that lets the caller use the tool; empty without rules.
    """

    method: str
    caller: Caller
    channel: Channel
    id: RequestId | None = None
    name: str = ""
    raw: Raw = EMPTY_OBJECT
    params: Raw = EMPTY_OBJECT
    token: ProgressToken | None = None
    answers: Raw | None = None
    ticket: str | None = None
    headers: Mapping[bytes, bytes] | None = None
    address: str = ""
    stream: CallStream | None = None
    environment: Mapping[str, Any] | None = None
    tool: CalledTool = UNKNOWN_ITEM
    parsed: ReadArguments | None = None
    failed: bool = False
    spans: ClientSpans | None = None
    rule: str = ""
    _sent: Json = UNSET
    _raw_as_sent: Raw | None = None
    _state: dict[str, Any] | None = None
    _origin: Call | None = None
    _task: asyncio.Task[Any] | None = None
    _rounds: Any = None
    _asked: bool = False
    _approved: str = ""
    # How many calls of tools by tools it is nested in.
    _depth: int = 0
    _reached: float | None = None
    _stopped: bool = False
    _waits: tuple[Deadline, ...] = ()
    _notes: CallNotes | None = None
    # When the tool itself began and ended, and how long requests to a server behind a gateway took, for observers.
    _inside: tuple[float, float] | None = None
    _downstream_ms: float = 0.0
    _downstream_error: str = ""
    # The texts before and after the arguments in `params`, if they are known.
    _beside: tuple[bytes, bytes] | None = None

    # Whether it runs in a task that was made for it, whose context ends with it.
    has_own_task: ClassVar[bool] = False

    @property
    def notes(self) -> CallNotes:
        """What is noted about the call while it runs, for those that observe its end."""
        if self._notes is None:
            self._notes = CallNotes() if self._origin is None else self._origin.notes
        return self._notes

    @property
    def log_id(self) -> str:
        """A name for this call in the log; request ids are unique only within a client."""
        notes = self.notes
        if not notes.log_id:
            # A name, not a secret: it needs no system call.
            notes.log_id = f"{getrandbits(32):08x}"
        return notes.log_id

    @property
    def log_context(self) -> dict[str, str]:
        """Who made the call, in which session and trace, for its lines in a structured log."""
        known = {
            "principal": self.caller.principal.id,
            "session": self.caller.session[:8],
            "trace": self.notes.trace_id,
        }
        return {name: value for name, value in known.items() if value}

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments before any repair, read-only; empty if the client did not send an object (see `sent`)."""
        sent = self.sent
        return sent if isinstance(sent, dict) else {}

    @property
    def sent(self) -> Json:
        """The decoded arguments, read-only, whatever JSON value the client sent; decoded on first use."""
        if self._sent is UNSET:
            self._sent = read_only(msgspec.json.decode(self.raw))
        return self._sent

    @property
    def kind(self) -> Kind:
        """What the request is for: a tool, a prompt, a resource or a completion."""
        return KIND_OF_METHOD[self.method]

    @property
    def known(self) -> bool:
        """Whether the request names something that exists here."""
        return self.tool is not UNKNOWN_ITEM

    @property
    def warnings(self) -> Sequence[ParseWarning]:
        """The repairs that the arguments needed, once they were parsed."""
        return () if self.parsed is None else self.parsed.warnings

    @property
    def state(self) -> dict[str, Any]:
        """Values that hooks store for the duration of this call."""
        if self._state is None:
            self._state = {} if self._origin is None else self._origin.state
        return self._state

    def note(self, **facts: Json) -> None:
        """Add facts to the record of this call in the audit log and the history, such as its `approval` or `credential`.

        A fact names a credential or an approval, and never contains a secret.
        """
        notes = self.notes
        notes.facts = {**notes.facts, **facts}

    def note_wait(self, kind: WaitKind, seconds: float) -> None:
        """Note that the call waited for its turn: `waited_ms` in its record."""
        waited = self.notes.facts.get("waited_ms")
        known = waited if isinstance(waited, dict) else {}
        self.note(waited_ms={**known, kind: round(known.get(kind, 0.0) + seconds * 1000, 3)})

    @property
    def principal(self) -> Principal:
        """Who the caller is, as the server has authenticated it; falsy without authentication."""
        return self.caller.principal

    @property
    def client(self) -> Mapping[str, Json]:
        """The name and version that the client states about itself."""
        return self.caller.client

    @property
    def session(self) -> str:
        """The id of the legacy session, or an empty text."""
        return self.caller.session

    @property
    def transport(self) -> str:
        """The transport that the request arrived on: `http`, `stdio`, `ws`, …"""
        return self.caller.transport

    @property
    def version(self) -> str:
        """The protocol revision of the caller."""
        return self.caller.version

    def with_arguments(self, arguments: Mapping[str, Json]) -> Call:
        """Return the same call with other arguments, for an `around` to pass to `next`."""
        raw = Raw(msgspec.json.encode(dict(arguments)))
        return structs.replace(self, raw=raw, parsed=None, _sent=UNSET, _raw_as_sent=None, _origin=self)

    def replace_arguments(self, arguments: Mapping[str, Json]) -> None:
        """Replace the arguments, for a before-hook: they are checked and repaired as if the client had sent them."""
        if self.kind not in ("tool", "prompt"):
            raise TypeError(
                f"the arguments of a {self.kind} request cannot be replaced: they are part of its parameters"
            )
        if not isinstance(arguments, Mapping):
            raise TypeError(f"call.replace_arguments takes a mapping of names to values, got {arguments!r:.80}")
        if self._raw_as_sent is None:
            self._raw_as_sent = self.raw
        self.raw = Raw(msgspec.json.encode(dict(arguments)))
        self._sent = UNSET

    def _set_parsed(self, parsed: ReadArguments) -> None:
        """Set `parsed` of this call and of the calls that it was derived from; not of one whose tool has made it."""
        call: Call | None = self
        while call is not None and call._depth == self._depth:
            call.parsed = parsed
            call = call._origin

    @property
    def origin(self) -> Call:
        """The call as the client sent it, before any `around` changed its arguments."""
        call = self
        while call._origin is not None:
            call = call._origin
        return call

    @property
    def asked(self) -> bool:
        """Whether the call asked its caller something, so that its result must not be reused for another call."""
        return self.origin._asked or self.origin._rounds is not None

    def _mark_asked(self) -> None:
        """Record that answering the call involves questions to its caller."""
        self.origin._asked = True

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        """Ask the caller through the channel; the timeouts of the call are paused until the answers arrive."""
        with paused(self.origin._waits):
            return await self.channel.ask(questions)

    @contextmanager
    def timed(self, clock: Deadline) -> Iterator[None]:
        """Apply a deadline, which is paused while the caller is asked; raises TimeoutError when it passes."""
        call = self.origin
        call._waits += (clock,)
        try:
            with clock:
                yield
        finally:
            call._waits = tuple(wait for wait in call._waits if wait is not clock)

    def _is_current(self) -> bool:
        """Whether the current task is the task of the call."""
        try:
            return asyncio.current_task() is self.origin._task
        except RuntimeError:
            return False

    def cancel(self) -> None:
        """Stop the call: its result is an error for the model, and its error hooks run.

        Call it from a hook or from a task that a hook started. It does nothing after the call has ended.
        """
        call = self.origin
        if call._task is not None and not call._stopped:
            call._stopped = True
            call._task.cancel()


@final
class EncodedResult:
    """A result that stays the same object until its content changes, so that its encodings can be cached.

    A plain class: `isinstance` takes longer for a Struct.
    """

    __slots__ = ("value", "written")

    def __init__(self, value: Mapping[str, Json]) -> None:
        self.value = value
        self.written: dict[str, bytes] = {}


class Done(Struct, frozen=True):
    """The call ended with a result.

    `wrapped` says that by its schema structuredContent is not an object; revisions that require an object get {"result":
    …}. `metadata` is for the embedding program; it is never sent. `encoded` is the result as JSON, if an observer has
    encoded it: the result is final then, and is not encoded again.
    """

    result: Mapping[str, Json] | EncodedResult
    wrapped: bool = False
    metadata: Mapping[str, Any] | None = None
    encoded: bytes | None = None


class InputRequired(Struct, frozen=True):
    """The call ended because its caller has to answer questions first; the ticket continues it."""

    questions: Mapping[str, Question]
    ticket: str | None = None
    wrapped: ClassVar[bool] = False
    metadata: ClassVar[None] = None
    encoded: ClassVar[None] = None

    @property
    def result(self) -> Mapping[str, Json]:
        """As a result on the wire."""
        asked = {key: {"method": ask.method, "params": ask.params} for key, ask in self.questions.items()}
        result: dict[str, Json] = {"resultType": "input_required", "inputRequests": asked}
        return result if self.ticket is None else {**result, "requestState": self.ticket}


class TaskStarted(Struct, frozen=True):
    """The call continues as a task, which its caller polls."""

    task: Mapping[str, Json]
    wrapped: ClassVar[bool] = False
    metadata: ClassVar[None] = None
    encoded: ClassVar[None] = None

    @property
    def result(self) -> Mapping[str, Json]:
        """As a result on the wire."""
        return {"resultType": "task", **self.task}


ChangeKind: TypeAlias = Literal["tools", "prompts", "resources", "updated", "notification"]


class Change(Struct, frozen=True):
    """A change of a board: of its list of tools, prompts or resources, or of the resource behind a URI.

    kind: what has changed; a `notification` of the author's own travels with the changes.
    uri: the URI of the resource, or the method of the notification.
    params: the params of the notification as JSON text.
    serial: a random number of the notification, so that no two of them count as one.
    """

    kind: ChangeKind
    uri: str = ""
    params: str = ""
    serial: int = 0


class ChangeSource(Protocol):
    """The changes of one board, numbered from 1; only the newest are kept."""

    @property
    def last(self) -> int:
        """The number of the newest change; 0 before the first."""

    def publish(self, change: Change) -> int:
        """Number a change and notify watchers."""

    def read(self, after: int) -> Sequence[tuple[int, Change]]:
        """The changes after that number, each kind and URI once, with its newest number.

        If changes after that number are no longer kept: one change of each list, and an update without a URI, which
        stands for all URIs.
        """

    async def catch_up_to(self, number: int) -> None:
        """Catch up to that number, if it exists: another process may have published one that we do not have yet."""

    def watch(
        self, watcher: Callable[[], object], uris: Callable[[], Iterable[str]] | None = None
    ) -> Callable[[], None]:
        """Call back soon after each change, from the event loop; returns the function that ends the watch.

        `uris` returns the resources that the watcher is subscribed to at that moment.
        """

    def uris_changed(self) -> None:
        """A watcher has changed the resources it is subscribed to."""


class ChangeFilter(Struct, frozen=True, kw_only=True):
    """The changes that a subscriber wants."""

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    notification: bool = False
    uris: frozenset[str] = frozenset()


class SubscriberChanges(Protocol):
    """The changes that one subscriber may be notified of."""

    def admits(self, change: Change) -> bool:
        """Whether it is notified of a change that its filter matches."""

    def resume(self) -> None:
        """It continues from an earlier position in the log."""


class Subscribed(Struct, frozen=True):
    """The call stays open: its exchange sends the board's changes to the caller.

    changes: the changes of the board.
    filter: the changes that the caller asked for.
    visible: those that it may be notified of; None for all.
    account: the account that the subscription counts for.
    """

    changes: ChangeSource
    filter: ChangeFilter
    visible: SubscriberChanges | None = None
    account: str = ""
    wrapped: ClassVar[bool] = False
    metadata: ClassVar[None] = None
    encoded: ClassVar[None] = None

    @property
    def result(self) -> Mapping[str, Json]:
        """The result that ends the subscription."""
        return {}


Reply: TypeAlias = Done | InputRequired | TaskStarted | Subscribed
Handler: TypeAlias = Callable[[Call], Coroutine[Any, Any, Reply]]
Around: TypeAlias = Callable[[Call, Handler], Coroutine[Any, Any, Reply]]
