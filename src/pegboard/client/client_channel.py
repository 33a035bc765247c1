"""What a client receives while a request runs: progress, logs and questions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from pegboard.asking.questions import Accepted, Answer, Cancelled, Declined
from pegboard.call import Json, Notification, Question
from pegboard.client.links.link import PROGRESS_NOTIFICATION
from pegboard.client.list_cache import ListCache
from pegboard.deadline import Deadline, paused
from pegboard.errors import MethodNotFound
from pegboard.protocol.content import text_block
from pegboard.protocol.json_values import as_object
from pegboard.protocol.revisions import CHANGE_KINDS
from pegboard.schema.plain_json import as_plain

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

Progress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None] | None]
OnLog: TypeAlias = Callable[[str, Json], Awaitable[None] | None]
OnNotification: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[None] | None]


class Elicitation(Struct, frozen=True):
    """A server's question to the user.

    message: the question.
    schema: the JSON Schema of the form; empty for a URL.
    url: the page that the user shall open, or None for a form.
    """

    message: str
    schema: Mapping[str, Any]
    url: str | None = None


Content: TypeAlias = Answer[Any] | Mapping[str, Json] | None
OnElicit: TypeAlias = Callable[[Elicitation], Content | Awaitable[Content]]
OnSample: TypeAlias = Callable[[Mapping[str, Json]], str | Mapping[str, Json] | Awaitable[str | Mapping[str, Json]]]


class QuestionHandlers(Struct, frozen=True, kw_only=True):
    """The functions that answer a server's questions; kinds without a function are not declared, and so not asked.

    `elicit` returns the content of the form, or None if the user declines; omitted fields get the default of the form.
    `sample` returns text, or the whole message; `roots` are the folders that the client works in.
    """

    elicit: OnElicit | None = None
    sample: OnSample | None = None
    roots: Sequence[str] | None = None

    def capabilities(self) -> dict[str, Json]:
        """The capabilities to declare."""
        declared: dict[str, Json] = {}
        if self.elicit is not None:
            declared["elicitation"] = {"form": {}, "url": {}}
        if self.sample is not None:
            declared["sampling"] = {}
        if self.roots is not None:
            declared["roots"] = {}
        return declared

    async def answer(self, question: Question) -> Json:
        """The result of one question."""
        params = question.params
        if question.method == "elicitation/create" and self.elicit is not None:
            url = params.get("url")
            asked = Elicitation(
                str(params.get("message", "")),
                as_object(params.get("requestedSchema")),
                url if isinstance(url, str) else None,
            )
            return _elicitation_result(await _awaited(self.elicit(asked)), asked)
        if question.method == "sampling/createMessage" and self.sample is not None:
            sampled = await _awaited(self.sample(params))
            if isinstance(sampled, str):
                return {
                    "role": "assistant",
                    "content": text_block(sampled),
                    "model": "unknown",
                    "stopReason": "endTurn",
                }
            return sampled
        if question.method == "roots/list" and self.roots is not None:
            return {"roots": [{"uri": root} for root in self.roots]}
        raise MethodNotFound(f"This client does not answer {question.method[:80]!r}")


def _elicitation_result(answer: Content, asked: Elicitation) -> Json:
    match answer:
        case Accepted() if asked.url is not None:
            return {"action": "accept"}
        case Accepted():
            return {"action": "accept", "content": _with_defaults(as_plain(answer.content), asked.schema)}
        case Declined() | None:
            return {"action": "decline"}
        case Cancelled():
            return {"action": "cancel"}
        case _:
            return {"action": "accept", "content": _with_defaults(answer, asked.schema)}


def _with_defaults(content: Json, schema: Mapping[str, Json]) -> Json:
    """The content, with the form's defaults for omitted fields."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not isinstance(content, Mapping | None):
        return content
    proposed = {
        name: part["default"] for name, part in properties.items() if isinstance(part, Mapping) and "default" in part
    }
    return {**proposed, **(content or {})}


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class ClientChannel(Struct, eq=False):
    """The channel of a client's requests: notifications and questions become calls of its user's functions.

    `waits` are the deadlines that are paused during a question that belongs to no request: those of all requests.
    """

    answers: QuestionHandlers
    lists: ListCache
    log: OnLog | None
    progress: Progress | None = None
    waits: Collection[Deadline] = ()
    notified: OnNotification | None = None

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        with paused(self.waits):
            answers = await asyncio.gather(*(self.answers.answer(question) for question in questions.values()))
        return dict(zip(questions, answers, strict=True))

    async def close_stream(self, retry_ms: int) -> None:
        """Nothing to close."""

    async def emit(self, notice: Notification) -> None:
        params: Mapping[str, Any] = notice.params
        delivery: Awaitable[None] | None = None
        if notice.method == PROGRESS_NOTIFICATION:
            if self.progress is not None:
                delivery = self.progress(params["progress"], params.get("total"), params.get("message"))
        elif notice.method == "notifications/message":
            if self.log is not None:
                delivery = self.log(params.get("level", "info"), params.get("data"))
        else:
            if notice.method in CHANGE_KINDS:
                uri = params.get("uri")
                self.lists.drop(notice.method, uri if isinstance(uri, str) else "")
            if self.notified is not None and notice.method != ACKNOWLEDGED:
                delivery = self.notified(notice.method, params)
        if inspect.isawaitable(delivery):
            await delivery
