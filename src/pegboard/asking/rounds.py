"""The questions and answers of one call, across several requests if needed, each ticket used once.

Theory of operation. A legacy caller is asked while the call runs, and the tool waits. A caller of 2026-07-28 is asked
by the response to its request: the call ends, the client repeats the request with the answers, and the tool runs again
from its first line. The repeated request brings only the answers to the last questions; earlier answers are in the
ticket (`requestState`), which is sealed, bound to its principal and to this request, and expires. An answer is valid
only for its question: the ticket stores a digest of each question under its key. So a tool may branch, loop and ask in
any order, and finds each answer where it asked. A round ends with an exception; if a tool catches it, its result is
discarded and the question is still sent.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from pegboard.asking.questions import Ask, InvalidAnswer, check_capabilities
from pegboard.call import Call, Handler, InputRequired, Json, NeedInput, Question, Reply
from pegboard.errors import Busy, InvalidParams, MissingCapability, QuestionFailed, Refusal, ToolError
from pegboard.limits import Limits
from pegboard.schema.plain_json import ResultProblem, as_plain
from pegboard.security.seal import Seal
from pegboard.stores.store import Records

_log = logging.getLogger("pegboard.tools")

_MAX_TRIES: Final = 3
REQUIRED: Final = "dev.pegboard/requiredCapabilities"

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class Ticket(Struct, array_like=True):
    """The state of a call between rounds: its identity, and what was asked, answered and kept.

    `id` identifies the ticket, whatever text it is sealed as. `misses` counts, for each question, the answers that
    could not be used.
    """

    request: str
    id: str = ""
    round: int = 0
    asked: dict[str, str] = {}
    done: dict[str, tuple[str, Json]] = {}
    kept: dict[str, Json] = {}
    misses: dict[str, int] = {}


_decode_ticket = msgspec.json.Decoder(Ticket).decode


class _UnansweredYet(Exception):
    """No usable answer; the text says what was wrong with the last one."""


def _unsupported(call: Call, missing: MissingCapability) -> MissingCapability | QuestionFailed:
    """The error for a question that the client cannot answer: for a tool, one that becomes a result for the model.

    Many clients raise the protocol's error as an exception, which ends the run of an agent. Prompts and resources have no
    results that are errors; a tool with `requires=` is rejected before it runs.
    """
    if call.method != "tools/call":
        return missing
    return QuestionFailed(
        f"{missing.message}: continue without it, or tell the user to call it from a client that has the capability",
        meta={REQUIRED: missing.data["requiredCapabilities"]} if isinstance(missing.data, dict) else None,
    )


class _Unanswered(Struct):
    """A question and its digest, which stays the same however often it is asked."""

    name: str
    ask: Ask
    question: Question
    digest: str
    problem: str = ""

    def question_again(self) -> Question:
        """The question as sent, with the problem of the last answer."""
        message = self.question.params.get("message")
        if not self.problem or not isinstance(message, str):
            return self.question
        return Question(self.question.method, {**self.question.params, "message": f"{message}\n({self.problem})"})


class Rounds:
    """The questions and answers of one call so far."""

    __slots__ = ("_answers", "_call", "_digests", "_limits", "_seal", "_ticket", "_uses", "open")

    def __init__(self, call: Call, seal: Seal, limits: Limits) -> None:
        self._call = call
        self._limits = limits
        self._seal = seal
        self._uses: dict[str, int] = {}
        # Questions that end the round.
        self.open: dict[str, Question] = {}
        self._digests: dict[str, str] = {}
        self._ticket = read_ticket(call, seal)
        self._answers = _read_answers(call)

    def restart_rounds(self) -> None:
        """The tool runs again within this round: the same questions get the same answers."""
        self._uses.clear()
        self.open.clear()

    async def ask(self, questions: Mapping[str, Ask]) -> dict[str, Any]:
        """The answer to each question, from an earlier round or from the caller now; NeedInput ends this round."""
        call = self._call
        if len(questions) > self._limits.questions:
            raise ToolError(f"{len(questions)} questions in one round; the limit is {self._limits.questions}")
        values: dict[str, Any] = {}
        unanswered: dict[str, _Unanswered] = {}
        for name, ask in questions.items():
            if not isinstance(ask, Ask):
                raise TypeError(f"ctx.ask takes Elicit, Sample and Roots, got {name}={ask!r:.80}")
            try:
                check_capabilities(call.name, ask._needs(), call.caller.capabilities)
            except MissingCapability as missing:
                raise _unsupported(call, missing) from None
            question = ask._question()
            key = self._key(name, ask, question)
            open_ask = _Unanswered(name, ask, question, _digest(question))
            try:
                values[name] = self._find(key, ask, open_ask.digest)
            except _UnansweredYet as problem:
                open_ask.problem = str(problem)
                unanswered[key] = open_ask
        for _ in range(_MAX_TRIES):
            if unanswered:
                await self._gather(unanswered, values)
        if unanswered:
            raise _unusable(next(iter(unanswered.values())).problem)
        return {name: values[name] for name in questions}

    async def _gather(self, unanswered: dict[str, _Unanswered], values: dict[str, Any]) -> None:
        """Ask the unanswered questions once; the answers are added to the values."""
        try:
            received = await self._call.ask({key: question.question_again() for key, question in unanswered.items()})
        except NeedInput as need:
            self.open.update(need.questions)
            self._digests.update((key, unanswered[key].digest) for key in need.questions)
            raise
        for key, question in list(unanswered.items()):
            try:
                values[question.name] = question.ask._read(received[key])
            except InvalidAnswer as problem:
                question.problem = str(problem)
                continue
            self._ticket.done[key] = question.digest, received[key]
            del unanswered[key]

    @property
    def kept(self) -> Mapping[str, Json]:
        """The values kept in this round or an earlier one."""
        return self._ticket.kept

    async def keep(self, name: str, make: Callable[[], Any | Awaitable[Any]]) -> Json:
        """A value that is made once over all rounds; JSON, since the caller carries it."""
        kept = self._ticket.kept
        if name not in kept:
            made = make()
            value = await made if inspect.isawaitable(made) else made
            try:
                # Decoded from its own encoding, so that this round sees the same value as the next one.
                plain = _decode(_encode(as_plain(value)))
            except ResultProblem as problem:
                raise TypeError(f"ctx.keep({name!r}) must return a JSON value: {problem}") from None
            # Another task may have made it in the meantime.
            return kept.setdefault(name, plain)
        return kept[name]

    def required(self) -> InputRequired:
        """End this round: the questions, and the ticket to the next round."""
        ticket, questions, limits = self._ticket, self.open, self._limits
        if ticket.round >= limits.rounds:
            raise ToolError(
                f"{self._call.name} asked its caller {limits.rounds} times without finishing; if its question differs in "
                "each round, pass a key"
            )
        ticket.id = secrets.token_hex(16)
        ticket.round += 1
        ticket.asked = {key: self._digests[key] for key in questions}
        sealed = self._seal.close(
            _encode(ticket), bearer=self._call.caller.principal.id, expires=time.time() + limits.ticket_seconds
        )
        if len(sealed) > limits.ticket_bytes:
            raise ToolError(
                f"{self._call.name} collected more state than a request can carry; ask for less, or run it as a task"
            )
        return InputRequired(questions, sealed)

    def _key(self, name: str, ask: Ask, question: Question) -> str:
        base = name or f"{ask.kind}-{_digest(question)[:8]}"
        use = self._uses.get(base, 0) + 1
        key = base if use == 1 else f"{base}-{use}"
        while use > 1 and key in self._uses:
            # The author may have used that key for another question.
            use += 1
            key = f"{base}-{use}"
        self._uses[base] = use
        self._uses.setdefault(key, 1)
        return key

    def _find(self, key: str, ask: Ask, digest: str) -> Any:
        """The answer that has arrived; _NotYet if there is none that can be used."""
        ticket = self._ticket
        asked, answer = ticket.done.get(key, ("", None))
        if asked == digest:
            return ask._read(answer)
        # A client may answer an unasked question by its key: without a ticket, nothing records what was asked.
        if key in self._answers and (not ticket.round or ticket.asked.get(key) == digest):
            answer = self._answers[key]
            try:
                value = ask._read(answer)
            except InvalidAnswer as problem:
                if problem.malformed:
                    raise InvalidParams(f"inputResponses[{key[:60]!r}]: {problem}") from None
                misses = ticket.misses[key] = ticket.misses.get(key, 0) + 1
                if misses == _MAX_TRIES:
                    raise _unusable(str(problem)) from None
                raise _UnansweredYet(str(problem)) from None
            ticket.done[key] = digest, answer
            return value
        raise _UnansweredYet


def asking(inner: Handler) -> Handler:
    """A Handler whose questions become its reply if they cannot be answered while it runs."""

    async def ask_or_answer(call: Call) -> Reply:
        try:
            reply = await inner(call)
        except NeedInput:
            return _rounds(call).required()
        except BaseExceptionGroup as group:
            _, failures = group.split(NeedInput)
            if failures is not None:
                # If another task of the group failed, that error counts.
                raise failures from None
            return _rounds(call).required()
        except (Refusal, QuestionFailed):
            raise
        except Exception:
            if not _ask_again(call):
                raise
        else:
            if not _ask_again(call):
                return reply
        _log.warning(
            "%s caught the question that ends its round, by `except BaseException` or return_exceptions=True; its "
            "result is discarded and the question is sent",
            call.name,
        )
        return _rounds(call).required()

    return ask_or_answer


def _rounds(call: Call) -> Rounds:
    rounds: Rounds = call.origin._rounds
    return rounds


def _ask_again(call: Call) -> bool:
    rounds: Rounds | None = call.origin._rounds
    return rounds is not None and bool(rounds.open)


def _unusable(why: str) -> ToolError:
    return ToolError(f"The client's answer cannot be used: {why}")


def _digest(question: Question) -> str:
    return hashlib.sha256(_encode([question.method, question.params])).hexdigest()[:32]


def request_digest(call: Call) -> str:
    """The identity of a request that is repeated: its name and its arguments as sent."""
    raw = call.raw if call._raw_as_sent is None else call._raw_as_sent
    return hashlib.sha256(_encode([call.method, call.name, _decode(raw)])).hexdigest()[:32]


def read_ticket(call: Call, seal: Seal) -> Ticket:
    """The state of a call from its last round; rejects a ticket of another principal or another request."""
    request = request_digest(call)
    if call.ticket is None:
        return Ticket(request)
    opened = seal.open(call.ticket, now=time.time(), bearer=call.caller.principal.id)
    ticket = _decode_ticket(opened if isinstance(opened, bytes) else b"")
    if ticket.request != request:
        raise InvalidParams("Invalid requestState: it belongs to another request; send the same arguments again")
    return ticket


def _read_answers(call: Call) -> Mapping[str, Json]:
    if call.answers is None:
        return {}
    answers = _decode(call.answers)
    if not isinstance(answers, dict):
        raise InvalidParams("inputResponses must be an object with the answer to each question under its key")
    return answers


class UsedTickets(Struct, eq=False):
    """Remembers used tickets for `seconds`, until they expire.

    Holds at most `limit` of them in this process, and `each` per principal, so that one cannot use all the space.
    """

    records: Records
    limit: int
    each: int
    seconds: float
    clock: Callable[[], float] = time.monotonic
    _until: deque[tuple[float, str]] = field(default_factory=deque)
    # Includes those that are being written, which have no expiry yet.
    _held: dict[str, int] = {}
    _all: int = 0

    def use_store(self, records: Records) -> None:
        """Keep them in this store, which other processes share."""
        self.records = records

    async def mark_used(self, ticket_id: str, principal: str) -> None:
        """Use the ticket with this id; InvalidParams if it was used before."""
        now = self.clock()
        while self._until and self._until[0][0] <= now:
            self._release(self._until.popleft()[1])
        held = self._held.get(principal, 0)
        if self._all >= self.limit or held >= self.each:
            raise Busy("Too many answered questions; try again later", retry_after=60)
        self._held[principal] = held + 1
        self._all += 1
        is_new = False
        try:
            is_new = await self.records.add(f"spent:{ticket_id}", 1, ttl=self.seconds) == 1
        finally:
            if is_new:
                self._until.append((now + self.seconds, principal))
            else:
                # Repeating a ticket takes no more space, so that it cannot push out the tickets of others.
                self._release(principal)
        if not is_new:
            raise InvalidParams("Invalid requestState: it was already used; start the call again")

    def _release(self, principal: str) -> None:
        self._all -= 1
        self._held[principal] -= 1
        if not self._held[principal]:
            del self._held[principal]
