"""Every feature of the protocol on one board, each as small as it can be; also what the conformance suite is run on.

    pegboard run examples/everything.py --http

The names and texts are those the official conformance suite expects of a server.
"""

import asyncio
import base64
import itertools
import json
from typing import Annotated, Any

from pegboard import (
    Accepted,
    Audio,
    Board,
    Context,
    Elicit,
    File,
    Header,
    Image,
    JsonRpcMessage,
    Roots,
    Sample,
    ToolError,
)
from pegboard.errors import InternalFailure

board = Board("everything", version="1.0.0", instructions="A board that shows every feature of the protocol.")

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC")
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==")


# -- what a tool may return ----------------------------------------------------------------------------------------


@board.tool
async def test_simple_text() -> str:
    """Returns text."""
    return "This is a simple text response for testing."


@board.tool
async def test_image_content() -> Image:
    """Returns a picture."""
    return Image(PNG, mime_type="image/png")


@board.tool
async def test_audio_content() -> Audio:
    """Returns a sound."""
    return Audio(WAV, mime_type="audio/wav")


@board.tool
async def test_embedded_resource() -> File:
    """Returns a file."""
    return File(text="This is an embedded resource content.", uri="test://embedded-resource", mime_type="text/plain")


@board.tool
async def test_multiple_content_types() -> list[str | Image | File]:
    """Returns text, a picture and a file."""
    data = File(text='{"test":"data","value":123}', uri="test://mixed-content-resource", mime_type="application/json")
    return ["Multiple content types test:", Image(PNG, mime_type="image/png"), data]


@board.tool
async def test_error_handling() -> str:
    """Fails, in words for the model."""
    raise ToolError("This tool intentionally returns an error for testing")


# -- what a tool may say while it runs -----------------------------------------------------------------------------


@board.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Logs three messages."""
    await ctx.log("info", "Tool execution started")
    await asyncio.sleep(0.05)
    await ctx.log("info", "Tool processing data")
    await asyncio.sleep(0.05)
    await ctx.log("info", "Tool execution completed")
    return "Tool with logging executed successfully"


@board.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Tells how far it is."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100)
        await asyncio.sleep(0.05)
    return "Tool with progress executed successfully"


@board.tool
async def test_logging_tool(ctx: Context) -> str:
    """Logs one message, for a request that asked for logs."""
    await ctx.log("info", "Logging evaluated")
    return "Logging evaluated"


@board.tool
async def test_reconnection(ctx: Context) -> str:
    """Lets its caller hang up and come back for the result."""
    await ctx.close_stream(retry_ms=100)
    await asyncio.sleep(0.15)
    return "Reconnection test completed"


# -- what a tool may ask -------------------------------------------------------------------------------------------


def form(**properties: Any) -> dict[str, Any]:
    """A form whose fields must all be filled in."""
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT = {"type": "string"}
YES_OR_NO = {"type": "boolean"}
NAME, COLOR, CONTEXT = form(name=TEXT), form(color=TEXT), form(context=TEXT)
OK, CONFIRM = form(ok=YES_OR_NO), form(confirm=YES_OR_NO)


@board.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    return f"LLM response: {(await ctx.sample(prompt, max_tokens=100)).text}"


@board.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user."""
    wanted = form(
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    answer = await ctx.elicit(message, wanted)
    return f"User response: action={answer.action}, content={json.dumps(answer.content)}"


@board.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with defaults filled in."""
    wanted = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
    }
    answer = await ctx.elicit("Please review these values", wanted)
    return f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"


@board.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks to choose, in each way a form can offer choices."""
    options = ["option1", "option2", "option3"]
    wanted = {
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {"type": "string", "oneOf": titled("First Option", "Second Option", "Third Option")},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {
                "type": "array",
                "items": {"anyOf": titled("First Choice", "Second Choice", "Third Choice")},
            },
        },
    }
    answer = await ctx.elicit("Please choose", wanted)
    return f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"


def titled(*titles: str) -> list[dict[str, str]]:
    """Values with the names a person sees."""
    return [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, 1)]


@board.tool(requires=["sampling"])
async def test_missing_capability() -> str:
    """Is for clients with a model."""
    return "The client can sample."


@board.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Says something, then asks."""
    await ctx.progress(1, 2, "About to ask")
    answer = await ctx.elicit("Go on?", OK, key="go_on")
    return f"The user said {answer.action}."


@board.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Asks for a name."""
    answer = await ctx.elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {answer.content['name']}!" if isinstance(answer, Accepted) else "Hello, whoever you are!"


@board.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Asks the client's model for a capital."""
    sampled = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {sampled.text}"


@board.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Asks for the client's roots."""
    return "Roots: " + ", ".join(root.uri for root in await ctx.roots(key="client_roots"))


@board.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Keeps something between the question and the answer."""
    kept = await ctx.keep("state", lambda: "state-ok")
    answer = await ctx.elicit("Confirm?", OK, key="confirm")
    return f"{kept}: {answer.action}"


@board.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks three things in one round."""
    answers = await ctx.ask(
        user_name=Elicit("What is your name?", NAME),
        greeting=Sample("Greet the user in a few words.", max_tokens=50),
        client_roots=Roots(),
    )
    name = answers["user_name"].content["name"] if isinstance(answers["user_name"], Accepted) else "you"
    roots = ", ".join(root.uri for root in answers["client_roots"])
    return f"{answers['greeting'].text} {name} works in {roots}"


@board.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks twice, one after the other."""
    first = await ctx.elicit("What is your name?", NAME, key="step1")
    second = await ctx.elicit("What is your favourite colour?", COLOR, key="step2")
    if not isinstance(first, Accepted) or not isinstance(second, Accepted):
        return "Never mind."
    return f"{first.content['name']} likes {second.content['color']}"


@board.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Asks, and refuses a state that is not its own."""
    answer = await ctx.elicit("Confirm?", OK, key="confirm")
    return f"The user said {answer.action}."


