"""Writes docs/agents.md: what of each case reached the model, agent by agent."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence

from agent_bench.cases import CASES, Case
from agent_bench.job import ROOT
from agent_bench.play import Seen
from agent_bench.roster import AGENTS, Agent
from agent_bench.runs import Run
from agent_bench.setups import SETUPS, Setup

Results = Mapping[tuple[str, str], Run]

FIRST = SETUPS[0].name
PROXY = SETUPS[4].name
# The note without structured content first: it is the simplest.
CARRIERS = tuple(
    sorted((case for case in CASES if case.name.startswith("carry_")), key=lambda case: case.name != "carry_plain")
)
SHOWN = tuple(case for case in CASES if not case.name.startswith("carry_"))
# A cell of the tables keeps the beginning and the end of a long text.
HEAD, TAIL = 170, 60

# What differs from run to run, or belongs to this machine.
_VOLATILE = (
    (re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*", re.DOTALL), ""),
    (re.compile(re.escape(str(ROOT))), "…"),
    (re.compile(r"/tmp/agent-\w+"), "~"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}"), "…"),
    (re.compile(r"Wall time: [\d.]+ seconds"), "Wall time: … seconds"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:…"),
    (re.compile(r"blob-\d+-\w+"), "blob-…"),
    (re.compile(r"_\d{13}\w*"), "_…"),
    (re.compile(r'file_id="\w+"|See file \w+'), "See file …"),
    (re.compile(r"[A-Za-z0-9+/]{60,}={0,2}"), "…base64…"),
)


def write_page(results: Results, today: dt.date, *, isolated: bool) -> str:
    return "\n".join(_lines(results, today, isolated)) + "\n"


def count_shown(results: Results, name: str, piece: str, setups: Sequence[Setup] = SETUPS) -> tuple[int, int]:
    """In how many agents a piece of a case reached the model in one of the setups, and how many agents there are."""
    marker = next(case for case in CASES if case.name == name).pieces[piece]
    agents = _agents(results)
    shown = [
        agent
        for agent in agents
        if any(_run(results, agent, setup.name).seen.get(name, Seen()).shows(marker) for setup in setups)
    ]
    return len(shown), len(agents)


def _agents(results: Results) -> list[Agent]:
    return [agent for agent in AGENTS if (agent.folder, FIRST) in results]


def _lines(results: Results, today: dt.date, isolated: bool) -> Iterator[str]:
    agents = _agents(results)
    yield from _introduction(results, today, isolated)
    yield from _carrier_table(results, agents)
    yield from _case_table(results, agents)
    yield "## Agent by agent"
    for agent in agents:
        yield from _section(results, agent)


def _introduction(results: Results, today: dt.date, isolated: bool) -> Iterator[str]:
    text, total = count_shown(results, "repaired", "repair note")
    structured, _ = count_shown(results, "repaired_structured", "repair note")
    errors, _ = count_shown(results, "tool_error", "error text")
    protocol_errors, _ = count_shown(results, "protocol_error", "error text")
    fixed, _ = count_shown(results, "fixed", "result")
    fixed_directly, _ = count_shown(results, "fixed", "result", SETUPS[:4])
    added, _ = count_shown(results, "added", "result", SETUPS[:2])
    blocked = (
        "They ran in a network namespace with nothing but loopback, so no request left the machine."
        if isolated
        else "Requests to other hosts were rejected by a proxy; there was no network namespace."
    )
    yield f"""# What models see

An agent decides which parts of a tool's result its model sees. This page shows it for {total} agents and frameworks, word for word. `make agents` wrote it on
{today}: it runs each of them with a scripted model, which records what it is sent, against the same tools, over stdio and HTTP, from a board and through a
gateway in `all` and `proxy` mode ([agent_bench/](../agent_bench/README.md)). {blocked} Nothing here was edited by hand.

In short, counting the agents where it holds in at least one of the six setups:

- A repaired argument is visible to the model of **{text} of {total}** agents, and of **{structured} of {total}** if the tool has structured output.
- The text of an `isError` result reaches the model of **{errors} of {total}**, the text of a JSON-RPC error that of **{protocol_errors} of {total}**. So Pegboard's
  own refusals of a tool call are `isError` results: arguments, limits, budgets, timeouts, servers that are unavailable or need a login.
- A model that follows the message of a refused call literally succeeds with its second call in **{fixed} of {total}**, in {fixed_directly} of
  them also outside of `proxy` mode.
- Agents with a schema validator of their own reject a malformed call themselves, in their own words; Pegboard never sees it. In `proxy` mode the arguments of
  the tool are an open object, so Pegboard repairs or rejects them.
- **{added} of {total}** offer the model a tool that was added while they ran.
"""


def _carrier_table(results: Results, agents: list[Agent]) -> Iterator[str]:
    yield """## Where a note can be put

