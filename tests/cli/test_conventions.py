"""What holds for every verb: an example and exit codes in its help, JSON, completion, and its place in the reference."""

from __future__ import annotations

import re
import shutil

import pytest
from scripts.command_line import PAGE, render
from scripts.try_completion import CASES, complete

from pegboard.cli.completion.completion_scripts import SHELLS
from pegboard.cli.completion.verb_usage import parser_of, usage_of
from pegboard.cli.verbs import GROUPS, VERBS
from tests.cli.in_process import run_here

pytestmark = pytest.mark.same_on_every_python

# A fresh machine has bash alone.
INSTALLED = [shell for shell in SHELLS if shutil.which(shell) is not None]


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_ends_with_an_example_and_its_exit_codes(verb: str) -> None:
    text = parser_of(verb).format_help()
    assert f"\n  pegboard {verb}" in text or f'"$(pegboard {verb}' in text
    assert "exit codes: 0 " in text


@pytest.mark.parametrize("verb", ["run", "up", "dev"])
def test_the_first_screen_of_help_has_the_usual_flags_of_a_serving_verb(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    screen = "\n".join(parser_of(verb).format_help().splitlines()[:24])
    assert all(f"\n  {flag}" in screen for flag in ("--host", "--port", "--store"))
    assert re.match(rf"usage: pegboard {verb} \[options\] \S+\n\n", screen)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in GROUPS["serving"]])
def test_a_verb_that_prints_a_result_prints_it_as_json_too(verb: str) -> None:
    assert any("--json" in flag.names for flag in usage_of(verb).flags)


def test_the_reference_has_every_verb_as_its_help_describes_it() -> None:
    assert PAGE.read_text() == render(), "run scripts/command_line.py"


def test_bash_is_here() -> None:
    assert "bash" in INSTALLED


@pytest.mark.parametrize("shell", INSTALLED)
def test_a_shell_completes_verbs_flags_values_and_actions(shell: str) -> None:
    for line, wanted in CASES:
        assert wanted <= complete(shell, line), line


@pytest.mark.parametrize("shell", SHELLS)
def test_every_script_names_every_verb(shell: str) -> None:
    code, out, _ = run_here("completion", shell)
    assert code == 0
    assert all(verb in out for verb in VERBS)
