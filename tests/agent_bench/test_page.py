"""The page of the bench of agents, and what the agents are pinned to."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import pytest

from agent_bench.cases import CASES
from agent_bench.isolation import RejectingProxy, private_variables
from agent_bench.job import ROOT
from agent_bench.listing import describe_listing
from agent_bench.model_server.conversation import ListedTool, Part
from agent_bench.page import count_shown, write_page
from agent_bench.play import Seen
from agent_bench.roster import AGENTS, DRIVERS, Agent
from agent_bench.runs import Run
from agent_bench.setups import SETUPS


def ran(text: str, **options: object) -> Run:
    return Run({case.name: Seen((Part("text", text),)) for case in CASES}, "all tools")


def test_a_case_is_listed_with_what_the_model_saw_and_what_was_dropped() -> None:
    page = write_page({("codex", SETUPS[0].name): ran("alarm at 07:30")}, dt.date(2026, 11, 17), isolated=True)
    assert "| a repaired call | `alarm at 07:30` | repair note |" in page
    assert "2026-11-17" in page
    assert "no request left the machine" in page


def test_another_outcome_in_another_setup_is_listed() -> None:
    results = {
        ("codex", SETUPS[0].name): ran("alarm at 07:30"),
        ("codex", SETUPS[1].name): ran('alarm at 07:30 [repaired] at: "a" read as "b"'),
    }
    page = write_page(results, dt.date(2026, 11, 17), isolated=True)
    assert '| a repaired call | board, HTTP | `alarm at 07:30 [repaired] at: "a" read as "b"` |  |' in page
    assert count_shown(results, "repaired", "repair note") == (1, 1)


def test_what_an_agent_says_is_inert_in_the_page() -> None:
    page = write_page({("codex", SETUPS[0].name): ran("a | b\n`c` <script>")}, dt.date(2026, 11, 17), isolated=False)
    assert "`a \\| b ⏎ ˋcˋ <script>`" in page


def test_paths_of_this_machine_are_not_in_the_page() -> None:
    page = write_page({("codex", SETUPS[0].name): ran(f"{ROOT}/x and /tmp/agent-abc/y")}, dt.date.min, isolated=True)
    assert "`…/x and ~/y`" in page


def test_a_listing_names_what_a_schema_lost() -> None:
    assert describe_listing([ListedTool("mcp__add_numbers", "Adds two numbers.", {"type": "object"})]).endswith(
        "1 descriptions, schemas without `additionalProperties`, `properties`, `required`"
    )


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.folder)
def test_an_agent_has_a_driver_and_exact_pins_without_addresses(agent: Agent) -> None:
    assert (agent.home / ("driver.mjs" if agent.own == "node" else "driver.py")).is_file()
    assert re.fullmatch(r"[\d.]+\w*", agent.version)
    if agent.is_npm:
        locked = (agent.home / "package-lock.json").read_text()
        assert '"resolved"' not in locked
        assert '"integrity"' in locked
        pins = json.loads((agent.home / "package.json").read_text())["dependencies"].values()
        assert all(re.fullmatch(r"[\d.]+", version) for version in pins)
    else:
        lines = (agent.home / "pins.txt").read_text().splitlines()
        assert lines
        assert all(re.match(r"[\w.\[\]-]+==[\w.!+]+( ;.*)?$", line) for line in lines)


def test_every_driver_belongs_to_an_agent() -> None:
    folders = {path.parent.name for path in DRIVERS.glob("*/driver.*")}
    assert folders == {agent.folder for agent in AGENTS}


def test_a_proxy_rejects_every_request_and_remembers_its_host() -> None:
    import urllib.error
    import urllib.request

    with RejectingProxy().running() as proxy:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy.url}))
        with pytest.raises(urllib.error.HTTPError) as rejected:
            opener.open("http://model.example/v1", timeout=20)
        rejected.value.close()
    assert rejected.value.code == 403
    assert proxy.hosts == {"model.example"}


def test_an_agent_gets_no_variable_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    variables = private_variables(Path("/home/of/agent"), "http://127.0.0.1:1")
    assert "OPENAI_API_KEY" not in variables
    assert variables["HOME"] == "/home/of/agent"


def test_the_figures_of_the_readme_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    measured = re.search(r"visible to the model of \*\*(\d+) of (\d+)\*\* agents, and of \*\*(\d+) of", page)
    claimed = re.search(
        r"Of (\d+) agents and frameworks, \[(\d+) show it[^,]*, (\d+) if", (ROOT / "README.md").read_text()
    )
    assert measured is not None
    assert claimed is not None
    assert claimed.group(2, 1, 3) == measured.group(1, 2, 3)
