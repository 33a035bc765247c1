"""A board or gateway with its console, served over HTTP in the loop of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from msgspec import Struct

from pegboard import Board, Gateway
from pegboard.console.board_subject import BoardSubject
from pegboard.console.console import Console
from pegboard.console.gateway_subject import GatewaySubject
from pegboard.server.http.listener import listen
from pegboard.server.http_serving import make_endpoint
from pegboard.server.serving_options import resolve_options


class ServedConsole(Struct):
    """Where a console is served."""

    link: str
    base: str
    mcp: str
    cookie: str
    csrf: str


@asynccontextmanager
async def serving_console(served: Board | Gateway, **options: Any) -> AsyncIterator[ServedConsole]:
    console = Console(GatewaySubject(served) if isinstance(served, Gateway) else BoardSubject(served), **options)
    endpoint = make_endpoint(served, resolve_options({}, {}), None)
    await served.start()
    server = await listen(endpoint, served.limits)
    try:
        mcp = f"http://127.0.0.1:{server.port}/mcp"
        link = console.link(mcp)
        async with httpx.AsyncClient(trust_env=False) as browser:
            entered = await browser.get(link)
            csrf = (await browser.get(f"{mcp.removesuffix('/mcp')}/console/api/me")).json()["csrf"]
        cookie = entered.headers["set-cookie"].partition(";")[0]
        yield ServedConsole(link, mcp.removesuffix("/mcp"), mcp, cookie, csrf)
    finally:
        await server.close()
        await served.stop()
