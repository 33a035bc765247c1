"""Use servers that require a login: as a user, or as a program."""

import asyncio
import os
import sys
from pathlib import Path

from pegboard import Client, ClientCredentials, OAuth
from pegboard.client import ClientAuth, FileStorage, Login

FOLDER = Path.home() / ".local" / "state" / "pegboard-example" / "logins"


def as_a_person(login: Login | None = None) -> OAuth:
    """Opens a browser when a server requires a login; the token is stored and reused."""
    return OAuth(login=login, storage=FileStorage(FOLDER, os.environ.get("LOGIN_SECRET")), client_name="My agent")


def as_a_program(client_id: str, secret: str) -> ClientCredentials:
    return ClientCredentials(client_id, secret, scopes=["tools"])


async def use(url: str, auth: ClientAuth) -> list[str]:
    async with Client(url, auth=auth) as client:
        return [tool["name"] for tool in await client.list_tools()]


if __name__ == "__main__":
    print(asyncio.run(use(sys.argv[1], as_a_person())))
