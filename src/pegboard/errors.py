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
│   │       ├── QuotaExceeded   -32603  the caller uses more than its quota; retry later
│   │       └── StoreDown       -32603  the store cannot be reached or written; retry later
│   ├── HeaderMismatch          -32020  the HTTP headers and the body disagree
│   ├── MissingCapability       -32021  the client did not declare what the call needs
│   ├── UnsupportedVersion      -32022  a protocol revision we do not speak
│   │   └── SessionsUnsupported -32022  a revision that needs sessions, where there are none
│   ├── StreamError             -32000  a stream breaks its rules, or its sender stopped
│   ├── AccessDenied            -32600  the rules do not allow the caller what it asks for
│   │   └── InsufficientScope   -32600  the caller needs scopes that its credentials do not have
│   ├── SessionRequired         -32602  a legacy request that names no session
│   └── SessionNotFound         -32001  a session that ended, expired or belongs to another principal
├── ToolError                   a tool's error message for the model: an `isError` result
│   ├── InvalidArguments        the arguments are wrong; with the problems as data
│   ├── DelegationFailed        the server behind a gateway failed the call
│   ├── LimitReached            a limit, budget or deadline is exceeded; says when to retry
│   │   └── NotApproved         a person has to approve the call first, or has refused it
│   └── QuestionFailed          the caller could not answer a question
├── ServerFault                 a server that we call failed; the text names it
│   ├── Unreachable             it does not respond, is busy, or its command cannot be started
│   ├── Unauthorized            it requires credentials that it was not given
│   │   └── LoginFailed         its authorization server did not grant them
│   │       └── LoginRequired   its user has to log in, and is not here
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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pegboard.next_action import NextAction, NextActions, read_actions

__all__ = [
    "AccessDenied",
    "Busy",
    "ConnectionLost",
    "DeclarationError",
    "DelegationFailed",
    "DuplicateRequestId",
    "HeaderMismatch",
    "InsufficientScope",
    "InternalFailure",
    "InvalidArguments",
    "InvalidParams",
    "InvalidRequest",
    "LimitReached",
    "LoginFailed",
    "LoginRequired",
    "MalformedMessage",
    "MessageTooLong",
    "MethodNotFound",
    "MissingCapability",
    "NotApproved",
    "ParseFailure",
    "PegboardError",
    "QuestionFailed",
    "QuotaExceeded",
    "Refusal",
    "ResourceNotFound",
    "ResponseTimeout",
    "ServerFault",
    "SessionNotFound",
    "SessionRequired",
    "SessionsUnsupported",
    "SetupError",
    "StoreDown",
    "StreamError",
    "ToolError",
    "Unauthorized",
    "UnknownTool",
    "Unreachable",
    "UnsupportedVersion",
]

REFUSED = "dev.pegboard/refused"
ERROR = "dev.pegboard/error"


class PegboardError(Exception):
    """The base class of all errors that Pegboard raises."""


