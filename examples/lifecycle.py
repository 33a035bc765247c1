"""The lifecycle of a call: logging, token counting, custom timing, validation, errors, and their order."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from pegboard import (
    Board,
    Cardinality,
    Client,
    Middleware,
    Parameter,
    Tool,
    ToolError,
    ToolExecutionContext,
    ToolResult,
    ValueKind,
)
from pegboard.middleware import Call, Handler, Logging, Reply, TokenCount

Grade = Literal["fast", "normal", "slow", "failed"]


class GradedTiming(Middleware):
    """Grades calls by duration and logs slow ones."""

    order = 20  # between logging (10) and token counting (100)

    def __init__(self, fast_ms: float = 20, slow_ms: float = 100) -> None:
        self.fast_ms, self.slow_ms = fast_ms, slow_ms
        self.grades: Counter[Grade] = Counter()
        self.log = logging.getLogger("lifecycle.timing")

    async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
        grade = self.grade(elapsed_ms)
        self.grades[grade] += 1
        if grade == "slow":
            self.log.warning("%s was slow: %.0f ms", call.name, elapsed_ms)

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        self.grades["failed"] += 1
        self.log.warning("%s failed after %.0f ms: %s", call.name, elapsed_ms, type(exception).__name__)

    def grade(self, elapsed_ms: float) -> Grade:
        if elapsed_ms <= self.fast_ms:
            return "fast"
        return "normal" if elapsed_ms <= self.slow_ms else "slow"


class OpeningHours(Middleware):
    """Rejects calls before they run; the message is for the model."""

    order = 5  # infrastructure comes first

    def __init__(self) -> None:
        self.open = True

    async def before(self, call: Call) -> None:
        if not self.open:
            raise ToolError(f"{call.name} is closed now; try again tomorrow")


async def trimmed(call: Call, proceed: Handler) -> Reply:
    """Strips whitespace around string arguments."""
    arguments = {name: value.strip() if isinstance(value, str) else value for name, value in call.arguments.items()}
    return await proceed(call.with_arguments(arguments))


timing, tokens, hours = GradedTiming(), TokenCount(), OpeningHours()


class LifecycleExample(Tool):
    """Says a text after a while, or fails on request."""

    name = "lifecycle_example"
    parameters = (
        Parameter("text", ValueKind.STRING, description="What to say", example="hello"),
        Parameter(
            "delay_ms",
            ValueKind.INTEGER,
            cardinality=Cardinality.OPTIONAL,
            required=False,
            description="How long to think first",
        ),
        Parameter(
            "fail",
            ValueKind.BOOLEAN,
            cardinality=Cardinality.OPTIONAL,
            required=False,
            description="Whether to fail instead",
        ),
    )
    middleware = (timing, tokens)

    async def execute(self, context: ToolExecutionContext) -> ToolResult:
        arguments = context.request.arguments
        await asyncio.sleep(arguments.get("delay_ms", 0) / 1000)
        if arguments.get("fail"):
            raise RuntimeError("it was asked to fail")
        return ToolResult(f"You said: {arguments['text']}")


board = Board("lifecycle")
board.use(Logging("lifecycle.calls"), hours)
board.use(trimmed, order=60)
board.add(LifecycleExample())


async def main() -> None:
    async with Client(board) as client:
        for arguments in (
            {"text": " hello "},
            {"text": "after a while", "delay_ms": 150},
            {"text": "never", "fail": True},
            {"delay_ms": "soon"},
        ):
            print((await client.call("lifecycle_example", arguments)).text)
        hours.open = False
        print((await client.call("lifecycle_example", {"text": "hello?"})).text)
        hours.enabled = False
        print((await client.call("lifecycle_example", {"text": "hello!"})).text)
    print(dict(timing.grades), tokens.total)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)-7s %(name)-17s %(message)s")
    asyncio.run(main())
