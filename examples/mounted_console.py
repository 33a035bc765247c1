"""A board with its console in an application that knows its users: run it with uvicorn, and open /console/."""

from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI

from pegboard import Board, Principal

board = Board("orders")


@board.tool
def find_order(number: int) -> str:
    """Find an order by its number."""
    return f"order {number}: two chairs"


def current_user(scope: MutableMapping[str, Any]) -> Principal:
    """Your application decides: read its session, its token or its user here."""
    return Principal("ann", scopes=frozenset({"console.read"}))


mounted = board.asgi(principal=current_user, console=True)
app = FastAPI()
app.routes.append(mounted)  # type: ignore[arg-type]  # a route by duck typing
