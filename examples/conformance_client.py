"""A client that does what each scenario of the official conformance suite asks of one.

    npx @modelcontextprotocol/conformance client --command "python examples/conformance_client.py" --requirements 2026-07-28

The suite names the scenario and the revision by environment variables, and its server by the last argument.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from urllib.parse import urlencode, urlsplit

from pegboard import Assertion, Client, ClientCredentials, OAuth
from pegboard.client import ClientAuth, Elicitation, Redirect

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


def fill_in(asked: Elicitation) -> dict[str, object]:
    """Say yes to what can be confirmed; every other field gets the default that the form proposes."""
    return {"confirmed": True} if "confirmed" in asked.schema.get("properties", {}) else {}


class Headless:
    """Logs in without a browser: the suite's authorization servers send everybody straight back."""

    uri = "http://localhost:7333/callback"

    @asynccontextmanager
    async def opened(self, registered: str | None) -> AsyncIterator[Redirect]:
        yield self

    async def visit(self, url: str) -> str:
        return await asyncio.to_thread(self._visit, url)

    def _visit(self, url: str) -> str:
        parts = urlsplit(url)
        connection = HTTPConnection(parts.netloc, timeout=10)
        try:
            connection.request("GET", f"{parts.path}?{parts.query}")
            return connection.getresponse().headers["Location"]
        finally:
            connection.close()


def exchange(issuer: str, resource: str) -> str:
    """What a company's identity provider says for who is logged in there (RFC 8693)."""
    kind = "urn:ietf:params:oauth:token-type:"
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": kind + "id-jag",
        "subject_token": CONTEXT["idp_id_token"],
        "subject_token_type": kind + "id_token",
        "client_id": CONTEXT["idp_client_id"],
        "audience": issuer,
        "resource": resource,
    }
    parts = urlsplit(CONTEXT["idp_token_endpoint"])
    connection = HTTPConnection(parts.netloc, timeout=10)
    try:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", parts.path, urlencode(form), headers)
        return str(json.load(connection.getresponse())["access_token"])
    finally:
        connection.close()


def credentials() -> ClientAuth:
    """How this scenario wants us to get a token."""
    match SCENARIO:
        case "auth/client-credentials-jwt":
            key, algorithm = CONTEXT["private_key_pem"], CONTEXT["signing_algorithm"]
            return ClientCredentials(CONTEXT["client_id"], private_key=key, algorithm=algorithm)
        case "auth/client-credentials-basic":
            return ClientCredentials(CONTEXT["client_id"], CONTEXT["client_secret"])
        case "auth/wif-jwt-bearer":
            return Assertion(CONTEXT["client_id"], CONTEXT["valid_jwt"])
        case "auth/enterprise-managed-authorization":
            return Assertion(CONTEXT["client_id"], exchange, client_secret=CONTEXT["client_secret"])
        case _:
            return OAuth(
                login=Headless(),
                client_id=CONTEXT.get("client_id"),
                client_secret=CONTEXT.get("client_secret"),
                client_metadata_url="https://conformance-test.local/client-metadata.json",
                issuer=CONTEXT.get("issuer"),
            )


async def look_around(client: Client) -> None:
    await client.list_tools()


async def use_what_is_locked(client: Client) -> None:
    await client.list_tools()
    await client.call("test-tool")


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
    locked = SCENARIO.startswith("auth/")
    auth = credentials() if locked else None
    async with Client(url, name="conformance-client", elicit=fill_in, version=version, auth=auth) as client:
        await SCENARIOS.get(SCENARIO, use_what_is_locked if locked else look_around)(client)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
