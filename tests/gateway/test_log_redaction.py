"""No secret of a configuration is logged while it is served."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from pegboard import Client, Gateway
from pegboard.config.gateway_config import ServerConfig
from tests.gateway.test_gateway import configured
from tests.waiting import until

KEY = "a-key-that-nobody-sees"


@pytest.mark.parametrize("logger", ["pegboard.gateway", "pegboard.client", "pegboard.client.websocket"])
async def test_what_is_secret_is_hidden_in_texts_and_tracebacks(logger: str, caplog: pytest.LogCaptureFixture) -> None:
    config = replace(configured(), secrets=frozenset({KEY}))
    gateway = Gateway(config)
    await gateway.start()
    log = logging.getLogger(logger)
    try:
        raise ValueError(f"not with {KEY}")
    except ValueError:
        log.exception("failed by %s and %d", KEY, 7)
    await gateway.reload(config, replace(config, secrets=frozenset({"another-key"})))
    log.warning("%s or another-key", KEY)
    await gateway.stop()
    assert KEY not in caplog.text
    assert "failed by *** and 7" in caplog.text
    assert "not with ***" in caplog.text
    assert "*** or ***" in caplog.text
    log.warning("%s", KEY)
    assert KEY in caplog.text


async def test_a_url_with_a_key_in_it_is_not_told_when_its_server_is_away(caplog: pytest.LogCaptureFixture) -> None:
    away = ServerConfig(name="away", kind="http", url=f"http://127.0.0.1:9/{KEY}/mcp")
    gateway = Gateway(replace(configured(away), secrets=frozenset({KEY})))
    async with Client(gateway):
        await until(lambda: gateway.downstreams[0].state == "failed")
    assert "away: Cannot reach http://127.0.0.1:9/***/mcp" in caplog.text
    assert KEY not in caplog.text
