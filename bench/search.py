"""What search over many tools costs, and what each mode costs a model (`python bench/search.py [TOOLS]`).

The tools are those of tests/gateway/toolshed.py, over and over under other servers, with words of their own; the
questions are those of tests/gateway/questions.py. Guides for 1,000 tools: an index in 100 ms, a query
in 2 ms, both of CPU time, which is the same however busy the machine is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parents[1]))

from pegboard.gateway.modes.meta_tool_host import Visibility
from pegboard.gateway.modes.mode_choice import count_costs
from pegboard.gateway.modes.tool_directory import Directory, DirectoryEntry
from pegboard.middleware.observability.token_count import count_tokens
from pegboard.tools.qualified_names import ToolName
from tests.gateway.meta_tool_board import Workbench
from tests.gateway.real_questions import REAL_QUESTIONS, real_entries
from tests.gateway.sample_tools import entries
from tests.gateway.search_queries import LATER, QUESTIONS

ROUNDS = 5
QUERIES = [question.replace("*", "") for question, _ in QUESTIONS + LATER]


def many(count: int) -> Iterator[DirectoryEntry]:
    """So many tools, no two of which are described in quite the same words."""
    shed, random = list(entries()), Random(1)
    for number in range(count):
        one, copy = shed[number % len(shed)], number // len(shed)
        place = ToolName(one.place.toolbox, f"{one.place.server}-{copy}" if copy else one.place.server, one.place.tool)
        own = " ".join("".join(random.choices("abcdefghijklmnop", k=7)) for _ in range(3))
        described = f"{one.definition['description']} {own}"
        yield DirectoryEntry(
            place.qualified, place, {**one.definition, "name": place.qualified, "description": described}, one.tags
        )


def spent(tools: Directory, query: str) -> float:
    began = time.thread_time()
    tools.search(query, Visibility().admits)
    return (time.thread_time() - began) * 1e3


def main(count: int) -> None:
    listed = list(many(count))
    built, first, again = [], [], []
    for _ in range(ROUNDS):
        tools = Directory(listed)
        began = time.thread_time()
        tools.index.prepare()
        built.append((time.thread_time() - began) * 1e3)
        first += [spent(tools, query) for query in QUERIES]
        again += [spent(tools, query) for query in QUERIES]
    print(f"{count} tools")
    print(f"  index made in {min(built):.0f} ms of CPU (median {median(built):.0f})")
    for name, times in (("a query's words for the first time", first), ("again", again)):
        print(f"  {name}: {median(times):.2f} ms, 95 of 100 within {quantiles(times, n=20)[-1]:.2f} ms")
    real = Directory(real_entries())
    hits = [
        any(f"{one.place.server}/{one.place.tool}" in wanted for one in real.search(question, Visibility().admits)[:5])
        for question, wanted in REAL_QUESTIONS
    ]
    print(
        f"  {sum(hits)} of {len(hits)} questions over {len(real)} tools of real servers find theirs among the first five"
    )
    meta = Workbench().meta
    begins = [tool.definition() for tool in meta.tools if tool.name.startswith(("workbench_", "search"))]
    for line in count_costs(Directory(listed), meta.listed(Visibility(), None), begins, count_tokens).lines():
        print(f"  {line}")


if __name__ == "__main__":
    for wanted in [int(text) for text in sys.argv[1:]] or [200, 1_000, 5_000]:
        main(wanted)
