"""What a type checker sees of questions, of a call and of a client; `reveal_type` lines are judged by test_typing.py."""

from dataclasses import dataclass
from typing import Literal, reveal_type

from pegboard import Accepted, Board, Client, Context
from pegboard.middleware import Call, Middleware

board = Board("typed")


@dataclass
class Trip:
    where: str
    days: int = 7


@board.tool
async def book(ctx: Context) -> str:
    trip = await ctx.elicit("Where to?", Trip)
    if isinstance(trip, Accepted):
        reveal_type(trip)  # Revealed type is "pegboard.asking.questions.Accepted[questions.Trip]"
        return trip.content.where
    reveal_type(trip)  # Revealed type is "pegboard.asking.questions.Declined | pegboard.asking.questions.Cancelled"
    sure = await ctx.elicit("Sure?", bool)
    if isinstance(sure, Accepted):
        reveal_type(sure.content)  # Revealed type is "bool"
    form = await ctx.elicit("Fill in", {"type": "object", "properties": {"a": {"type": "string"}}})
    if isinstance(form, Accepted):
        reveal_type(form.content)  # Revealed type is "dict[str, Any]"
    size = await ctx.elicit("Which?", Literal["small", "large"])
    if isinstance(size, Accepted):
        reveal_type(size.content)  # Revealed type is "Any"
    await ctx.elicit("Pay here", url="https://example.com/pay", key="pay")
    reveal_type((await ctx.sample("Shorten this", max_tokens=50)).text)  # Revealed type is "str"
    reveal_type(await ctx.roots())  # Revealed type is "list[pegboard.asking.questions.Root]"
    await ctx.sample("Shorten this", max_token=50)  # error: no option is called so
    ctx.elicit("Sure?", bool)  # error: not awaited
    return ""


class Watch(Middleware):
    async def before(self, call: Call) -> None:
        if call.tool is not None:
            reveal_type(call.tool.category)  # Revealed type is "str"
            print(call.tool.categorie)  # error: no such attribute
        reveal_type(call.arguments.get("a"))  # Revealed type is "Any | None"
        reveal_type([one.code for one in call.warnings])  # Revealed type is "list[str]"


async def use(client: Client) -> None:
    for tool in await client.list_tools():
        reveal_type(tool["name"])  # Revealed type is "str"
        reveal_type(tool.get("x-field-of-this-server"))  # Revealed type is "object"
        print(tool["inputschema"])  # error: no such field
    for prompt in await client.list_prompts():
        reveal_type([argument["name"] for argument in prompt.get("arguments", ())])  # Revealed type is "list[str]"
    reveal_type((await client.read("notes://one"))[0].get("text", ""))  # Revealed type is "str"
    reveal_type([one["uri"] for one in await client.list_resources()])  # Revealed type is "list[str]"
    reveal_type([one["uriTemplate"] for one in await client.list_templates()])  # Revealed type is "list[str]"
    reveal_type([one["content"]["type"] for one in await client.prompt("greet")])  # Revealed type is "list[str]"
    reveal_type([one.get("text", "") for one in (await client.call("add")).content])  # Revealed type is "list[str]"