The same note at different places of a result. This decides where Pegboard puts [repair notes](arguments.md#repair-notes): in a text block if there is no
structured content, and in an embedded resource beside it.
"""
    names = [case.title.removeprefix("note: ") for case in CARRIERS]
    yield f"| | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for agent in agents:
        run = results[agent.folder, FIRST]
        cells = [_status(case, run.seen.get(case.name)) for case in CARRIERS]
        yield f"| {agent.name} | {' | '.join(cells)} |"
    yield ""


def _case_table(results: Results, agents: list[Agent]) -> Iterator[str]:
    yield """## All cases

**yes**: everything that matters reached the model. **partly**: some of it, see below. **no**: nothing of it. **ended**: the agent stopped with an error.
**not offered**: the model was not given the tool. The setup is a board over stdio; `*` marks a case with another outcome in another setup.
"""
    cases = [case for case in SHOWN if case.pieces]
    yield f"| | {' | '.join(case.title for case in cases)} |"
    yield "|---" * (len(cases) + 1) + "|"
    for agent in agents:
        cells = []
        for case in cases:
            outcomes = {
                _status(case, run.seen.get(case.name))
                for setup in SETUPS
                if setup.can_show(case) and (run := results.get((agent.folder, setup.name))) is not None
            }
            first = _status(case, _seen_first(results, agent, case))
            cells.append(first + ("*" if len(outcomes) > 1 else ""))
        yield f"| {agent.name} | {' | '.join(cells)} |"
    yield ""


def _section(results: Results, agent: Agent) -> Iterator[str]:
    first = results[agent.folder, FIRST]
    yield f"\n### {agent.name}\n"
    hosts = sorted({host for setup in SETUPS for host in _run(results, agent, setup.name).hosts})
    # The address of a package registry depends on the settings of the machine.
    named = dict.fromkeys("a package registry" if host.startswith("registry.") else host for host in hosts)
    tried = f" It tried to reach {', '.join(named)}." if named else ""
    yield f"`{agent.package}` {agent.version}, model API: {agent.api}. Tools: {first.tools}.{tried}\n"
    yield "| case | what the model saw | dropped |\n|---|---|---|"
    for case in SHOWN:
        seen = _seen_first(results, agent, case)
        yield f"| {case.title} | {_cell(seen)} | {', '.join(_missing(case, seen))} |"
    others = list(_differences(results, agent))
    if others:
        yield "\nOther outcomes in other setups:\n\n| case | setup | what the model saw | dropped |\n|---|---|---|---|"
        yield from others


def _differences(results: Results, agent: Agent) -> Iterator[str]:
    for case in SHOWN:
        expected = _outcome(case, _seen_first(results, agent, case))
        found: dict[str, list[str]] = {}
        for setup in SETUPS[1:]:
            seen = _run(results, agent, setup.name).seen.get(case.name)
            if seen is not None and _outcome(case, seen) != expected:
                row = f"{_cell(seen)} | {', '.join(_missing(case, seen))}"
                found.setdefault(row, []).append(setup.name)
        for row, setups in found.items():
            yield f"| {case.title} | {'; '.join(setups)} | {row} |"


def _seen_first(results: Results, agent: Agent, case: Case) -> Seen | None:
    """What the model saw in the setup that is shown first."""
    return _run(results, agent, FIRST if case.server is None else PROXY).seen.get(case.name)


def _run(results: Results, agent: Agent, setup: str) -> Run:
    return results.get((agent.folder, setup)) or Run()


def _missing(case: Case, seen: Seen | None) -> list[str]:
    if seen is None or seen.obstacle is not None:
        return []
    return [piece for piece, marker in case.pieces.items() if not seen.shows(marker)]


def _outcome(case: Case, seen: Seen | None) -> tuple[bool, list[str]]:
    return seen is None or seen.obstacle is not None, _missing(case, seen)


def _status(case: Case, seen: Seen | None) -> str:
    if seen is None:
        return "–"
    if seen.obstacle is not None:
        if "not among" in seen.obstacle:
            return "not offered"
        return "ended" if "ended" in seen.obstacle or "no call" in seen.obstacle else "no"
    missing = _missing(case, seen)
    return "yes" if not missing else "no" if len(missing) == len(case.pieces) else "partly"


def _cell(seen: Seen | None) -> str:
    if seen is None:
        return ""
    if seen.obstacle is not None:
        return f"*{_escape(_shorten(_clean(seen.obstacle)))}*"
    parts = [
        f"*an image ({_escape(part.text)})*" if part.kind == "image" else f"`{_escape(_shorten(text), code=True)}`"
        for part in seen.parts
        if part.kind == "image" or (text := _clean(part.text)).strip()
    ]
    flag = " (marked as an error)" if seen.is_error else ""
    return (" ".join(parts) or "*nothing*") + flag


def _clean(text: str) -> str:
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return text


def _shorten(text: str) -> str:
    if len(text) <= HEAD + TAIL + 20:
        return text
    return f"{text[:HEAD]} … {len(text) - HEAD - TAIL:,} characters … {text[-TAIL:]}"


def _escape(text: str, *, code: bool = False) -> str:
    """Text of a peer, inert inside a table of Markdown."""
    flat = text.strip().replace("\r", "").replace("\n", " ⏎ ").replace("|", "\\|")
    return flat.replace("`", "ˋ") if code else re.sub(r"([*_<>`\[\]])", r"\\\1", flat)
