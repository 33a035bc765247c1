"""The Context of a running tool: progress, logs, questions, caller."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from threading import get_ident
from time import monotonic
from typing import Any, NoReturn, TypeVar, overload

from pegboard.asking.questions import Answer, Ask, Elicit, Root, Roots, Sample, Sampled, SampleInput
from pegboard.asking.rounds import Rounds
from pegboard.auth.principal import Principal
from pegboard.call import Call, Caller, CallScoped, Change, Json, Notification
from pegboard.errors import QuestionFailed
from pegboard.execution.call_resources import CallResources
from pegboard.execution.nested_calls import NestedResult, call_nested
from pegboard.execution.threads import waiting_outside
from pegboard.protocol.revisions import LOG_LEVELS
from pegboard.schema.plain_json import as_plain
from pegboard.tasks.task_run import detach

T = TypeVar("T")

# How long a tool may send notifications before the event loop gets a turn.
_TURN_SECONDS = 0.0002

# One lock for all tokens: it is held for a moment, and few tokens are ever watched or cancelled.
_watching = threading.Lock()


class CancellationToken(CallScoped):
    """Tells a tool whether its call is cancelled; a tool in a thread has to check it, since a thread cannot be
    stopped.

    `task` is the task that runs the tool: the token counts as cancelled as soon as that task is being cancelled.
    """

    __slots__ = ("_cancelled", "_task", "_watchers")

    def __init__(self, task: asyncio.Task[Any] | None = None) -> None:
        self._cancelled = False
        self._task = task
        self._watchers: tuple[Callable[[], object], ...] = ()

    @property
    def cancelled(self) -> bool:
        """Whether the call is cancelled; already true while the tool handles its CancelledError."""
        return self._cancelled or (self._task is not None and self._task.cancelling() > 0)

    def cancel(self) -> None:
        """Set `cancelled`, and wake up what waits for it."""
        with _watching:
            self._cancelled = True
            watchers = self._watchers
        for watcher in watchers:
            watcher()

    def _watch(self, watcher: Callable[[], object]) -> Callable[[], None]:
        """Call back on cancellation, in the thread that cancels, or at once if cancelled; returns a function that ends
        the watch."""
        with _watching:
            self._watchers += (watcher,)
            late = self._cancelled
        if late:
            watcher()

        def end() -> None:
            with _watching:
                self._watchers = tuple(other for other in self._watchers if other is not watcher)

        return end

    def wait(self, seconds: float) -> bool:
        """Sleep in a thread, until the time is up or the call is cancelled; True if it was cancelled."""
        given_up = threading.Event()
        end = self._watch(given_up.set)
        try:
            return given_up.wait(seconds)
        finally:
            end()


class _Completed:
    """An awaitable that is already done, which a thread gets back."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()
        return self._value


_DONE = _Completed(None)


