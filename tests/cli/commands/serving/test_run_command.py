"""`pegboard run`: flags, the environment, the first lines."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pegboard import Auth, Board, Client
from pegboard.cli.arguments.serving_flags import add_flags, read_options
from pegboard.cli.commands.serving.run_command import announce
from pegboard.logs.log_lines import set_up_logging
from pegboard.server.serving_options import ServingOptions, resolve_options
from tests.server_processes import PEGBOARD, HttpChild, StdioChild

pytestmark = pytest.mark.process


def options(*words: str) -> ServingOptions:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_options(parser.parse_args(words))


def test_without_flags_every_option_has_its_default() -> None:
    assert options() == resolve_options({}, {})


def test_every_flag_sets_its_option() -> None:
    words = "--http --host ::1 --port 8000 --uds /tmp/s --public --no-auth --tls-cert c --tls-key k --path-prefix /p --no-websocket"
    more = "--trusted-proxy 10.0.0.1 --trusted-proxy 10.0.0.2 --cors https://a.example --allow-host b.example"
    last = "--legacy-endpoints sse,rpc --store sqlite:s --workers 2 --sessions off --log-level debug --log-format json --drain 3"
    last += " --direct-methods --debug"
    assert options(*f"{words} {more} {last}".split()) == {
        "transport": "http",
        "drain": 3,
        "host": "::1",
        "port": 8000,
        "uds": "/tmp/s",
        "public": True,
        "no_auth": True,
        "tls_cert": "c",
        "tls_key": "k",
        "path_prefix": "/p",
        "websocket": False,
        "direct_methods": True,
        "debug": True,
        "trusted_proxy": ("10.0.0.1", "10.0.0.2"),
        "cors": ("https://a.example",),
        "allow_host": ("b.example",),
        "legacy_endpoints": ("sse", "rpc"),
        "store": "sqlite:s",
        "workers": 2,
        "sessions": "off",
        "log_level": "debug",
        "log_format": "json",
    }


def test_a_flag_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_PORT", "9000")
    monkeypatch.setenv("PEGBOARD_CORS", "https://a.example")
    monkeypatch.setenv("PEGBOARD_TRANSPORT", "stdio")
    assert options()["port"] == 9000
    assert options("--port", "1")["port"] == 1
    assert options("--cors", "https://b.example")["cors"] == ("https://b.example",)
    assert options()["transport"] == "stdio"
    assert options("--http")["transport"] == "http"


def test_http_and_stdio_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options("--http", "--stdio")
    assert ended.value.code == 2


def test_the_first_lines_show_the_address_and_a_call_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board("calc")

    @board.tool
    def add(a: float, b: float, note: str = "") -> float:
        return a + b

    announce(board, "http://127.0.0.1:7332/mcp", 0.0)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "calc: 1 tool," in captured.err
    assert "http://127.0.0.1:7332/mcp" in captured.err
    assert "call http://127.0.0.1:7332/mcp add a=2 b=3" in captured.err


def test_where_keys_are_accepted_the_printed_commands_send_one(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board("locked", auth=Auth(keys=True))
    board.add(lambda: None, name="act")
    announce(board, "http://127.0.0.1:7332/mcp", 0.0, store="sqlite:keys.db")
    said = capsys.readouterr().err
    assert "KEY=$(" in said
    assert "keys add NAME --store sqlite:keys.db)" in said
    assert said.count('--header "Authorization: Bearer $KEY"') == 2


def test_a_board_without_tools_is_announced_too(capsys: pytest.CaptureFixture[str]) -> None:
    announce(Board("bare"), "http://127.0.0.1:7332/mcp", 0.0)
    assert "bare: 0 tools" in capsys.readouterr().err


# -- the log ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The log of tools, set up as it was before when the test is over."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield logging.getLogger("pegboard.tools")
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_message_cannot_forge_a_second_record(
    style: str, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("info", style)
    log.warning("name %s", "x\r\n2026-01-01 ERROR forged")
    logged = capsys.readouterr().err
    assert len(logged.splitlines()) == 1
    assert "forged" in logged


@pytest.mark.parametrize("style", ["text", "json"])
def test_the_text_of_an_exception_cannot_forge_one_either(
    style: str, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("info", style)
    try:
        raise ValueError("x\r\n2026-01-01 ERROR forged")
    except ValueError:
        log.exception("it failed")
    first, *rest = capsys.readouterr().err.splitlines()
    assert "it failed" in first
    assert all(line.startswith("    ") for line in rest)


def test_json_lines_carry_the_traceback(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("warning", "json")
    log.info("not shown")
    try:
        raise ValueError("odd")
    except ValueError:
        log.exception("it failed")
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["level"], line["logger"], line["message"]) == ("error", "pegboard.tools", "it failed")
    assert "ValueError: odd" in line["exception"]
    assert line["time"].endswith("Z")


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_authors_own_records_are_logged_in_the_same_form(
    style: str, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("info", style)
    log.info("ours")
    logging.getLogger("shop.orders").info("theirs")
    ours, theirs = capsys.readouterr().err.splitlines()
    assert "shop.orders" in theirs
    assert (ours.startswith("{"), theirs.startswith("{")) == (style == "json",) * 2


@pytest.mark.parametrize("style", ["text", "json"])
async def test_the_lines_of_a_call_name_its_tool_its_request_and_the_call(
    style: str, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    board = Board("shop")
    author = logging.getLogger("shop")

    @board.tool
    def plain() -> str:
        author.info("in a thread")
        return ""

    @board.tool
    async def gathered() -> str:
        async def part() -> None:
            author.info("in a task")

        await asyncio.gather(part(), part())
        raise ValueError("odd")

    set_up_logging("info", style)
    async with Client(board) as client:
        await client.call("plain")
        await client.call("gathered")
    author.info("outside")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("{", "20"))]
    assert len(lines) == 5
    if style == "text":
        assert [line.partition("  (")[2].partition(",")[0] for line in lines] == ["plain", *["gathered"] * 3, ""]
        return
    records = [json.loads(line) for line in lines]
    assert [one.get("tool") for one in records] == ["plain", "gathered", "gathered", "gathered", None]
    calls, requests = [one.get("call") for one in records], [one.get("request") for one in records]
    assert len(set(calls)) == len(set(requests)) == 3
    assert calls[1] == calls[2] == calls[3]
    assert "ValueError: odd" in records[3]["exception"]


def test_every_line_is_json_if_the_log_is(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import logging, warnings\nfrom pegboard import Board\n\nboard = Board('noisy')\nwarnings.warn('old')\n"
        "logging.getLogger('noisy').info('imported')\nboard.run()\n"
    )
    with HttpChild("--log-format", "json", target=tmp_path / "noisy.py") as child:
        child.signal()
        child.wait()
        messages = [json.loads(line)["message"] for line in child.said().splitlines()]
    told = "\n".join(messages)
    for words in ("imported", "UserWarning: old", "run() is ignored", "noisy: 0 tools", "MCP http://127.0.0.1:"):
        assert words in told


# -- targets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["src/shop/server.py", "shop.server:board", "."])
def test_a_package_is_served_and_its_prints_do_not_reach_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    package = tmp_path / "src" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("print('loading the package')\n")
    (package / "stock.py").write_text("NAME = 'shop'\n")
    (package / "server.py").write_text(
        "from pegboard import Board\nfrom .stock import NAME\n\nboard = Board(NAME)\n\nboard.run()\n"
    )
    (tmp_path / "pyproject.toml").write_text('[tool.pegboard]\nboard = "shop.server:board"\n')
    monkeypatch.setattr("tests.server_processes.ROOT", tmp_path)
    with StdioChild(*PEGBOARD, "run", target, "--stdio") as child:
        assert child.initialize()["result"]["serverInfo"]["name"] == "shop"
        child.hang_up()
        assert child.wait() == 0
        assert "loading the package" in child.said()
        assert "run() is ignored while the file is imported" in child.said()
