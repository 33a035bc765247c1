"""Notifications and questions of a server that name no call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pegboard.call import Json, Notification, Question
from pegboard.client.links.abandoned_requests import AbandonedRequests
from pegboard.client.links.link import OutgoingRequest
from pegboard.client.links.server_output import shorten_output
from pegboard.errors import InvalidRequest, MethodNotFound
from pegboard.log_allowance import LogAllowance

_log = logging.getLogger("pegboard.gateway")

ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods during which a server may send questions."""

TEXT: Final = 500
"""The maximum length of a server's log message in our own log."""

_LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
}

_encode = msgspec.json.Encoder(enc_hook=repr).encode


class UnattributedChannel:
    """Answers questions of a server that belong to no call: with the gateway's roots, or through a running call.

    `running` are the requests that the question may belong to; a legacy server need not name one. A question has its
    own id, so if all running calls have the same owner, any of them can forward it. Otherwise the connection is
    `ambiguous` from then on, and its calls run one at a time.
    """

    def __init__(
        self,
        name: str,
        roots: Sequence[str],
        running: Collection[OutgoingRequest],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ambiguous = False
        # A server must not fill the log.
        self._allowance = LogAllowance(_log, name, clock=clock)
        self.abandoned = AbandonedRequests()
        self._name = name
        self._roots = [{"uri": root} for root in roots]
        self._running = running

    async def emit(self, notice: Notification) -> None:
        if notice.method != "notifications/message" or not self._allowance.take():
            return
        level, data = notice.params.get("level"), notice.params.get("data")
        text = data if isinstance(data, str) else _encode(data).decode("utf-8", "replace")
        # A log message of ours is one line, whatever the server sends.
        _log.log(_LEVELS.get(str(level), logging.ERROR), "%s logged: %s", self._name, shorten_output(text, TEXT))

    async def close_stream(self, retry_ms: int) -> None:
        """Nothing to do: there is no stream."""

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        return {key: await self._answer(key, question) for key, question in questions.items()}

    async def _answer(self, key: str, question: Question) -> Json:
        carrier = self._only_call()
        if carrier is not None:
            return (await carrier.ask({key: question}))[key]
        if question.method == "roots/list":
            return {"roots": self._roots}
        if not self.ambiguous and len(list(self._calls())) > 1:
            self.ambiguous = True
            _log.warning(
                "%s: sent a question that names no call while several callers were active; the question was cancelled and "
                "calls are now serialized; with `share: principal` each caller has its own connection",
                self._name,
            )
        if question.method == "elicitation/create":
            return {"action": "cancel"}
        if question.method == "sampling/createMessage":
            raise InvalidRequest("The question cannot be answered: it does not name the call it belongs to")
        raise MethodNotFound(f"This client does not support {question.method[:80]!r}")

    def _only_call(self) -> OutgoingRequest | None:
        """The newest call that has no open question, if all running calls have the same owner."""
        newest: OutgoingRequest | None = None
        for running in self._calls():
            if newest is not None and running.owner != newest.owner:
                return None
            if newest is None or newest.asked or not running.asked:
                newest = running
        return None if newest is None or self.abandoned.may_belong_to_another(newest.owner) else newest

    def _calls(self) -> Iterator[OutgoingRequest]:
        return (running for running in self._running if running.method in ASKING)
