"""The official conformance suite judges `examples/everything.py` through a gateway, within an era and across eras.

What cannot hold is listed with its reason, and only that may fail: whatever else does is a defect, and so is a reason that
is none any more. `docs/gateway-eras.md` tells the same to people.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.peers.judges import HERE, LEGACY, MODERN
from tests.peers.serving import running, serve
from tests.peers.suite import ALWAYS_SKIPPED, SCENARIOS, judge
from tests.ports import free_port

pytestmark = pytest.mark.peer

ONE_ERA = HERE / "one_era.py"

NO_STREAM = "only a legacy server over HTTP has a stream that it can end, and have its caller come back for the rest"
TOLD_ONCE = (
    "a legacy server is told once, before any call, what its client can do: for a gateway that is what all its callers "
    "together can, so the server cannot refuse one that can less"
)
NO_KEYS = "a question of a legacy server has no name of its own, and the suite answers to the one it knows"
NO_TASKS = (
    "a legacy server knows nothing of the extension, so the gateway does not declare it, and no call becomes a task"
)

Reasons = Mapping[str, str]
"""Why a check cannot succeed, by the scenario and the check's id, or by the scenario alone where none of it can hold."""

# By the era of the server and the revision whose scenarios are run.
CANNOT_HOLD: Mapping[tuple[str, str], Reasons] = {
    ("legacy", LEGACY): {},
    ("modern", MODERN): {},
    ("modern", LEGACY): {"server-sse-polling": NO_STREAM},
    ("legacy", MODERN): {
        "server-stateless/sep-2575-server-rejects-undeclared-capability": TOLD_ONCE,
        "server-stateless/sep-2575-missing-capability-http-400": TOLD_ONCE,
        "input-required-result-basic-elicitation/sep-2322-elicitation-incomplete": NO_KEYS,
        "input-required-result-ignore-extra-params/sep-2322-ignore-unexpected-params": NO_KEYS,
        "tasks-lifecycle": NO_TASKS,
        "tasks-capability-negotiation": NO_TASKS,
        "tasks-wire-fields": NO_TASKS,
        "tasks-request-state-removal": NO_TASKS,
        "tasks-mrtr-input": NO_TASKS,
        "tasks-mrtr-composition": NO_TASKS,
        "tasks-request-headers": NO_TASKS,
        "tasks-dispatch-and-envelope": NO_TASKS,
    },
}
ERAS = [pytest.param(*both, id=f"{both[1]}-set-to-{both[0]}-server") for both in CANNOT_HOLD]


@contextmanager
def gateway(entry: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """A gateway over one server, whose names it keeps."""
    config = folder / "pegboard.json"
    # The suite waits for a minute's work to be cancelled as a task: where there are none it would wait in vain.
    server = {"timeout": 3, **entry}
    toolbox = {"description": "Everything", "names": "plain", "mcpServers": {"everything": server}}
    config.write_text(json.dumps({"toolboxes": {"all": toolbox}}))
    with serve("up", config) as address:
        yield f"{address}/mcp"


@contextmanager
def over_http(era: str) -> Iterator[Mapping[str, Any]]:
    port = free_port()
    with running([sys.executable, str(ONE_ERA), era, str(port)], port) as address:
        yield {"url": f"{address}/mcp"}


def over_stdio(era: str) -> Mapping[str, Any]:
    return {"command": sys.executable, "args": [str(ONE_ERA), era]}


@pytest.mark.parametrize(("era", "revision"), ERAS)
def test_all_that_can_hold_does_in_front_of_a_server_over_http(era: str, revision: str, tmp_path: Path) -> None:
    with over_http(era) as entry, gateway(entry, tmp_path) as url:
        check(url, revision, CANNOT_HOLD[era, revision], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("era", "revision"), ERAS)
def test_all_that_can_hold_does_in_front_of_a_server_on_stdio(era: str, revision: str, tmp_path: Path) -> None:
    reasons = CANNOT_HOLD[era, revision]
    if revision == LEGACY:
        reasons = {**reasons, "server-sse-polling": NO_STREAM}
    with gateway(over_stdio(era), tmp_path) as url:
        check(url, revision, reasons, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("era", "revision"), ERAS)
def test_the_same_holds_where_a_server_of_both_eras_is_pinned_to_one(era: str, revision: str, tmp_path: Path) -> None:
    with serve("run", HERE.parent.parent / "examples" / "everything.py") as address:
        entry = {"url": f"{address}/mcp", "version": LEGACY if era == "legacy" else MODERN}
        with gateway(entry, tmp_path) as url:
            check(url, revision, CANNOT_HOLD[era, revision], tmp_path)


def check(url: str, revision: str, reasons: Reasons, folder: Path) -> None:
    """All succeeds that has no reason not to, and nothing does that has one."""
    checks = judge(url, revision, folder)

    scenarios = {check.scenario for check in checks}
    assert len(scenarios) == SCENARIOS[revision], sorted(scenarios)
    complaints = {f"{check.scenario}/{check.id}": check.said for check in checks if check.is_complaint}
    strange = {name: said for name, said in complaints.items() if not {name, name.partition("/")[0]} & reasons.keys()}
    assert not strange
    judged = {check.scenario for check in checks if check.status == "SUCCESS"}
    assert scenarios - judged <= ALWAYS_SKIPPED | reasons.keys()
    failed = {part for name in complaints for part in (name, name.partition("/")[0])} | (scenarios - judged)
    assert reasons.keys() <= failed, "these hold now: take them from the list"
