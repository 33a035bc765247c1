"""One observation of each call, for everything that looks at calls after they have ended.

Theory of operation. While a call runs, only the clock is read. When it has ended, one Observation is made and passed to all
observers together with the Call. They take what they need and derive the rest when someone asks for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pegboard.call import Call, Done, EncodedResult, Handler, InputRequired, Json, Reply, TaskStarted
from pegboard.errors import LimitReached, PegboardError, Refusal

_log = logging.getLogger("pegboard.middleware")

_MAX_TEXT: Final = 500

Outcome: TypeAlias = Literal["ok", "error", "refused", "asked", "task", "cancelled"]


class Failure(Struct, frozen=True):
    """Why a call raised; without the exception, whose traceback would keep alive whatever the call used.

    name: the type of the exception.
    message: its text if it is one of ours; the text of any other exception is not for peers.
    text: its text in any case, for the operator's log.
    code: the JSON-RPC code it is answered with, if any.
    reason: which limit rejected it, such as `rate_limit`.
    outcome: `refused` by a rule or limit, `cancelled`, or else `error`.
    """

    name: str
    message: str
    code: int | None
    outcome: Literal["error", "refused", "cancelled"]
    reason: str = ""
    text: str = ""


class Observation(Struct):
    """The end of a call.

    began, ended: when, on the clock of `time.perf_counter`, with all middleware.
    reply: the reply; None if the call raised.
    failure: why it raised.
    """

    began: float
    ended: float
    reply: Reply | None
    failure: Failure | None = None

    @property
    def seconds(self) -> float:
        """How long the call took."""
        return self.ended - self.began

    @property
    def result(self) -> Mapping[str, Json] | None:
        """The result; None if the call raised."""
        if self.reply is None:
            return None
        result = self.reply.result
        return result.value if isinstance(result, EncodedResult) else result

    @property
    def failed(self) -> bool:
        """Whether the caller got an error: of the protocol, or for the model."""
        reply = self.reply
        if type(reply) is Done and type(reply.result) is dict:
            return bool(reply.result.get("isError"))
        return reply is None or bool((self.result or {}).get("isError"))

    @property
    def outcome(self) -> Outcome:
        """How the call ended: `asked` and `task` mean that it continues."""
        if self.failure is not None:
            return self.failure.outcome
        if isinstance(self.reply, InputRequired):
            return "asked"
        if isinstance(self.reply, TaskStarted):
            return "task"
        return "error" if self.failed else "ok"


Observe: TypeAlias = Callable[[Call, Observation], object]


Report: TypeAlias = Callable[[Call, float, Reply | None, BaseException | None], None]
"""Learns the end of a call: when it began, and its reply or what it raised. It does not raise, whatever happens."""


def describe_failure(exception: BaseException) -> Failure:
    """What an observation keeps of an exception."""
    cancelled = isinstance(exception, asyncio.CancelledError | GeneratorExit)
    refused = isinstance(exception, Refusal | LimitReached)
    return Failure(
        type(exception).__name__,
        _text_of(exception) if isinstance(exception, PegboardError) else "",
        exception.code if isinstance(exception, Refusal) else None,
        "cancelled" if cancelled else "refused" if refused else "error",
        exception.reason if isinstance(exception, LimitReached) else "",
        _text_of(exception),
    )


def _text_of(exception: BaseException) -> str:
    try:
        return str(exception)[:_MAX_TEXT]
    except Exception:  # noqa: BLE001 — an author's exception may fail to describe itself
        return ""


def observing(observe: Observe, failures: list[BaseException] | None = None) -> Report:
    """The report of an observer; `failures` collects what it raises."""

    def report(call: Call, began: float, reply: Reply | None, exception: BaseException | None) -> None:
        failure = None if exception is None else describe_failure(exception)
        try:
            observe(call, Observation(began, perf_counter(), reply, failure))
        except Exception as problem:  # noqa: BLE001 — an observer must not change the call
            _log.exception("an observer of %s failed", call.method)
            if failures is not None:
                failures.append(problem)

    return report


def combine_reports(reports: Sequence[Report]) -> Report | None:
    """One report for all of these; None if there are none."""
    if len(reports) < 2:
        return reports[0] if reports else None

    def report_to_all(call: Call, began: float, reply: Reply | None, exception: BaseException | None) -> None:
        for report in reports:
            report(call, began, reply, exception)

    return report_to_all


def observed(inner: Handler, report: Report) -> Handler:
    """The Handler; reports each call when it has ended."""

    async def run(call: Call) -> Reply:
        began = perf_counter()
        try:
            reply = await inner(call)
        except BaseException as exception:
            report(call, began, None, exception)
            raise
        report(call, began, reply, None)
        # Middleware outside may still change the result.
        return reply if reply.encoded is None else replace(reply, encoded=None)

    return run


def clocked(inner: Handler) -> Handler:
    """The innermost Handler, with the time noted that it takes, from the first attempt to the end of the last."""

    async def run(call: Call) -> Reply:
        began = perf_counter()
        try:
            return await inner(call)
        finally:
            while call._origin is not None:
                call = call._origin
            call._inside = began if call._inside is None else call._inside[0], perf_counter()

    return run
