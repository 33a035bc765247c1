"""A board in a FastAPI application whose sessions survive restarts: uvicorn examples.mounted:app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from pegboard import Board

board = Board("mounted")


@board.tool
def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


mounted = board.asgi(store="sqlite:mounted.db")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with mounted:
        yield


app = FastAPI(lifespan=lifespan)
app.routes.append(mounted)  # type: ignore[arg-type]  # a route by duck typing
