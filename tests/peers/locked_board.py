"""A board that accepts the tokens of one issuer: ISSUER and PUBLIC_URL name both."""

from __future__ import annotations

import os

from pegboard import Auth, Board, Context, Issuer

board = Board(
    "locked",
    auth=Auth(
        public_url=os.environ["PUBLIC_URL"],
        issuers=[Issuer(os.environ["ISSUER"])],
        scopes={"notes.read"},
        implies={"notes.write": {"notes.read"}},
    ),
)


@board.tool(scopes={"notes.read"})
def whoami(ctx: Context) -> str:
    """The caller and its scopes."""
    return f"{ctx.principal.id} {' '.join(sorted(ctx.principal.scopes))}"


@board.tool(scopes={"notes.write"})
def write(ctx: Context) -> str:
    """What needs another scope."""
    return f"{ctx.principal.id} wrote"
