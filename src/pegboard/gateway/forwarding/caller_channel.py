"""Forwards a server's notifications and questions to the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pegboard.asking.questions import check_capabilities
from pegboard.call import Call, Json, NeedInput, Notification, Question
from pegboard.client.links.link import PROGRESS_NOTIFICATION
from pegboard.errors import InternalFailure, MethodNotFound, MissingCapability, ToolError
from pegboard.protocol.params import PREFIX
from pegboard.protocol.revisions import LOG_LEVELS

_MESSAGE: Final = "notifications/message"
_ELICIT: Final = "elicitation/create"
_ROOTS: Final = "roots/list"

DECLINED: Final[Mapping[str, Json]] = {"action": "decline"}
CANCELLED: Final[Mapping[str, Json]] = {"action": "cancel"}
_NO_ROOTS: Final[Mapping[str, Json]] = {"roots": []}


class CallerChannel(Struct, eq=False):
    """The channel of a request to a server while its caller waits."""

    call: Call

    async def emit(self, notice: Notification) -> None:
        notification = notification_for(self.call, notice)
        if notification is not None:
            await self.call.channel.emit(notification)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        answered, left = answer_unsupported(questions, self.call, midway=True)
        if not left:
            return answered
        try:
            return {**answered, **await ask_caller(self.call, left)}
        except NeedInput:
            # This server was not expected to ask while its request runs.
            return {**answered, **{key: decline_result(question) for key, question in left.items()}}

    async def close_stream(self, retry_ms: int) -> None:
        await self.call.channel.close_stream(retry_ms)


def notification_for(call: Call, notice: Notification) -> Notification | None:
    """The notification for the caller; None if the caller does not want it or cannot use it."""
    params = notice.params
    if notice.method == PROGRESS_NOTIFICATION:
        done = params.get("progress")
        if call.token is None or not isinstance(done, int | float):
            return None
        origin = call.origin
        # "The progress value MUST increase": across all rounds of a request, each of which may start from zero.
        if origin._reached is not None and done <= origin._reached:
            return None
        origin._reached = done
        return Notification(PROGRESS_NOTIFICATION, {**params, "progressToken": call.token})
    if notice.method == _MESSAGE:
        wanted, level = call.caller.log_level, LOG_LEVELS.get(str(params.get("level")))
        if wanted is None or level is None or level < LOG_LEVELS[wanted]:
            return None
        return notice
    return None


def answer_unsupported(
    questions: Mapping[str, Question], call: Call, *, midway: bool = False
) -> tuple[dict[str, Json], dict[str, Question]]:
    """The answers to questions that the caller does not support, and the questions that are left to ask.

    A form is declined; sampling and roots are rejected with an error. A server that asks `midway` was promised roots
    for all callers in its handshake: it gets an empty list for this one.
    """
    call._mark_asked()
    answered: dict[str, Json] = {}
    left: dict[str, Question] = {}
    for key, question in questions.items():
        try:
            check_capabilities(call.name, _needs(question), call.caller.capabilities)
        except MissingCapability:
            if midway and question.method == _ROOTS:
                answered[key] = _NO_ROOTS
                continue
            if question.method != _ELICIT:
                raise MethodNotFound(f"The client does not support {question.method[:80]!r}") from None
            answered[key] = DECLINED
        else:
            left[key] = Question(question.method, _asked(question.params))
    return answered, left


async def ask_caller(call: Call, questions: Mapping[str, Question]) -> Mapping[str, Json]:
    """The answers of a caller that can be asked while its call runs; otherwise raises NeedInput."""
    try:
        return await call.ask(questions)
    except ToolError as failed:
        # The text is meant for a model, but here a server asked.
        raise InternalFailure(failed.message) from None


def decline_result(question: Question) -> Json:
    """The result for a server whose question will not be answered."""
    if question.method == _ELICIT:
        return CANCELLED
    raise InternalFailure("The client did not answer")


def _needs(question: Question) -> Mapping[str, Mapping[str, Json]]:
    params = question.params
    match question.method:
        case "elicitation/create":
            return {"elicitation": {"url" if params.get("mode") == "url" else "form": {}}}
        case "sampling/createMessage":
            return {"sampling": {"tools": {}} if params.get("tools") or params.get("toolChoice") else {}}
        case "roots/list":
            return {"roots": {}}
        case _:
            raise MethodNotFound(f"The client does not support {question.method[:80]!r}")


def _asked(params: Mapping[str, Json]) -> Mapping[str, Json]:
    """The params without the members that only concern us and the server."""
    meta = params.get("_meta")
    if "task" not in params and not isinstance(meta, dict):
        return params
    asked = {name: value for name, value in params.items() if name not in ("task", "_meta")}
    if isinstance(meta, dict):
        kept = {name: value for name, value in meta.items() if name != "progressToken" and not name.startswith(PREFIX)}
        if kept:
            asked["_meta"] = kept
    return asked