class Refusal(PegboardError):
    """The request is answered with a JSON-RPC error.

    `code` is the JSON-RPC error code, `status` the HTTP status, `data` the member `data` of the error, and `retry_after`
    the number of seconds after which the client can retry.
    """

    code: int = -32603
    status: ClassVar[int] = 200

    def __init__(self, message: str, data: Any = None, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        self.retry_after = retry_after
        self.request_id: str | int | None = None

    @property
    def http_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers that the error adds to a response over HTTP."""
        return () if self.retry_after is None else ((b"retry-after", b"%d" % self.retry_after),)


class ParseFailure(Refusal):
    """The bytes of a request are not acceptable JSON."""

    code, status = -32700, 400


class InvalidRequest(Refusal):
    """A message is JSON, but not a request of this protocol."""

    code, status = -32600, 400


class DuplicateRequestId(InvalidRequest):
    """A request has the id of another request that is still running."""

    status = 409


class MethodNotFound(Refusal):
    """The method does not exist in this revision, or this server does not support it."""

    code, status = -32601, 404


class InvalidParams(Refusal):
    """The parameters of a method are wrong, or name something that does not exist."""

    code, status = -32602, 400


class UnknownTool(InvalidParams):
    """No tool has this name; the message suggests similar names."""


class ResourceNotFound(InvalidParams):
    """No resource has this URI; raise it in a resource function for an item that does not exist."""

    def __init__(self, uri: str, reason: str = "") -> None:
        super().__init__(f"Resource not found: {uri[:200]}{f'; {reason}' if reason else ''}", {"uri": uri})


class InternalFailure(Refusal):
    """The server failed; the log has the details."""

    code, status = -32603, 200


class Busy(InternalFailure):
    """A limit of the server is reached; the client can retry later."""

    status = 503


class QuotaExceeded(Busy):
    """The caller uses more than its quota.

    message: what is exceeded, and when to retry.
    reason: the exceeded amount, such as `rate` or `calls`.
    retry_after: the number of seconds after which the client can retry.
    policy: for an amount per period, the amount and the seconds of the period.
    """

    status = 429

    def __init__(self, message: str, reason: str, retry_after: int, policy: tuple[int, int] | None = None) -> None:
        super().__init__(message, {"reason": reason, "retryAfter": retry_after}, retry_after=retry_after)
        self.reason = reason
        self.policy = policy

    @property
    def http_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Retry-After, and the fields of RateLimit for an amount per period."""
        if self.policy is None:
            return super().http_headers
        name = self.reason.encode()
        return (
            *super().http_headers,
            (b"ratelimit-policy", b'"%b";q=%d;w=%d' % (name, *self.policy)),
            (b"ratelimit", b'"%b";r=0;t=%d' % (name, self.retry_after or 0)),
        )


class StoreDown(Busy):
    """The store cannot be reached or written; the client can retry later."""


class HeaderMismatch(Refusal):
    """The HTTP headers and the body of a request disagree."""

    code, status = -32020, 400


class MissingCapability(Refusal):
    """The client did not declare a capability that the call needs."""

    code, status = -32021, 400

    def __init__(self, message: str, required: Mapping[str, Any]) -> None:
        super().__init__(message, {"requiredCapabilities": dict(required)})


class UnsupportedVersion(Refusal):
    """The request uses a protocol revision that the server does not support."""

    code, status = -32022, 400

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        listed = ", ".join(supported)
        super().__init__(
            f"Unsupported protocol version {requested[:40]!r}: use one of {listed}",
            {"requested": requested, "supported": list(supported)},
        )


class StreamError(Refusal):
    """A stream breaks the rules of streams, or its sender stopped."""

    code, status = -32000, 400


class SessionsUnsupported(UnsupportedVersion):
    """The request uses a revision that needs sessions, and this endpoint has none."""

    def __init__(self, reason: str, requested: str, supported: Sequence[str]) -> None:
        super().__init__(requested, supported)
        self.message = reason


class AccessDenied(Refusal):
    """The rules of the server do not allow the caller what it asks for."""

    code, status = -32600, 403


class InsufficientScope(AccessDenied):
    """The caller needs scopes that its credentials do not have; `scopes` are all that the operation needs.

    `resource_metadata` is the URL of the metadata of the endpoint: `call.caller.resource_metadata`.
    """

    def __init__(self, message: str, scopes: Iterable[str], resource_metadata: str = "") -> None:
        self.scopes = tuple(sorted(scopes))
        self.resource_metadata = resource_metadata
        super().__init__(message, {"error": "insufficient_scope", "scope": " ".join(self.scopes)})

    @property
    def http_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """ "error, scope, resource_metadata (for consistency with 401 responses)" (Runtime Insufficient Scope Errors)"""
        challenge = f'Bearer error="insufficient_scope", scope="{" ".join(self.scopes)}"'
        if self.resource_metadata:
            challenge += f', resource_metadata="{self.resource_metadata}"'
        return ((b"www-authenticate", challenge.encode("ascii", "replace")),)


class SessionRequired(Refusal):
    """A legacy request does not name its session."""

    code, status = -32602, 400


class SessionNotFound(Refusal):
    """The session ended, expired or belongs to another principal."""

    code, status = -32001, 404


class ToolError(PegboardError):
    """Raise it in a tool: the model gets the message as an `isError` result.

    code: a word for programs, such as "NOT_FOUND".
    steps: what the model can do about it, in order; added to the message as a numbered list.
    try_tool: the tool to call instead or first: its name, a NextAction, or several of them; added to the message.
    meta: the `_meta` of the result. Code, steps and tools are added to it as `dev.pegboard/error`.

    `message` is the whole text for the model, `problem` the text without steps and tools.
    """

    code: str = ""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        steps: str | Iterable[str] = (),
        try_tool: NextActions = (),
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.meta = meta
        if code or (meta and ERROR in meta):
            self.code = code or _code_in(meta)
        self.revise(message, steps=steps, try_tool=try_tool, code=code)

    def revise(
        self, problem: str, *, steps: str | Iterable[str] = (), try_tool: NextActions = (), code: str = ""
    ) -> None:
        """Replace the `problem`, `steps`, `try_tool` and `code` that the model gets; the rest of `meta` stays."""
        self.problem = self.message = problem
        self.steps = (steps,) if isinstance(steps, str) else tuple(steps)
        self.try_tool = read_actions(try_tool)
        if self.steps:
            listed = "".join(f"\n{number}. {step}" for number, step in enumerate(self.steps, 1))
            self.message = f"{self.message}\nWhat to do:{listed}"
        if self.try_tool:
            self.message = f"{self.message}\n{describe_tools(self.try_tool)}"
        self.args = (self.message,)
        parts = {"code": code, "steps": list(self.steps), "tools": [action.as_json() for action in self.try_tool]}
        given = {name: value for name, value in parts.items() if value}
        if given:
            self.meta = {**(self.meta or {}), ERROR: given}


def describe_tools(actions: Sequence[NextAction]) -> str:
    """The line of an error that names the tools to try."""
    return f"{'Tools' if len(actions) > 1 else 'Tool'} to try: {'; '.join(map(str, actions))}"


def _code_in(meta: Mapping[str, Any] | None) -> str:
    error = (meta or {}).get(ERROR)
    code = error.get("code") if isinstance(error, Mapping) else None
    return code if isinstance(code, str) else ""


class InvalidArguments(ToolError):
    """The arguments of a tool call are wrong: the message is for the model, `errors` (ParseError) for programs."""

    code = "invalid_arguments"

    def __init__(self, message: str, errors: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.errors = errors


class DelegationFailed(ToolError):
    """The server behind a gateway failed to answer the call; errors that the server returned itself stay as they are."""

    code = "server_failed"


class LimitReached(ToolError):
    """A limit, a budget, a deadline or a circuit breaker rejected the call.

    `message` is for the model. `_meta["dev.pegboard/refused"]` of the result has the `reason`, `retry_after` in seconds
    as `retryAfter`, and the `figures` of the limit.
    """

    def __init__(self, message: str, reason: str, *, retry_after: float | None = None, **figures: Any) -> None:
        refused: dict[str, Any] = {"reason": reason, **figures}
        if retry_after is not None:
            refused["retryAfter"] = retry_after
        super().__init__(message, meta={REFUSED: refused})
        self.code = self.reason = reason
        self.retry_after = retry_after


class NotApproved(LimitReached):
    """A person has to approve the call before it can run, or has refused it; the message says which and what to do."""


class QuestionFailed(ToolError):
    """The caller could not answer a question, or the question could not reach it."""

    code = "question_failed"


class ServerFault(PegboardError):
    """A server that the client calls failed; the message names the server."""


class Unreachable(ServerFault):
    """The server did not process the request, so it can be retried: after `retry_after` seconds, if that is known."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unauthorized(ServerFault):
    """The server answered 401 or 403; `challenge` is its WWW-Authenticate header."""

    def __init__(self, message: str, status: int, challenge: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.challenge = challenge


class LoginFailed(Unauthorized):
    """The login did not produce credentials.

    `message` says why, `reason` is the OAuth error code, if there is one; `status` and `challenge` are those of the
    response that required the login.
    """

    def __init__(self, message: str, status: int = 401, challenge: str = "", *, reason: str = "") -> None:
        super().__init__(message, status, challenge)
        self.reason = reason


class LoginRequired(LoginFailed):
    """Only a person can log in to the server, and that person is not here."""


class ConnectionLost(ServerFault):
    """The connection ended after the request was sent; the server may have processed it."""


class ResponseTimeout(ServerFault, TimeoutError):
    """The server did not answer before the deadline; the request was cancelled."""


class MalformedMessage(ServerFault):
    """A message of the server violates the protocol."""


class MessageTooLong(MalformedMessage):
    """A message of the server is longer than the limit."""


class DeclarationError(PegboardError):
    """A tool, resource or prompt is declared wrongly; the message names the place and the fix."""


class SetupError(PegboardError):
    """A command line, a file or the environment is wrong; the message names the key and the fix."""
