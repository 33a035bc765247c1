"""Logs in with the client of FastMCP, and calls tools."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.auth import OAuth
from mcp.shared.auth import AuthorizationCodeResult
from person import log_in

visits: list[str] = []


class Login(OAuth):
    """The same, with a person in place of a browser."""

    async def redirect_handler(self, authorization_url: str) -> None:
        visits.append(authorization_url)

    async def callback_handler(self) -> Any:
        found = await asyncio.to_thread(log_in, visits[-1], "http://localhost:8766/callback")
        return AuthorizationCodeResult(code=found["code"], state=found["state"], iss=found.get("iss"))


async def main(url: str, *tools: str) -> None:
    async with Client(url, auth=Login(url, callback_port=8766)) as client:
        said = [(await client.call_tool(name)).content[0].text for name in tools]
    print(json.dumps({"said": said, "logins": len(visits)}))


asyncio.run(main(*sys.argv[1:]))
