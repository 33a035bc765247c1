"""The files that the forge reads: workflows, templates and dependency updates."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.same_on_every_python

ROOT = Path(__file__).resolve().parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [GITHUB / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "feature.yml")]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(workflow: Any) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def workflow(request: pytest.FixtureRequest) -> Any:
    return read(request.param)


def test_a_workflow_may_only_read_the_code_and_is_bounded(workflow: Any) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]
    for job in workflow["jobs"].values():
        assert "uses" in job or job["timeout-minutes"] <= 45


def test_only_the_job_that_publishes_may_identify_itself() -> None:
    granted = {
        f"{path.stem}/{name}": job["permissions"]
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
        if job.get("permissions", {"contents": "read"}) != {"contents": "read"}
    }

    assert granted == {"release/publish": {"id-token": "write"}}


def test_actions_are_pinned_by_version_and_leave_no_credentials(workflow: Any) -> None:
    used = [step for step in steps(workflow) if "uses" in step]

    assert [step["uses"] for step in used if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+)*", step["uses"])] == []
    checkouts = [step for step in used if step["uses"].startswith("actions/checkout@")]
    assert [step for step in checkouts if step["with"]["persist-credentials"] is not False] == []


def test_commands_take_no_text_of_a_pull_request(workflow: Any) -> None:
    # An expression inside a command is replaced before the shell reads it: a branch name could be a command.
    assert [step["run"] for step in steps(workflow) if "${{" in step.get("run", "")] == []


def test_linux_tests_every_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = [found[1] for line in project["classifiers"] if (found := re.fullmatch(r".* :: (3\.\d+)", line))]
    jobs = read(GITHUB / "workflows" / "test.yml")["jobs"]

    assert jobs["linux"]["strategy"]["matrix"]["python"] == supported
    assert project["requires-python"] == f">={supported[0]}"
    assert jobs["linux"]["steps"][-1]["run"] == "make test"
    for other in ("macos", "windows"):
        assert jobs[other]["strategy"]["matrix"]["python"] == [supported[0], supported[-1]]
        assert jobs[other]["steps"][-1]["run"].startswith("make test-quick")


def test_the_tests_named_for_windows_exist() -> None:
    command = read(GITHUB / "workflows" / "test.yml")["jobs"]["windows"]["steps"][-1]["run"]

    assert [path for path in re.findall(r"tests/[\w./]+", command) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_labelled_fields_with_ids_of_their_own(path: Path) -> None:
    form = read(path)
    fields = [field for field in form["body"] if field["type"] != "markdown"]

    assert form["name"]
    assert form["description"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)


def test_dependency_updates_cover_python_npm_and_actions() -> None:
    updates = {update["package-ecosystem"]: update for update in read(GITHUB / "dependabot.yml")["updates"]}

    assert set(updates) == {"pip", "npm", "github-actions"}
    assert (ROOT / updates["npm"]["directory"].lstrip("/") / "package-lock.json").exists()


def test_hooks_of_a_commit_run_our_own_checks() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]

    assert repository["repo"] == "local"
    checks = re.findall(r'^    \("([a-z ]+)"', (ROOT / "scripts" / "check.py").read_text(), re.MULTILINE)
    assert [hook["name"] for hook in repository["hooks"]] == checks
    assert [hook["entry"].partition("check.py ")[2].strip('"') for hook in repository["hooks"]] == checks
