"""The options for serving: arguments of `run()` and `asgi()`, and the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Gateway
from pegboard.config.gateway_config import GatewayConfig
from pegboard.errors import SetupError
from pegboard.server.serving_options import MOUNT_OPTIONS, OPTIONS, resolve_options

SERVING = (Path(__file__).parents[2] / "docs/serving.md").read_text()


def error_of(capsys: pytest.CaptureFixture[str], *transport: Any, **options: Any) -> str:
    """Why a board cannot be served with these options."""
    with pytest.raises(SystemExit) as ended:
        Board("tools").run(*transport, **options)
    assert ended.value.code == 2
    return capsys.readouterr().err


# -- run() and the environment ---------------------------------------------------------------------------------------


def test_run_reads_options_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PEGBOARD_TRANSPORT", "http")
    monkeypatch.setenv("PEGBOARD_HOST", "192.0.2.1")
    assert "192.0.2.1 is reachable from other machines" in error_of(capsys)


def test_an_argument_of_run_takes_precedence_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PEGBOARD_HOST", "192.0.2.1")
    assert "192.0.2.2 is reachable from other machines" in error_of(capsys, "http", host="192.0.2.2")


def test_run_takes_every_option_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    everything: dict[str, Any] = {name: option.help.default for name, option in OPTIONS.items()}
    assert "use at least 1" in error_of(capsys, **everything | {"log_format": "json", "workers": 0})


def test_run_rejects_an_unknown_option_with_a_suggestion() -> None:
    with pytest.raises(TypeError, match=r"run\(\) got an unexpected keyword argument 'prot'; did you mean 'port'"):
        Board().run(prot=80)  # type: ignore[call-arg]


@pytest.mark.parametrize(("option", "value"), [("sessions", "of"), ("transport", "pigeon"), ("log_level", "loud")])
def test_run_rejects_a_value_that_is_not_a_choice(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{option}='{value}' is not one of" in error_of(capsys, **{option: value})


def test_run_rejects_a_port_that_is_not_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert "port='8000' is not a whole number" in error_of(capsys, port="8000")


def test_a_gateway_is_one_process_however_it_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Gateway(GatewayConfig(path="", name="many", lock="off", toolboxes={})).run("http", workers=2)
    assert "a gateway runs in one process" in capsys.readouterr().err


# -- values ----------------------------------------------------------------------------------------------------------


def test_a_list_in_the_environment_is_separated_by_commas() -> None:
    options = resolve_options({}, {"PEGBOARD_CORS": "https://a.example, https://b.example"})
    assert options["cors"] == ("https://a.example", "https://b.example")


@pytest.mark.parametrize(
    ("text", "public"),
    [("1", True), ("yes", True), ("true", True), ("True", True), ("0", False), ("no", False), ("", False)],
)
def test_a_switch_in_the_environment_is_yes_or_no(text: str, public: bool) -> None:
    assert resolve_options({}, {"PEGBOARD_PUBLIC": text})["public"] is public


def test_an_empty_variable_leaves_the_default() -> None:
    assert resolve_options({}, dict.fromkeys((option.variable for option in OPTIONS.values()), "")) == resolve_options(
        {}, {}
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [("PORT", "many"), ("LOG_LEVEL", "loud"), ("LOG_FORMAT", "xml"), ("TRANSPORT", "pigeon"), ("PUBLIC", "maybe")],
)
def test_a_wrong_variable_is_rejected_by_name(name: str, text: str) -> None:
    with pytest.raises(SetupError, match=f"PEGBOARD_{name}='{text}' is not"):
        resolve_options({}, {f"PEGBOARD_{name}": text})


# -- asgi() ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"legacy_endpoints": "ssse"}, r"asgi\(legacy_endpoints=…\) 'ssse' is not one of rpc, oneshot, sse"),
        ({"cors": "app.example"}, r'asgi\(cors="app.example"\) is not an origin'),
        ({"sessions": "of"}, "sessions='of' is not one of on, off"),
    ],
)
def test_asgi_names_its_own_option_in_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        Board().asgi(**options)


def test_asgi_rejects_an_unknown_option_with_a_suggestion() -> None:
    with pytest.raises(TypeError, match=r"asgi\(\) got an unexpected keyword argument 'core'; did you mean 'cors'"):
        Board().asgi(core="https://a.example")  # type: ignore[call-arg]


# -- documentation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "transport"])
def test_every_option_is_documented_with_its_flag_and_variable(name: str) -> None:
    option = OPTIONS[name]
    assert f"`{option.flag}" in SERVING
    assert f"`{option.variable}" in SERVING


@pytest.mark.parametrize("name", MOUNT_OPTIONS)
def test_every_option_of_asgi_is_documented(name: str) -> None:
    assert f"`{name}`" in SERVING or f"`{name}=" in SERVING
