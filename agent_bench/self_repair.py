"""A model that repairs a refused call from our error message alone: a reader of the form "path: got, expected, example".

`python -m agent_bench.self_repair` sends the calls of bench/sloppy.py that Pegboard refuses, repairs each by its message
and prints how many succeed the second time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_bench.job import ROOT

_PROBLEM = re.compile(r"^- (?P<path>[^:\s]+): (?P<words>.+)$", re.MULTILINE)
_KEY = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_JSON = json.JSONDecoder()
# What a model sends where the message names a type and no example.
_BY_TYPE = {"a string": "text", "true or false": True, "an object": {}}

Key = str | int


@dataclass(frozen=True)
class Step:
    """A change of the arguments: `new_name` renames a member, `removed` removes it, otherwise it gets `value`."""

    path: Sequence[Key]
    value: Any = None
    new_name: str | None = None
    removed: bool = False


def repair(arguments: Any, message: str) -> Any | None:
    """The arguments after what the message says; None if it says nothing that can be applied."""
    steps = [
        step
        for found in _PROBLEM.finditer(_unescape(message))
        if (step := _read(found["path"], found["words"])) is not None
    ]
    if not steps:
        return None
    fixed = json.loads(json.dumps(arguments))
    for step in steps:
        fixed = _apply(fixed, step)
    return fixed


def _unescape(message: str) -> str:
    """Many agents show their models the message inside of JSON, some inside of JSON in JSON."""
    while "\\n- " in message:
        message = message.replace("\\\\", "\0").replace("\\n", "\n").replace('\\"', '"').replace("\0", "\\")
    return message


def _read(path: str, words: str) -> Step | None:
    keys = [] if path == "arguments" else [name or int(place) for name, place in _KEY.findall(path)]
    if words.startswith("unknown argument"):
        meant = re.search(r'did you mean "([^"]+)"', words)
        return Step(keys, new_name=meant[1]) if meant else Step(keys, removed=True)
    for opening in ("did you mean ", "ambiguous: could be ", "e.g. ", "expected one of "):
        _, found, after = words.partition(opening)
        if found and (value := _first_json(after)) is not None:
            return Step(keys, value)
    _, found, wanted = words.partition("expected ")
    kind = next((kind for kind in _BY_TYPE if wanted.startswith(kind)), None)
    return Step(keys, _BY_TYPE[kind]) if found and kind else None


def _first_json(text: str) -> Any | None:
    try:
        return _JSON.raw_decode(text)[0]
    except ValueError:
        return None


def _apply(arguments: Any, step: Step) -> Any:
    if not step.path:
        return step.value
    if not isinstance(arguments, dict | list):
        # The path goes through it, so the text was read as JSON, or it has to become an object.
        parsed = _first_json(arguments) if isinstance(arguments, str) else None
        arguments = parsed if isinstance(parsed, dict | list) else {}
    key, *rest = step.path
    if not rest and (step.removed or step.new_name is not None):
        value = arguments.pop(key, None)
        if step.new_name is not None:
            arguments[step.new_name] = value
        return arguments
    place: Any = key
    inner = arguments[place] if isinstance(arguments, list) else arguments.get(key)
    arguments[place] = _apply(inner, Step(rest, step.value, step.new_name, step.removed))
    return arguments


@dataclass(frozen=True)
class Outcome:
    """A refused call, its message, what the reader made of it, and the message of the second call, if it failed too."""

    tool: str
    sent: Any
    message: str
    fixed: Any | None
    failure: str | None

    @property
    def succeeded(self) -> bool:
        return self.fixed is not None and self.failure is None


async def repair_all(calls: Sequence[tuple[str, Any]], board: Any) -> list[Outcome]:
    """Send each call, and those that are refused again after repairing them by their message."""
    from pegboard import Client

    outcomes = []
    async with Client(board) as client:
        for tool, sent in calls:
            message = _error(await _call(client, tool, sent))
            if message is None:
                continue
            fixed = repair(sent, message)
            failure = None if fixed is None else _error(await _call(client, tool, fixed))
            outcomes.append(Outcome(tool, sent, message, fixed, failure))
    return outcomes


async def _call(client: Any, tool: str, arguments: Any) -> Mapping[str, Any]:
    import msgspec

    raw = msgspec.Raw(msgspec.json.encode(arguments))
    result: Mapping[str, Any] = await client.request("tools/call", name=tool, arguments=raw)
    return result


def _error(result: Mapping[str, Any]) -> str | None:
    return str(result["content"][0]["text"]) if result.get("isError") else None


def main() -> None:
    sys.path.insert(0, str(ROOT / "bench"))
    import sloppy

    from tests.repair.sloppy import CALLS

    logging.disable(logging.CRITICAL)
    calls = [(call.tool, call.sent) for call in CALLS if (call.kind, call.tool) not in sloppy.LEFT_OUT]
    outcomes = asyncio.run(repair_all(calls, sloppy.board()))
    good = sum(outcome.succeeded for outcome in outcomes)
    print(f"{good} of {len(outcomes)} refused calls succeed after one repair by their message")
    for outcome in outcomes:
        if not outcome.succeeded:
            print(
                f"- {outcome.tool} {outcome.sent!r}\n  {outcome.message}\n  sent: {outcome.fixed!r}\n  {outcome.failure}"
            )


if __name__ == "__main__":
    main()
