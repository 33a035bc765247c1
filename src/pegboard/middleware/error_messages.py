"""Changes what errors say to the model, by their codes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from string import Formatter

from msgspec import Struct

from pegboard.call import Call, Done, EncodedResult, Handler, Json, Reply
from pegboard.errors import ERROR, REFUSED, DeclarationError, Refusal, ToolError
from pegboard.hooks.middleware import Middleware
from pegboard.logs.log_lines import log_failure
from pegboard.next_action import NextAction
from pegboard.protocol.content import is_note, joined_text
from pegboard.protocol.json_values import as_object, objects_in
from pegboard.tools.tool_result import PARSE_ERRORS, error_result

OTHER = "*"
"""The code that stands for all others."""
INTERNAL = "internal_error"

_FIELDS = ("message", "tool", "code")
_log = logging.getLogger("pegboard.tools")


class ErrorMessage(Struct, frozen=True):
    """What the model gets for an error.

    text: the message; `{message}`, `{tool}` and `{code}` stand for the original message, the tool and the code.
    steps: what to do, for errors without steps of their own.
    try_tool: tools to call instead or first, for errors without any of their own.
    """

    text: str = "{message}"
    steps: tuple[str, ...] = ()
    try_tool: str | NextAction | tuple[str | NextAction, ...] = ()


class ErrorMessages(Middleware):
    """Changes the errors of tools before the model gets them: their text, the steps to recover, the tools to try.

    `messages` maps codes to an ErrorMessage, or to its text. Codes are those of `ToolError(code=…)`, and of our own
    errors: `invalid_arguments`, `server_failed`, `question_failed`, `internal_error` (an unexpected exception), the
    reasons of limits such as `timeout` and `rate_limit`, and `tool_error` for results without a code. `*` stands for
    all codes without an entry.
    """

    # Outside of everything else, so that other middleware sees the original errors.
    order = -100
    kinds = ("tool",)

    def __init__(self, messages: Mapping[str, str | ErrorMessage]) -> None:
        self._messages = {code: _read_message(code, message) for code, message in messages.items()}

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Run the call, and change its error."""
        try:
            reply = await proceed(call)
        except Refusal:
            raise
        except ToolError as error:
            self._revise(call, error, error.code or "tool_error")
            raise
        except Exception as unexpected:
            if self._find(INTERNAL) is None:
                raise
            error_id = log_failure(_log, "%s failed (%s)", call.name[:200], type(unexpected).__name__, error=unexpected)
            failure = ToolError(f"{call.name[:200]} failed, error id {error_id}", code=INTERNAL)
            self._revise(call, failure, INTERNAL)
            raise failure from unexpected
        result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
        return self._changed(call, result, reply) if result.get("isError") and isinstance(reply, Done) else reply

    def _find(self, code: str) -> ErrorMessage | None:
        return self._messages.get(code) or self._messages.get(OTHER)

    def _revise(self, call: Call, error: ToolError, code: str) -> None:
        message = self._find(code)
        if message is not None:
            text = message.text.format(message=error.problem, tool=call.name, code=code)
            error.revise(
                text, steps=error.steps or message.steps, try_tool=error.try_tool or message.try_tool, code=code
            )

    def _changed(self, call: Call, result: Mapping[str, Json], reply: Done) -> Reply:
        """An error that the tool returned, or a server behind a gateway."""
        blocks = list(objects_in(result.get("content")))
        meta = as_object(result.get("_meta"))
        own = as_object(meta.get(ERROR))
        code = _code_in(meta)
        message = self._find(code)
        if message is None:
            return reply
        error = ToolError(
            message.text.format(message=joined_text(blocks), tool=call.name, code=code),
            code=code,
            # Those of its own are in its text.
            steps=() if "steps" in own else message.steps,
            try_tool=() if "tools" in own else message.try_tool,
        )
        details = {**own, **as_object((error.meta or {}).get(ERROR))}
        changed = as_object(error_result(error.message, {**meta, ERROR: details}).result)
        others = [block for block in blocks if block.get("type") != "text" or is_note(block)]
        content = [*objects_in(changed["content"]), *others]
        return Done({**result, **changed, "content": content}, reply.wrapped, reply.metadata)


def _code_in(meta: Mapping[str, Json]) -> str:
    if PARSE_ERRORS in meta:
        return "invalid_arguments"
    code = as_object(meta.get(ERROR)).get("code") or as_object(meta.get(REFUSED)).get("reason")
    return code if isinstance(code, str) else "tool_error"


def _read_message(code: str, given: str | ErrorMessage) -> ErrorMessage:
    message = ErrorMessage(given) if isinstance(given, str) else given
    try:
        unknown = [
            name for _, name, _, _ in Formatter().parse(message.text) if name is not None and name not in _FIELDS
        ]
    except ValueError as problem:
        raise DeclarationError(
            f"The text for {code!r} cannot be read: {problem}; write a brace as {{{{ or }}}}"
        ) from None
    if unknown:
        raise DeclarationError(
            f"The text for {code!r} contains {{{unknown[0]}}}; use {{message}}, {{tool}} or {{code}}, and {{{{ for a brace"
        )
    return message
