"""`pegboard run`: flags, the environment, the first lines."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator

import pytest

from pegboard import Board
from pegboard.cli.run import announce
from pegboard.cli.serving_flags import add_flags, read_settings, set_up_logging
from pegboard.errors import SetupError
from pegboard.server.serve import Settings

pytestmark = pytest.mark.process


def settings(*words: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_settings(parser.parse_args(words))


def test_nothing_needs_to_be_said() -> None:
    assert settings() == Settings()


def test_every_flag_is_a_setting() -> None:
    chosen = settings(
        *(
            "--http",
            "--host",
            "::1",
            "--port",
            "8000",
            "--uds",
            "/tmp/s",
            "--public",
            "--tls-cert",
            "c",
            "--tls-key",
            "k",
        ),
        *("--path-prefix", "/p", "--trusted-proxy", "10.0.0.1", "--trusted-proxy", "10.0.0.2"),
        *("--cors", "https://a.example", "--allow-host", "b.example"),
    )
    assert chosen == Settings(
        transport="http",
        host="::1",
        port=8000,
        uds="/tmp/s",
        public=True,
        tls_cert="c",
        tls_key="k",
        path_prefix="/p",
        trusted_proxies=("10.0.0.1", "10.0.0.2"),
        cors=("https://a.example",),
        allow_hosts=("b.example",),
    )


def test_the_environment_sets_what_no_flag_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_PORT", "9000")
    monkeypatch.setenv("PEGBOARD_CORS", "https://a.example, https://b.example")
    monkeypatch.setenv("PEGBOARD_TRANSPORT", "stdio")
    assert settings().port == 9000
    assert settings("--port", "1").port == 1
    assert settings().cors == ("https://a.example", "https://b.example")
    assert settings().transport == "stdio"
    assert settings("--http").transport == "http"


@pytest.mark.parametrize(
    ("text", "public"), [("1", True), ("yes", True), ("true", True), ("0", False), ("no", False), ("", False)]
)
def test_public_in_the_environment_means_what_it_says(text: str, public: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_PUBLIC", text)
    assert settings().public is public


@pytest.mark.parametrize(
    ("name", "text"),
    [("PORT", "many"), ("LOG_LEVEL", "loud"), ("LOG_FORMAT", "xml"), ("TRANSPORT", "pigeon"), ("PUBLIC", "maybe")],
)
def test_a_wrong_environment_is_refused_by_name(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PEGBOARD_{name}", text)
    with pytest.raises(SetupError, match=f"PEGBOARD_{name}='{text}' is not"):
        settings()


def test_the_deprecated_doors_are_open_unless_something_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings().legacy_doors == ("rpc", "oneshot", "sse")
    assert settings("--no-legacy-doors").legacy_doors == ()
    assert settings("--legacy-doors", "sse,rpc").legacy_doors == ("rpc", "sse")
    monkeypatch.setenv("PEGBOARD_LEGACY_DOORS", "none")
    assert settings().legacy_doors == ()
    assert settings("--legacy-doors", "sse").legacy_doors == ("sse",)
    with pytest.raises(SetupError, match="'ssse' is none of rpc, oneshot, sse"):
        settings("--legacy-doors", "ssse")


def test_http_and_stdio_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        settings("--http", "--stdio")
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


def test_a_board_without_tools_is_announced_too(capsys: pytest.CaptureFixture[str]) -> None:
    announce(Board("bare"), "http://127.0.0.1:7332/mcp", 0.0)
    assert "bare: 0 tools" in capsys.readouterr().err


# -- the log ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The log of tools, set up as it was before when the test is over."""
    root = logging.getLogger("pegboard")
    before = root.handlers[:], root.level, root.propagate
    yield logging.getLogger("pegboard.tools")
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_message_cannot_forge_a_second_record(
    style: str, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("info", style)
    log.warning("name %s", "x\r\n2026-01-01 ERROR forged")
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "forged" in told


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
