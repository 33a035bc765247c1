"""Logs in with the official Python client, 2.x, and calls tools."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
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


async def main(url: str, mode: str, *tools: str) -> None:
    visits: list[str] = []

    async def visit(address: str) -> None:
        visits.append(address)

    async def come_back() -> AuthorizationCodeResult:
        found = await asyncio.to_thread(log_in, visits[-1], REDIRECT)
        return AuthorizationCodeResult(code=found["code"], state=found["state"], iss=found.get("iss"))

    metadata = OAuthClientMetadata(client_name="test", redirect_uris=[REDIRECT], token_endpoint_auth_method="none")
    provider = OAuthClientProvider(url, metadata, Memory(), visit, come_back)
    async with (
        httpx2.AsyncClient(auth=provider, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        said = [(await client.call_tool(name, {})).content[0].text for name in tools]
    print(json.dumps({"said": said, "logins": len(visits)}))


asyncio.run(main(*sys.argv[1:]))
