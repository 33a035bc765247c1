"""A middleware that records the hooks that were called."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from pegboard.call import Call, Json
from pegboard.hooks.middleware import Middleware

Phase: TypeAlias = Literal["before", "after", "error"]


class Step(Struct, frozen=True, kw_only=True):
    """One hook that ran.

    hook: which one: "before", "after" or "error".
    recorder: the name of the recorder.
    tool: the name of the tool or prompt, or the URI of the resource.
    kind: what the request is for: "tool", "prompt", "resource" or "completion".
    arguments: the arguments as sent.
    failed: whether the result is an error.
    result: the result, for "after".
    exception: the exception, for "error".
    elapsed_ms: how long the call took.
    thread: the id of the thread.
    """

    hook: Phase
    recorder: str
    tool: str
    arguments: Any
    kind: str = "tool"
    failed: bool = False
    result: Mapping[str, Json] | None = None
    exception: BaseException | None = None
    elapsed_ms: float | None = None
    thread: int = 0


class Recorder(Middleware):
    """Records a Step for each of its hooks; several may share one list of `steps`, to check their order.

    `name` is in each Step. `fail` maps names of hooks to the exceptions that they raise, after they were recorded.
    """

    def __init__(
        self,
        name: str = "recorder",
        *,
        order: float = 0,
        steps: list[Step] | None = None,
        fail: Mapping[Phase, BaseException] | None = None,
    ) -> None:
        self.name = name
        self.order = order
        self.steps: list[Step] = [] if steps is None else steps
        self.fail = dict(fail or {})

    @property
    def hooks(self) -> list[str]:
        """The names of the hooks that ran, of all recorders that share the list: `["a.before", "b.before", …]`."""
        return [f"{step.recorder}.{step.hook}" for step in self.steps]

    async def before(self, call: Call) -> None:
        self._note("before", call)

    async def after(self, call: Call, result: Mapping[str, Json], elapsed_ms: float) -> None:
        self._note("after", call, failed=call.failed, result=result, elapsed_ms=elapsed_ms)

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        self._note("error", call, exception=exception, elapsed_ms=elapsed_ms)

    def _note(self, hook: Phase, call: Call, **more: Any) -> None:
        self.steps.append(
            Step(
                hook=hook,
                recorder=self.name,
                tool=call.name,
                arguments=call.sent,
                kind=call.kind,
                thread=threading.get_ident(),
                **more,
            )
        )
        if hook in self.fail:
            raise self.fail[hook]
