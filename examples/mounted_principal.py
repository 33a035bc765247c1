"""A board in a FastAPI application, which authenticates the callers itself.

Serve it with `uvicorn examples.mounted_principal:app`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException

from pegboard import Board, Context, Principal

USERS = {"secret-of-ann": "ann"}
board = Board("notes")


@board.tool
def whoami(ctx: Context) -> str:
    """Tell who calls."""
    return ctx.principal.id


def current_user(x_secret: Annotated[str, Header()] = "") -> Principal:
    """The user whose secret a request carries."""
    if x_secret not in USERS:
        raise HTTPException(401, "who are you?")
    return Principal(USERS[x_secret], kind="app")


app = FastAPI()
app.routes.append(board.asgi(principal=Depends(current_user), ws="/ws"))  # type: ignore[arg-type]  # a route by duck typing
