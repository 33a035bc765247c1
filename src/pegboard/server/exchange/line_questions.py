"""Asks a legacy client on a shared line while the call waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from pegboard.call import Json, Notification, Question
from pegboard.limits import Limits
from pegboard.protocol.legacy_codec import write_question
from pegboard.protocol.revision_codec import RevisionCodec
from pegboard.server.exchange.exchanges import MessageLine
from pegboard.sessions.session import Session


class LineQuestions(Struct, eq=False):
    """The questions of one call: requests to the client between other messages; the answers arrive on the same line.

    `asked` is called after each request, since the answer can only arrive if the line is read.
    """

    line: MessageLine
    codec: RevisionCodec
    session: Session
    limits: Limits
    asked: Callable[[], object] = bool

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        return await self.session.questions.put(questions, self, self.limits)

    async def send_question(self, request_id: str, question: Question) -> None:
        self.line.write(write_question(request_id, question, self.codec.version))
        self.asked()
        await self.line.drain()

    async def question_answered(self, request_id: str) -> None:
        """Do nothing: the request was not stored."""

    async def cancel_question(self, request_id: str, reason: str) -> None:
        params = {"requestId": request_id, "reason": reason}
        self.line.write(self.codec.notice(Notification("notifications/cancelled", params)))