@board.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks only what the client can answer."""
    asks: dict[str, Elicit | Sample | Roots] = {}
    if "elicitation" in ctx.client.capabilities:
        asks["user_name"] = Elicit("What is your name?", NAME)
    if "sampling" in ctx.client.capabilities:
        asks["greeting"] = Sample("Say hello.", max_tokens=50)
    if "roots" in ctx.client.capabilities:
        asks["client_roots"] = Roots()
    answers = await ctx.ask(**asks)
    return f"Asked: {', '.join(answers)}"


# -- schemas and headers -------------------------------------------------------------------------------------------

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": TEXT, "city": TEXT}}},
    "properties": {
        "name": TEXT,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": TEXT,
        "email": TEXT,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@board.tool(input_schema=SCHEMA)
async def json_schema_2020_12_tool(request: JsonRpcMessage) -> str:
    """Takes a contact, by a schema that uses much of JSON Schema."""
    return f"Received {json.dumps(request.params)}"


@board.tool
async def test_x_mcp_header(region: Annotated[str, Header("Region")] = "") -> str:  # noqa: PT028 — a tool, not a test
    """Takes an argument that proxies can route by."""
    return f"region={region}"


# -- resources -----------------------------------------------------------------------------------------------------


@board.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """Text that never changes."""
    return "This is the content of the static text resource."


@board.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture that never changes."""
    return PNG


@board.resource("test://template/{id}/data", mime_type="application/json")
async def template_data(id: str) -> dict[str, Any]:  # noqa: A002 — the name in the URI
    """Data for any id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@board.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """Text to subscribe to."""
    return "Watched resource content"


# -- prompts -------------------------------------------------------------------------------------------------------


@board.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@board.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@board.complete("test_prompt_with_arguments", "arg1")
async def suggest_arg1(typed: str) -> list[str]:
    """What arg1 may be."""
    return ["paris", "park", "party"]


@board.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[str | File]:  # noqa: N803 — the suite's name
    """A prompt with a file in it."""
    text = "Embedded resource content for testing."
    return [
        File(text=text, uri=resourceUri, mime_type="text/plain"),
        "Please process the embedded resource above.",
    ]


@board.prompt
async def test_prompt_with_image() -> list[str | Image]:
    """A prompt with a picture in it."""
    return [Image(PNG, mime_type="image/png"), "Please analyze the image above."]


@board.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks the user first."""
    answer = await ctx.elicit("What is it about?", CONTEXT, key="user_context")
    return f"Consider this context: {answer.content['context']}" if isinstance(answer, Accepted) else "No context."


# -- tasks ---------------------------------------------------------------------------------------------------------


@board.tool
async def greet(name: str) -> str:
    """Greets, at once."""
    return f"Hello, {name}!"


@board.tool(task="optional")
async def slow_compute(seconds: float, label: str = "work") -> str:
    """Takes its time; as a task where the client can wait for one."""
    await asyncio.sleep(seconds)
    return f"{label} took {seconds:g} s"


@board.tool(task="required")
async def failing_job() -> str:
    """Fails after a while, as a task."""
    await asyncio.sleep(1)
    raise ToolError("The job failed, as it always does")


@board.tool(task="optional")
async def protocol_error_job() -> str:
    """Ends in an error of the protocol, not of the tool."""
    raise InternalFailure("The job could not be run")


@board.tool(task="optional")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Asks while it runs, and waits for the answer."""
    answer = await ctx.elicit(f"Delete {filename}?", CONFIRM, key="confirm")
    sure = isinstance(answer, Accepted) and answer.content["confirm"]
    return f"Deleted {filename}" if sure else f"Kept {filename}"


@board.tool(task="optional")
async def multi_input(ctx: Context) -> str:
    """Asks two things at once while it runs."""
    answers = await ctx.ask(name=Elicit("Your name?", NAME), sure=Elicit("Are you sure?", CONFIRM))
    told = [answer.content for answer in answers.values() if isinstance(answer, Accepted)]
    return f"Answers: {json.dumps(told)}"


@board.tool(task="required", detach="manual")
async def test_tool_with_task(ctx: Context) -> str:
    """Asks first, then works on as a task."""
    answer = await ctx.elicit("What is your name?", NAME, key="user_name")
    await ctx.detach()
    return f"Hello, {answer.content['name']}!" if isinstance(answer, Accepted) else "Hello, whoever you are!"


# -- what changes while the board is served ------------------------------------------------------------------------

editions = itertools.count(1)


def hang_tool() -> None:
    """Hang the next edition of a tool."""
    board.add(test_simple_text, name="test_dynamic_tool", description=f"Edition {next(editions)} of a tool.")


def hang_prompt() -> None:
    """Hang the next edition of a prompt."""
    board.prompt("test_dynamic_prompt", description=f"Edition {next(editions)} of a prompt.")(test_simple_prompt)


@board.tool
async def test_trigger_tool_change() -> str:
    """Hangs another edition of a tool."""
    board.remove("test_dynamic_tool")
    hang_tool()
    return "The list of tools has changed."


@board.tool
async def test_trigger_prompt_change() -> str:
    """Hangs another edition of a prompt."""
    board.prompts.remove("test_dynamic_prompt")
    hang_prompt()
    return "The list of prompts has changed."


@board.tool
async def test_trigger_resource_update(ctx: Context) -> str:
    """Says that the watched resource has changed."""
    await ctx.resource_changed("test://watched-resource")
    return "The watched resource has changed."


hang_tool()
hang_prompt()


if __name__ == "__main__":
    board.run()
