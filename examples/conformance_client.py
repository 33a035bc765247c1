"""A client that does what each scenario of the official conformance suite asks of one.

    npx @modelcontextprotocol/conformance client --command "python examples/conformance_client.py" --requirements 2026-07-28

The suite names the scenario and the revision by environment variables, and its server by the last argument.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable

from pegboard import Client
from pegboard.client.answers import Elicitation

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


def fill_in(asked: Elicitation) -> dict[str, object]:
    """Say yes to what can be confirmed; every other field gets the default that the form proposes."""
    return {"confirmed": True} if "confirmed" in asked.schema.get("properties", {}) else {}


async def look_around(client: Client) -> None:
    await client.list_tools()


async def add_numbers(client: Client) -> None:
    await client.list_tools()
    await client.call("add_numbers", {"a": 5, "b": 3})


async def take_defaults(client: Client) -> None:
    await client.list_tools()
    await client.call("test_client_elicitation_defaults")


async def reconnect(client: Client) -> None:
    await client.list_tools()
    await client.call("test_reconnection")


async def answer_in_rounds(client: Client) -> None:
    await client.list_tools()
    for tool in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
        await client.call(tool)


async def use_everything(client: Client) -> None:
    await client.list_tools()
    await client.call("test_headers")
    await client.list_resources()
    await client.read("file:///path/to/file%20name.txt")
    await client.list_prompts()
    await client.prompt("test_prompt")


async def mirror_arguments(client: Client) -> None:
    await client.list_tools()
    for one in CONTEXT.get("toolCalls", []):
        await client.call(one["name"], one.get("arguments"))


async def leave_out_invalid_tools(client: Client) -> None:
    names = {tool["name"] for tool in await client.list_tools()}
    if "valid_tool" in names:
        await client.call("valid_tool", {"region": "eu"})


async def echo_schema(client: Client) -> None:
    tools = {tool["name"]: tool for tool in await client.list_tools()}
    await client.call("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"]["inputSchema"]})


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": take_defaults,
    "sse-retry": reconnect,
    "sep-2322-client-request-state": answer_in_rounds,
    "http-standard-headers": use_everything,
    "http-custom-headers": mirror_arguments,
    "http-invalid-tool-headers": leave_out_invalid_tools,
    "json-schema-2020-12-preservation": echo_schema,
}


async def main(url: str) -> None:
    # The suite's servers speak one revision each: where it names one, nothing has to be found out.
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION")
    async with Client(url, name="conformance-client", elicit=fill_in, version=version) as client:
        await SCENARIOS.get(SCENARIO, look_around)(client)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
