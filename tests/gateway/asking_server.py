"""A server with one tool for each thing that has to cross a gateway."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pegboard import Accepted, Board, Context, Elicit, Roots, Sample, ToolError, ToolResult
from pegboard.errors import InvalidParams

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@dataclass
class Point:
    x: int
    y: int


def told(answer: Any) -> str:
    return answer.content["name"] if isinstance(answer, Accepted) else answer.action


class Asker(Board):
    """`begun` counts runs of tools, `stopped` names those that were cancelled."""

    def __init__(self) -> None:
        super().__init__("asker", version="1")
        self.begun = 0
        self.stopped: list[str] = []
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()
        for tool in (
            self.add_up, self.ask, self.two_asks, self.ask_twice, self.ask_and_tell, self.tell, self.log, self.wait,
            self.point, self.fail, self.refuse, self.sample, self.roots, self.echo_meta,
            self.ask_then_wait, self.ask_and_refuse, self.ask_while_telling,
        ):  # fmt: skip
            self.add(tool)
        self.add(self.read_only, annotations={"readOnlyHint": True})

    async def add_up(self, a: int, b: int) -> int:
        return a + b

    async def ask(self, ctx: Context, about: str = "you") -> str:
        self.begun += 1
        try:
            return f"Hello {told(await ctx.elicit(f'Who are {about}?', FORM, key='who'))}"
        except asyncio.CancelledError:
            self.stopped.append("ask")
            raise

    async def read_only(self, ctx: Context) -> str:
        self.begun += 1
        return f"Hello {told(await ctx.elicit('Who?', FORM, key='who'))}"

    async def two_asks(self, ctx: Context) -> str:
        answers = await ctx.ask(a=Elicit("First?", FORM), b=Elicit("Second?", FORM))
        return f"{told(answers['a'])} and {told(answers['b'])}"

    async def ask_twice(self, ctx: Context) -> str:
        first = told(await ctx.elicit("First?", FORM, key="first"))
        second = told(await ctx.elicit(f"After {first}?", FORM, key="second"))
        return f"{first}, then {second}"

    async def ask_and_tell(self, ctx: Context) -> str:
        await ctx.progress(1, 3, "before")
        name = told(await ctx.elicit("Who?", FORM, key="who"))
        await ctx.progress(2, 3, "after")
        return name

    async def ask_while_telling(self, ctx: Context) -> str:
        asking = asyncio.ensure_future(ctx.elicit("Who?", FORM, key="who"))
        await self.go_on.wait()
        for step in (1, 2, 3):
            await ctx.progress(step, 3)
        self.waiting.set()
        return told(await asking)

    async def tell(self, ctx: Context) -> str:
        for step in (1, 2, 3):
            await ctx.progress(step, 3, f"step {step}")
        return "told"

    async def log(self, ctx: Context) -> str:
        await ctx.log("info", "much")
        await ctx.log("warning", "little", logger="server")
        return "logged"

    async def wait(self) -> str:
        self.waiting.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.stopped.append("wait")
            raise
        return "went on"

    async def ask_then_wait(self, ctx: Context) -> str:
        await ctx.elicit("Who?", FORM, key="who")
        try:
            return await self.wait()
        except asyncio.CancelledError:
            self.stopped[:] = ["ask_then_wait"]
            raise

    async def ask_and_refuse(self, ctx: Context) -> str:
        raise InvalidParams(f"not {told(await ctx.elicit('Who?', FORM, key='who'))}", {"hint": "otherwise"})

    async def point(self) -> Point:
        return Point(1, 2)

    async def fail(self) -> str:
        raise ToolError("it did not work")

    async def refuse(self) -> str:
        raise InvalidParams("not like this", {"hint": "otherwise"})

    async def sample(self, ctx: Context) -> str:
        return (await ctx.ask(said=Sample("Say hello.", max_tokens=10)))["said"].text

    async def roots(self, ctx: Context) -> str:
        return ", ".join(root.uri for root in (await ctx.ask(where=Roots()))["where"])

    async def echo_meta(self, ctx: Context) -> ToolResult:
        return ToolResult("seen", meta={"example.org/back": {"deep": [1, 2]}})
