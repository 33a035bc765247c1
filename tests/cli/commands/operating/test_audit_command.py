"""`pegboard audit`: verify and search an audit log; decisions on the command line are in it, too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pegboard.cli.main import main
from pegboard.demo import notes
from pegboard.middleware import Audit
from pegboard.testing import make_call, run_alone
from tests.middleware.audit.audit_records import SECRET, lines_of, records_of


def pegboard(*words: object) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(list(map(str, words)))
    return int(exit_.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PEGBOARD_SECRET", SECRET)
    audit = Audit(tmp_path / "audit")
    with asyncio.Runner() as runner:
        for principal, name in (("ann", "pay"), ("bob", "read"), ("ann", "read")):
            call = make_call(name, {"amount": len(name), "to": "\x1b[31mred"}, principal=principal)
            runner.run(run_alone(audit, call=call))
        runner.run(run_alone(audit, call=make_call("pay", principal="eve"), answer=ValueError("no")))
    audit.close()
    return tmp_path / "audit"


def test_an_intact_log_is_reported_with_its_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pegboard("audit", "verify", folder) == 0
    last = lines_of(folder)[-1]
    out, err = capsys.readouterr()
    assert out == f"audit-1:5:{last['hash']}   5 records in 1 file\n"
    assert err == "intact\n"
    assert pegboard("audit", "verify", folder, "--expect", f"audit-1:5:{last['hash']}") == 0
    assert pegboard("audit", "verify", folder, "--expect", f"audit-1:5:{'0' * 32}") == 1
    assert pegboard("audit", "verify", folder, "--expect", "nonsense") == 2


def test_a_changed_log_is_reported_with_the_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "audit-1.000001.jsonl"
    file.write_text(file.read_text().replace("bob", "eve"))
    assert pegboard("audit", "verify", folder) == 1
    assert "FAILED  audit-1.000001.jsonl:3 record 3: was changed" in capsys.readouterr().out
    assert pegboard("audit", "verify", folder, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["intact"]
    assert report["logs"][0]["findings"][0]["kind"] == "changed"


def test_the_key_comes_from_the_environment_or_a_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PEGBOARD_SECRET", "a wrong secret of the tests")
    assert pegboard("audit", "verify", folder) == 1
    assert "is sealed with the key" in capsys.readouterr().out
    key = tmp_path / "key"
    key.write_text(SECRET + "\n")
    key.chmod(0o600)
    assert pegboard("audit", "verify", folder, "--secret-file", key) == 0
    key.chmod(0o644)
    assert pegboard("audit", "verify", folder, "--secret-file", key) == 2


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], ["audit.open", "ann pay", "bob read", "ann read", "eve pay"]),
        (["--principal", "ann"], ["ann pay", "ann read"]),
        (["--tool", "re*"], ["bob read", "ann read"]),
        (["--outcome", "failed"], ["eve pay"]),
        (["--text", '"amount":4'], ["bob read", "ann read"]),
        (["--since", "1h", "--tool", "*"], ["audit.open", "ann pay", "bob read", "ann read", "eve pay"]),
        (["--until", "1h"], []),
        (["--since", "2126-01-01"], []),
        (["-n", "1"], ["eve pay"]),
    ],
)
def test_records_are_found(
    folder: Path, filters: list[str], found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert pegboard("audit", "show", folder, "--json", *filters) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [
        f"{record['principal']} {record['name']}" if "principal" in record else record["action"] for record in records
    ] == found


def test_records_are_printed_without_control_characters(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pegboard("audit", "show", folder, "--principal", "bob") == 0
    out = capsys.readouterr().out
    assert "bob  tools/call  read  ok" in out
    assert "\x1b" not in out


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PEGBOARD_SECRET", SECRET)
    monkeypatch.setenv("PEGBOARD_STATE", str(tmp_path / "state"))
    path = tmp_path / "pegboard.json"
    board = {"demo": {"board": notes.__file__}}
    path.write_text(
        json.dumps(
            {
                "middleware": [{"use": "Audit", "options": {"path": "records"}}],
                "toolboxes": {"box": {"description": "demo", "mcpServers": board}},
            }
        )
    )
    return path


def test_keys_and_accepted_definitions_are_recorded_in_the_log_of_the_configuration(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pegboard("keys", "add", "ci", "--role", "robot", "--config", config) == 0
    assert pegboard("keys", "revoke", "ci", "--config", config) == 0
    assert pegboard("lock", config) == 0
    records = records_of(tmp_path / "records")
    assert [(record["action"], record["name"], record["transport"]) for record in records] == [
        ("keys.add", "ci", "cli"),
        ("keys.revoke", "ci", "cli"),
        ("lock.create", "pegboard", "cli"),
    ]
    assert records[0]["details"] == {"scopes": [], "roles": ["robot"], "seconds": None}
    assert all(record["principal"].startswith("local:") for record in records)
    assert pegboard("audit", "verify", config) == 0
    (tmp_path / "records" / "audit-1.head").unlink()
    (tmp_path / "records" / "audit-1.head").mkdir()
    # What cannot be recorded does not happen.
    assert pegboard("keys", "add", "late", "--config", config) == 2
    assert pegboard("keys", "list", "--config", config) == 0
    assert "late" not in capsys.readouterr().out


def test_a_configuration_without_an_audit_log_has_none_to_check(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text().replace("Audit", "Timing").replace('{"path": "records"}', "{}"))
    assert pegboard("audit", "verify", config) == 2
    assert "neither the folder of an audit log nor a configuration with Audit" in capsys.readouterr().err
    assert pegboard("audit", "verify", "nope.json") == 2
    assert capsys.readouterr().err == "pegboard audit: File not found: nope.json\n"
