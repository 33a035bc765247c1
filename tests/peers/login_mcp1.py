"""Logs in with the official Python client, 1.x, and calls tools."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.auth import OAuthClientMetadata
from person import log_in

REDIRECT = "http://127.0.0.1:8765/callback"


class Memory:
    def __init__(self) -> None:
        self.tokens: Any = None
        self.info: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.info

    async def set_client_info(self, info: Any) -> None:
        self.info = info


async def main(url: str, *tools: str) -> None:
    visits: list[str] = []

    async def visit(address: str) -> None:
        visits.append(address)

    async def come_back() -> tuple[str, str | None]:
        found = await asyncio.to_thread(log_in, visits[-1], REDIRECT)
        return found["code"], found["state"]

    metadata = OAuthClientMetadata(client_name="test", redirect_uris=[REDIRECT], token_endpoint_auth_method="none")
    provider = OAuthClientProvider(url, metadata, Memory(), visit, come_back)
    async with streamablehttp_client(url, auth=provider) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        said = [(await session.call_tool(name, {})).content[0].text for name in tools]
    print(json.dumps({"said": said, "logins": len(visits)}))


asyncio.run(main(*sys.argv[1:]))
