"""The tree of errors, and what each one means on the wire.

PegboardError
├── Refusal                  a request that is answered with a JSON-RPC error
│   ├── ParseFailure         -32700  the peer's bytes are not JSON we accept
│   ├── InvalidRequest       -32600  JSON, but not a message of this protocol
│   │   └── IdInFlight       -32600  an id whose first use is not answered yet
│   ├── MethodNotFound       -32601  a method this revision or server does not have
│   ├── InvalidParams        -32602  a method's parameters are wrong or name nothing we know
│   │   ├── UnknownTool      -32602  with the closest names we do have
│   │   └── ResourceNotFound -32602  no resource answers to the URI (-32002 before 2026-07-28)
│   ├── InternalFailure      -32603  our fault; the text is in the log under an id
│   │   └── Busy             -32603  a limit is reached; come back later
│   │       └── StoreDown    -32603  where things are kept cannot be reached or written; come back later
│   ├── HeaderMismatch       -32020  the HTTP headers and the body disagree
│   ├── MissingCapability    -32021  the client did not declare what the call needs
│   ├── UnsupportedVersion   -32022  a protocol revision we do not speak
│   │   └── NoSessions       -32022  a revision that needs sessions, where they cannot be kept
│   ├── StreamFault          -32000  a stream breaks its rules, or nothing comes any more
│   ├── SessionRequired      -32602  a legacy request that names no session
│   └── SessionNotFound      -32001  a session that ended, expired or belongs to somebody else
├── ToolError                what a tool's author says to the model: an `isError` result
│   ├── InvalidArguments     the same, with the problems of each argument for programs to read
│   ├── LimitReached         a limit, budget or deadline said no; the text says when to come back
│   └── AskFailed            the caller was asked something, and could not answer
├── ServerFault              a server that we call let us down; the text names it
│   ├── Unreachable          nobody is there, it is busy, or its command cannot be started
│   ├── NotAdmitted          it wants credentials that it was not given
│   │   └── LoginFailed      they were sought at its authorization server, and not got
│   ├── LinkLost             the connection ended before the answer came
│   ├── NoAnswer             nothing came in time
│   └── Garbled              what came is not what the protocol has there
├── DeclarationError         a tool, resource or prompt was declared wrongly: the author's to fix
└── SetupError               a command line, file or environment is wrong: the operator's to fix

Codes are those of revision 2026-07-28; the doors map them for older clients. A message says what was wrong, what was
got, what is allowed and what to do next. Text of an unexpected exception never enters one of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

REFUSED = "dev.pegboard/refused"


class PegboardError(Exception):
    """Everything this package raises on purpose."""


class Refusal(PegboardError):
    """A request that is answered with a JSON-RPC error."""

    code: int = -32603
    status: ClassVar[int] = 200

    def __init__(self, message: str, data: Any = None, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        self.retry_after = retry_after
        self.request_id: str | int | None = None


class ParseFailure(Refusal):
    code, status = -32700, 400


class InvalidRequest(Refusal):
    code, status = -32600, 400


class DuplicateRequestId(InvalidRequest):
    status = 409


class MethodNotFound(Refusal):
    code, status = -32601, 404


class InvalidParams(Refusal):
    code, status = -32602, 400


class UnknownTool(InvalidParams):
    pass


class ResourceNotFound(InvalidParams):
    def __init__(self, uri: str, reason: str = "") -> None:
        super().__init__(f"Resource not found: {uri[:200]}{f'; {reason}' if reason else ''}", {"uri": uri})


class InternalFailure(Refusal):
    code, status = -32603, 200


class Busy(InternalFailure):
    status = 503


class StoreDown(Busy):
    pass


class HeaderMismatch(Refusal):
    code, status = -32020, 400


class MissingCapability(Refusal):
    code, status = -32021, 400

    def __init__(self, message: str, required: Mapping[str, Any]) -> None:
        super().__init__(message, {"requiredCapabilities": dict(required)})


class UnsupportedVersion(Refusal):
    code, status = -32022, 400

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        listed = ", ".join(supported)
        super().__init__(
            f"Unsupported protocol version {requested[:40]!r}: use one of {listed}",
            {"requested": requested, "supported": list(supported)},
        )


class StreamError(Refusal):
    code, status = -32000, 400


class SessionsUnsupported(UnsupportedVersion):
    def __init__(self, reason: str, requested: str, supported: Sequence[str]) -> None:
        super().__init__(requested, supported)
        self.message = reason


class SessionRequired(Refusal):
    code, status = -32602, 400


class SessionNotFound(Refusal):
    code, status = -32001, 404


class ToolError(PegboardError):
    """Raised in a tool: its text reaches the model as an `isError` result."""

    def __init__(self, message: str, *, meta: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.meta = meta


class InvalidArguments(ToolError):
    """Arguments that a tool cannot take: the text is for the model, `errors` (ParseErrors) for programs."""

    def __init__(self, message: str, errors: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.errors = errors


class DelegationFailed(ToolError):
    """The server behind a gateway let the call down; its own answers, refusals and failed tools are none of these."""


class LimitReached(ToolError):
    """A call refused by a limit, a budget, a deadline or a breaker.

    `_meta["dev.pegboard/refused"]` of the result carries the reason, `retryAfter` in seconds where that is known, and
    the figures of the limit.
    """

    def __init__(self, message: str, reason: str, *, retry_after: float | None = None, **figures: Any) -> None:
        refused: dict[str, Any] = {"reason": reason, **figures}
        if retry_after is not None:
            refused["retryAfter"] = retry_after
        super().__init__(message, meta={REFUSED: refused})
        self.reason = reason
        self.retry_after = retry_after


class QuestionFailed(ToolError):
    """A question to the caller that it could not answer, or that could not reach it."""


class ServerFault(PegboardError):
    """A server that we call let us down: it is for whoever runs or configures it to act."""


class Unreachable(ServerFault):
    """Nothing of the request was worked on, so that it may be sent again; `retry_after` says when, where that is known."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unauthorized(ServerFault):
    """The status 401 or 403; `challenge` is what its WWW-Authenticate field asks for."""

    def __init__(self, message: str, status: int, challenge: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.challenge = challenge


class LoginFailed(Unauthorized):
    """No credentials could be got; `reason` is the error code of OAuth where there is one."""

    def __init__(self, message: str, status: int = 401, challenge: str = "", *, reason: str = "") -> None:
        super().__init__(message, status, challenge)
        self.reason = reason


class ConnectionLost(ServerFault):
    """The request was sent, and nobody knows how far it came."""


class ResponseTimeout(ServerFault, TimeoutError):
    """The deadline of a request has passed; the server was told to stop."""


class MalformedMessage(ServerFault):
    """An answer that cannot be read as one."""


class MessageTooLong(MalformedMessage):
    """An answer of more bytes than are read."""


class DeclarationError(PegboardError):
    """A tool, resource or prompt was declared wrongly; the text names the file, the line and the fix."""


class SetupError(PegboardError):
    """A command line, a file or the environment is wrong; the text names the key and the fix."""
