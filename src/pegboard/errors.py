"""The tree of errors, and what each one means on the wire.

PegboardError
├── Refusal                     a request that is answered with a JSON-RPC error
│   ├── ParseFailure            -32700  the peer's bytes are not acceptable JSON
│   ├── InvalidRequest          -32600  JSON, but not a message of this protocol
│   │   └── DuplicateRequestId  -32600  the id of a request that is still running
│   ├── MethodNotFound          -32601  a method this revision or server does not have
│   ├── InvalidParams           -32602  a method's parameters are wrong or name nothing we know
│   │   ├── UnknownTool         -32602  no tool has this name; suggests similar names
│   │   └── ResourceNotFound    -32602  no resource has this URI (-32002 before 2026-07-28)
│   ├── InternalFailure         -32603  our fault; the log has the text under an id
│   │   └── Busy                -32603  a limit is reached; retry later
│   │       └── StoreDown       -32603  the store cannot be reached or written; retry later
│   ├── HeaderMismatch          -32020  the HTTP headers and the body disagree
│   ├── MissingCapability       -32021  the client did not declare what the call needs
│   ├── UnsupportedVersion      -32022  a protocol revision we do not speak
│   │   └── SessionsUnsupported -32022  a revision that needs sessions, where there are none
│   ├── StreamError             -32000  a stream breaks its rules, or its sender stopped
│   ├── SessionRequired         -32602  a legacy request that names no session
│   └── SessionNotFound         -32001  a session that ended, expired or belongs to another principal
├── ToolError                   a tool's error message for the model: an `isError` result
│   ├── InvalidArguments        the arguments are wrong; with the problems as data
│   ├── DelegationFailed        the server behind a gateway failed the call
│   ├── LimitReached            a limit, budget or deadline is exceeded; says when to retry
│   └── QuestionFailed          the caller could not answer a question
├── ServerFault                 a server that we call failed; the text names it
│   ├── Unreachable             it does not respond, is busy, or its command cannot be started
│   ├── Unauthorized            it requires credentials that it was not given
│   │   └── LoginFailed         its authorization server did not grant them
│   ├── ConnectionLost          the connection ended before the response came
│   ├── ResponseTimeout         no response came in time
│   └── MalformedMessage        its message violates the protocol
│       └── MessageTooLong      its message exceeds a limit
├── DeclarationError            a tool, resource or prompt is declared wrongly; for its author to fix
└── SetupError                  a command line, file or environment is wrong; for the operator to fix

Codes are those of revision 2026-07-28; the codecs map them for older clients. A message says what is wrong, what was
received, what is allowed and what to do next. It never contains the text of an unexpected exception.
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
