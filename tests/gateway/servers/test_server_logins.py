"""Credentials for servers behind the gateway: got beforehand, kept for each principal, and never asked for in between."""

from __future__ import annotations

import pytest

from pegboard import Client
from pegboard.client.login.storage import MemoryStorage
from pegboard.config.config_keys import AuthConfig
from pegboard.config.gateway_config import ServerConfig
from pegboard.errors import Unauthorized
from pegboard.gateway.servers.server_logins import Logins
from tests.client.login.authorization_server import Person, locked
from tests.client.process_leftovers import nothing_left
from tests.gateway.one_server import behind, call, kept
from tests.gateway.servers.test_downstream import ANN, BOB
from tests.waiting import until

pytestmark = pytest.mark.process


async def test_a_login_beforehand_serves_the_gateway() -> None:
    storage, person = MemoryStorage(), Person()
    async with locked() as server:
        config = ServerConfig(name="far", kind="http", url=server.url)
        async with (
            nothing_left(),
            kept(
                config, login=lambda config, caller: Logins(storage).auth(config, caller.principal if caller else "")
            ) as far,
        ):
            assert far.state == "needs_login"
            assert "pegboard login CONFIG far" in far.problem
            assert far.describe_problem == "needs a login by the operator of this gateway"
            # What `pegboard login` does, in a process of its own.
            async with Client(server.url, auth=Logins(storage, login=person).auth(config)) as client:
                await client.discover()
            await until(lambda: far.state == "ready")
            assert await call(far, "any") == "in"
        assert len(person.visits) == 1


async def test_one_principals_token_is_not_sent_for_another() -> None:
    storage = MemoryStorage()
    async with locked() as server:
        config = ServerConfig(name="far", kind="http", url=server.url, share="principal")
        for principal in ("", "ann"):
            async with Client(server.url, auth=Logins(storage, login=Person()).auth(config, principal)) as client:
                await client.discover()
        async with behind(
            config, login=lambda config, caller: Logins(storage).auth(config, caller.principal if caller else "")
        ) as far:
            assert far.state == "ready"
            before = len(server.shown())
            assert await call(far, "any", caller=ANN) == "in"
            assert set(server.shown()[before:]) == {"Bearer a-token-2"}
            before = len(server.shown())
            with pytest.raises(Unauthorized, match="needs a login"):
                await call(far, "any", caller=BOB)
            # The gateway's own token is shown when it looks whether its own lane is well.
            assert set(server.shown()[before:]) <= {"", "Bearer a-token-1"}


@pytest.mark.parametrize(
    "config",
    [
        ServerConfig(name="x", kind="stdio", command=("x",)),
        ServerConfig(name="x", kind="http", url="http://x", headers={"AUTHORIZATION": "Bearer y"}),
        ServerConfig(name="x", kind="http", url="http://x", auth=AuthConfig(kind="none")),
    ],
)
def test_where_a_token_has_no_place_there_is_none(config: ServerConfig) -> None:
    assert Logins().auth(config) is None