class PendingAnswer(Coroutine[Any, Any, T]):
    """The answer to a question that was not awaited yet.

    It behaves as the coroutine it holds, but has no truth value: without `await`, `if ctx.elicit(…):` would take every
    question for a yes.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def __bool__(self) -> NoReturn:
        self._work.close()
        raise TypeError("The question was not asked: did you forget `await`? Write `await ctx.elicit(…)`")

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def send(self, value: Any, /) -> Any:
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()


class ClientDescription(dict[str, Json]):
    """The client as it describes itself; `capabilities` says what it can be asked."""

    __slots__ = ("capabilities",)

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller.client)
        self.capabilities = caller.capabilities


class Context(CallScoped):
    """One call, as seen by its tool.

    In a coroutine, await the methods. In a synchronous tool, which runs in a thread, the same methods block and return
    the value itself.
    """

    __slots__ = ("_call", "_call_resources", "_ended", "_loop", "_thread", "_token", "_turn_ends")
    awaited = True

    def __init__(
        self, call: Call, token: CancellationToken, loop: asyncio.AbstractEventLoop, call_resources: CallResources
    ) -> None:
        self._call = call
        self._call_resources = call_resources
        self._token = token
        self._loop = loop
        self._thread = get_ident()
        self._ended = False
        self._turn_ends = 0.0

    @property
    def caller(self) -> Caller:
        """The caller: client, capabilities, principal, session, revision and transport."""
        return self._call.caller

    @property
    def principal(self) -> Principal:
        """Who the caller is: `ctx.principal.id`, `.scopes`, `.roles` and `.claims`; falsy without authentication."""
        return self._call.caller.principal

    @property
    def client(self) -> ClientDescription:
        """The client's own description, for display only, and its capabilities: `ctx.client["name"]`,
        `ctx.client.capabilities`."""
        return ClientDescription(self._call.caller)

    @property
    def state(self) -> dict[str, Any]:
        """Values that hooks and the tool share for the duration of this call; the same dict as `call.state`."""
        return self._call.state

    @property
    def lifespan(self) -> Mapping[str, Any]:
        """What the lifespans of the board yielded: `ctx.lifespan["pool"]`."""
        return self._call_resources.lifespan

    @property
    def tool_name(self) -> str:
        """The name under which this tool was called."""
        return self._call.name

    @property
    def request_id(self) -> str | int | None:
        """The id of the request."""
        return self._call.id

    @property
    def cancelled(self) -> bool:
        """Whether this call is cancelled; already true while the tool handles its CancelledError."""
        return self._token.cancelled

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Report progress; nothing is sent unless the caller asked for it.

        done: how much is done; it must increase.
        total: how much there is, if that is known.
        message: what happens now.
        """
        try:
            finite = math.isfinite(done) and (total is None or math.isfinite(total))
        except (TypeError, OverflowError):
            finite = False
        if not finite:
            raise ValueError(f"Progress takes numbers, got {done!r:.40} of {total!r:.40}")
        if get_ident() == self._thread:
            return self._send_progress(done, total, message)
        return self._await_on_loop(self._progress(done, total, message))

    async def _progress(self, done: float, total: float | None, message: str | None) -> None:
        await self._send_progress(done, total, message)

    def _send_progress(self, done: float, total: float | None, message: str | None) -> Awaitable[None]:
        call = self._call
        if call.token is None:
            return _DONE
        # Kept on the call, not on this run of it: a middleware may retry the tool.
        origin = call if call._origin is None else call.origin
        # "The progress value MUST increase with each notification" (Progress): one that does not is dropped.
        if origin._reached is not None and done <= origin._reached:
            return _DONE
        origin._reached = done
        params: dict[str, Json] = {"progressToken": call.token, "progress": done}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        return self._emit(Notification("notifications/progress", params))

    def log(self, level: str, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send the caller a log message, if it asked for messages of that level.

        level: debug, info, notice, warning, error, critical, alert or emergency.
        data: a text, or any JSON value.
        logger: the name of the logger.
        """
        severity = LOG_LEVELS.get(level)
        if severity is None:
            raise ValueError(f"Unknown log level {level!r}; use one of {', '.join(LOG_LEVELS)}")
        wanted = self._call.caller.log_level
        if wanted is None or severity < LOG_LEVELS[wanted]:
            return _DONE
        params: dict[str, Json] = {"level": level, "data": as_plain(data)}
        if logger is not None:
            params["logger"] = logger
        return self._await_on_loop(self._emit(Notification("notifications/message", params)))

    async def _emit(self, notice: Notification) -> None:
        await self._call.channel.emit(notice)
        # A channel does not wait for a client that keeps up or has left. A tool that only sends notifications would
        # block the loop, which then could not notice that the client left, nor cancel the call. A turn after each
        # notification would cost more than the notification.
        now = monotonic()
        if not self._turn_ends:
            self._turn_ends = now + _TURN_SECONDS
        elif now >= self._turn_ends:
            await asyncio.sleep(0)
            self._turn_ends = monotonic() + _TURN_SECONDS

    @overload
    def elicit(self, message: str, schema: type[T], *, key: str = "") -> Coroutine[Any, Any, Answer[T]]: ...
    @overload
    def elicit(
        self, message: str, schema: Mapping[str, Json], *, key: str = ""
    ) -> Coroutine[Any, Any, Answer[dict[str, Any]]]: ...
    @overload
    def elicit(
        self, message: str, schema: None = None, *, url: str | None = None, key: str = ""
    ) -> Coroutine[Any, Any, Answer[Any]]: ...
    @overload
    def elicit(self, message: str, schema: Any, *, key: str = "") -> Coroutine[Any, Any, Answer[Any]]: ...
    def elicit(
        self, message: str, schema: Any = None, *, url: str | None = None, key: str = ""
    ) -> Coroutine[Any, Any, Answer[Any]]:
        """Ask the user, and return `Accepted` with the submitted content, `Declined` or `Cancelled`.

        A client of 2026-07-28 repeats its request with the answer, and the tool runs again from its first line. So ask
        first, and act afterwards.

        message: the question.
        schema: what to ask for: a dataclass or model, a type such as bool, a Literal, or a flat JSON Schema.
        url: a page that the user shall open, instead of a form.
        key: identifies the question if its text differs each time the tool runs.
        """
        return self._answered(self._ask_one(key, Elicit(message, schema, url)))

    def sample(
        self,
        messages: SampleInput,
        *,
        max_tokens: int = 1000,
        system: str | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        model: str | Sequence[str] | Mapping[str, Json] | None = None,
        tools: Sequence[Mapping[str, Json]] = (),
        tool_choice: Mapping[str, Json] | None = None,
        metadata: Mapping[str, Json] | None = None,
        key: str = "",
    ) -> Coroutine[Any, Any, Sampled]:
        """Ask the client's model, and return its message.

        messages: a text, an image or another content object, a message as in the protocol, or a list of these.
        max_tokens: the maximum length of the message.
        system: the system prompt.
        temperature: the sampling temperature.
        stop: texts that end the message.
        model: the preferred model, several in order of preference, or `modelPreferences` as in the protocol.
        tools: tools that the model may call, as in the protocol.
        tool_choice: how the model chooses among the tools, as in the protocol.
        metadata: additional fields for the client's provider.
        key: identifies the question if its content differs each time the tool runs.
        """
        sample = Sample(messages, max_tokens, system, temperature, stop, model, tools, tool_choice, metadata)
        return self._answered(self._ask_one(key, sample))

    def roots(self, *, key: str = "") -> Coroutine[Any, Any, list[Root]]:
        """Ask which folders the client works in."""
        return self._answered(self._ask_one(key, Roots()))

    def ask(self, **questions: Ask) -> Coroutine[Any, Any, dict[str, Any]]:
        """Ask several questions in one round: `ctx.ask(sure=Elicit("Sure?", bool), where=Roots())`."""
        return self._answered(self._rounds().ask(questions))

    def keep(self, name: str, make: Callable[[], Any]) -> Awaitable[Any]:
        """A JSON value that is made once, even if the tool runs again with the answers to its questions."""
        if not callable(make):
            raise TypeError(f"ctx.keep needs a function that makes the value: ctx.keep({name!r}, lambda: …)")
        rounds = self._rounds()
        if get_ident() == self._thread or name in rounds.kept:
            return self._await_on_loop(rounds.keep(name, make))
        made = make()
        return self._await_on_loop(rounds.keep(name, lambda: made))

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Awaitable[NestedResult]:
        """Call another tool of the board for the same caller, and return its result.

        The rules of the caller, middleware, repair and the check of the output apply as to any call. Cancelling this call
        cancels it; its questions go to the caller of this call. Raises ToolError if it fails.

        name: the name of the tool.
        arguments: its arguments.
        """
        return self._nested("tools/call", name, arguments or {})

    def read(self, uri: str) -> Awaitable[NestedResult]:
        """Read a resource of the board for the same caller: `(await ctx.read("notes://today")).text`."""
        return self._nested("resources/read", uri, None)

    def _nested(self, method: str, name: str, arguments: Mapping[str, Any] | None) -> Awaitable[NestedResult]:
        dispatch = self._call_resources.dispatch
        if dispatch is None:
            raise RuntimeError("ctx.call and ctx.read need a board; this tool runs without one")
        work = call_nested(self._call, dispatch, method, name, arguments)
        return work if get_ident() == self._thread else self._answered(work)

    def wait(self, awaitable: Awaitable[T]) -> T:
        """For type checkers: in a thread the other methods return the value itself, without await."""
        return awaitable  # type: ignore[return-value]  # in a thread it is one

    def close_stream(self, retry_ms: int = 1000) -> Awaitable[None]:
        """Close the caller's connection during long work; the caller reconnects for the result after that time.

        Works for legacy clients over HTTP; does nothing for others.
        """
        return self._await_on_loop(self._call.channel.close_stream(retry_ms))

    def detach(self) -> Awaitable[None]:
        """Continue as a task, which the caller polls: for a tool with `detach="manual"`, after its first questions.

        Later questions wait in the task, and the tool waits for their answers. Does nothing for a call that does not
        run as a task because its client does not support tasks.
        """
        return self._await_on_loop(detach(self._call))

    def resource_changed(self, uri: str) -> Awaitable[None]:
        """Notify subscribers that the content of this resource has changed."""
        self._call_resources.publish(Change("updated", uri))
        return _DONE

    async def _ask_one(self, key: str, ask: Ask) -> Any:
        return (await self._rounds().ask({key: ask}))[key]

    def _rounds(self) -> Rounds:
        if self._ended:
            raise QuestionFailed("The call has ended; its caller can no longer be asked")
        call = self._call.origin
        if call._rounds is None:
            call._rounds = Rounds(call, self._call_resources.tickets, self._call_resources.limits)
        rounds: Rounds = call._rounds
        return rounds

    def _end(self) -> None:
        """The author's code has returned: tasks that it left behind cannot ask any more."""
        self._ended = True

    def _resume_round(self) -> None:
        """Continue from the previous round, if there was one; rejects a ticket that belongs to another request."""
        if self._call._depth:
            # A tool of this round has called it: the round goes on.
            return
        call = self._call if self._call._origin is None else self._call.origin
        if call._rounds is not None:
            # Not the first run within this round: a middleware retries a failed one.
            call._rounds.restart_rounds()
        elif call.ticket is not None or call.answers is not None:
            self._rounds()

    def _run_on_loop(self, do: Callable[[], object]) -> None:
        """Run on the loop: at once, or soon if called from another thread."""
        if get_ident() == self._thread:
            do()
        else:
            self._loop.call_soon_threadsafe(do)

    def _await_on_loop(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Await on the loop; from another thread, let the loop do it and block."""
        if get_ident() == self._thread:
            return work
        # A plain function cannot await: it gets the value.
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()  # type: ignore[return-value]  # see `wait`

    def _answered(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """As `_await_on_loop`, for questions: a thread stops waiting when the caller gives up."""
        if get_ident() == self._thread:
            return PendingAnswer(work)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        end = self._token._watch(future.cancel)
        try:
            with waiting_outside():
                return future.result()  # type: ignore[return-value]  # see `wait`
        finally:
            end()
