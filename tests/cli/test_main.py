"""The command itself: verbs, help, exit codes."""

from __future__ import annotations

import re

import pytest

from pegboard import __version__
from pegboard.cli.main import main
from pegboard.cli.verbs import OTHER_NAMES, VERBS

pytestmark = pytest.mark.process


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    code = ended.value.code
    return 0 if code is None else int(code)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"pegboard {__version__}\n"


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_help_lists_every_verb_and_exit_code(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 0
    told = capsys.readouterr().out
    for verb in VERBS:
        assert f"  {verb} " in told
    assert "exit codes: 0 ok, 1 a tool returned an error, 2 wrong usage" in told


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(verb, "--help") == 0
    assert f"pegboard {verb}" in capsys.readouterr().out


def test_an_unknown_verb_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dance") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "dance" in captured.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cal",), "pegboard: argument VERB: invalid choice: 'cal', did you mean 'call'?\nRun `pegboard --help`"),
        (
            ("run", "x.py", "--prot", "80"),
            "unrecognized arguments: --prot 80, did you mean '--port'?\nRun `pegboard run",
        ),
        (
            ("run", "x.py", "--transport", "streamable-http"),
            "--transport streamable-http, did you mean '--http' or '--stdio'?",
        ),
        (("serve", "x.py"), "pegboard serve: use `pegboard run`"),
        (("inspector",), "pegboard inspector: use `pegboard inspect` or, in a browser, `pegboard dev --open`"),
        (("keys", "list", "--stroe=a"), "unrecognized arguments: --stroe=a, did you mean '--store'?"),
        (("connect", "cursor", "x.py", "--writ"), "unrecognized arguments: --writ, did you mean '--write'?"),
        (("keys", "list", "--conf", "a.json"), "unrecognized arguments: --conf a.json, did you mean '--config'?"),
        (("call", "x.py", "add", "--a", "2"), "unrecognized arguments: --a 2\nRun `pegboard call --help`"),
        (("call", "x.py"), "pegboard call: the following arguments are required: TOOL\nRun `pegboard call --help`"),
        (("dev", "--stdio"), "unrecognized arguments: --stdio\nRun `pegboard dev --help`"),
        (("connect", "cursr"), "invalid choice: 'cursr', did you mean 'cursor'?\nRun `pegboard connect --help`"),
        (("run",), "pegboard run: the following arguments are required: TARGET[:BOARD]\nRun `pegboard run --help`"),
    ],
)
def test_wrong_usage_suggests_the_closest_choice_and_refers_to_the_help(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(list(words))
    assert told in capsys.readouterr().err


def test_the_names_of_other_tools_lead_to_verbs() -> None:
    assert not OTHER_NAMES.keys() & VERBS.keys()
    for command in OTHER_NAMES.values():
        assert all(verb in VERBS for verb in re.findall(r"pegboard (\w+)", command))


def test_what_is_wrong_is_one_line_on_stderr_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", "nowhere.py") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "pegboard run: File not found: nowhere.py\n"
