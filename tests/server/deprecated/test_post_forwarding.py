"""POSTs for a stream of another process."""

from __future__ import annotations

import pytest

from pegboard.auth.principal import ANONYMOUS
from pegboard.errors import SessionNotFound
from pegboard.limits import Limits
from pegboard.server.deprecated.post_forwarding import PostForwarding
from pegboard.server.http_types import Answer
from pegboard.stores.cluster import Cluster
from tests.stores import backends
from tests.stores.backends import Clock


async def reject(session: str, version: str | None, body: bytes) -> Answer:
    return Answer(404)


async def test_a_session_id_made_up_for_a_process_that_has_no_such_streams_is_not_found() -> None:
    async with backends.shared(backends.sqlite, Clock(), worker_seconds=100_000) as (one, two):
        here, there = (Cluster(store, Limits(worker_seconds=100_000)) for store in (one, two))
        await here.start()
        await there.start()
        try:
            with pytest.raises(SessionNotFound):
                await PostForwarding(here, reject).forward(f"{there.me}.abc", ANONYMOUS, None, b"{}", ())
        finally:
            await here.close()
            await there.close()
