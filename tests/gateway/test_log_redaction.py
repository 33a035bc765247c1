"""No secret of a configuration is logged while it is served."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from pegboard import Client, Gateway
from pegboard.config.gateway_config import ServerConfig
from pegboard.errors import Unreachable
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


async def test_arguments_that_are_secrets_are_masked_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pegboard")
    code = "import sys; sys.exit(f'I was given {sys.argv[1:]}')"
    args = ["-c", code, "--api-key", KEY, f"--token={KEY}2", "-e", f"DB_PASSWORD={KEY}3", "--verbose", "--port", "80"]
    server = {"command": sys.executable, "args": args}
    file = tmp_path / "gateway.json"
    file.write_text(json.dumps({"toolboxes": {"dev": {"description": "x", "mcpServers": {"keyed": server}}}}))
    gateway = Gateway(file)
    async with Client(gateway):
        await until(lambda: gateway.downstreams[0].state == "failed")
    assert KEY not in caplog.text
    assert "'--api-key', '***', '--token=***', '-e', 'DB_PASSWORD=***', '--verbose', '--port', '80'" in caplog.text


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["npx", "server", "--api-key", "k1"], "npx server --api-key ***"),
        (["npx", "server", "--api-key=k1", "--port=80"], "npx server --api-key=*** --port=80"),
        (["npx", "--token", "--verbose", "x"], "npx --token --verbose x"),
    ],
)
async def test_the_command_of_a_client_is_named_without_its_secrets(command: list[str], shown: str) -> None:
    program = "no-such-program-anywhere"
    with pytest.raises(Unreachable) as failed:
        await Client([program, *command[1:]]).__aenter__()
    assert str(failed.value).startswith(shown.replace("npx", program) + ": ")


async def test_a_key_in_the_url_of_an_unreachable_server_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    away = ServerConfig(name="away", kind="http", url=f"http://127.0.0.1:9/{KEY}/mcp")
    gateway = Gateway(replace(configured(away), secrets=frozenset({KEY})))
    async with Client(gateway):
        await until(lambda: gateway.downstreams[0].state == "failed")
    assert "away: Cannot reach http://127.0.0.1:9/***/mcp" in caplog.text
    assert KEY not in caplog.text
