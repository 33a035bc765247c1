"""Records the calls of tools in a file, from which a fake server replays them."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from pegboard.call import Call, Done, EncodedResult, Handler, Json, Reply
from pegboard.errors import SetupError, ToolError
from pegboard.hooks.middleware import Middleware
from pegboard.tools.tool import Tool
from pegboard.tools.tool_result import error_result


class RecordedCall(Struct, frozen=True):
    """One call: the name of the tool, the arguments as sent, and the result."""

    tool: str
    arguments: Json
    result: dict[str, Json]


class RecordedCalls(Struct, frozen=True):
    """The contents of a recording: the definitions of the tools, and the calls in the order of their ends."""

    tools: list[dict[str, Json]]
    calls: list[RecordedCall]


class Recording(Middleware):
    """Records every call of the tools that it is attached to, and writes them to the file at `path` when the board stops.

    The file is JSON, and holds arguments and results as they are: check it for secrets before you commit it. A call that
    ends with an unexpected exception, or with a question to the caller, is not recorded.
    """

    # Outermost, so that it records what the caller gets.
    order = -1000
    kinds = ("tool",)

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.calls: list[RecordedCall] = []
        self._tools: dict[str, dict[str, Json]] = {}

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Run the call and keep its result."""
        try:
            reply = await proceed(call)
        except ToolError as error:
            self._keep(call, error_result(error.message, error.meta))
            raise
        if isinstance(reply, Done):
            self._keep(call, reply)
        return reply

    def _keep(self, call: Call, reply: Done) -> None:
        if isinstance(call.tool, Tool):
            result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
            self._tools.setdefault(call.tool.name, call.tool.definition())
            self.calls.append(RecordedCall(call.tool.name, call.sent, dict(result)))

    async def stop(self) -> None:
        """Write the file."""
        self.save()

    def save(self) -> None:
        """Write the file with the calls so far."""
        recorded = RecordedCalls(list(self._tools.values()), self.calls)
        self.path.write_bytes(msgspec.json.format(msgspec.json.encode(recorded), indent=2) + b"\n")


def read_recording(path: str | Path) -> RecordedCalls:
    """The contents of a recording; SetupError if the file cannot be read."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=RecordedCalls)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise SetupError(f"{path} is not a recording: {problem}") from None
