"""Search over tools: what agents ask finds what they need, whatever they type."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pegboard import Board, Client, Gateway
from pegboard.errors import SetupError
from pegboard.gateway.modes import tool_search
from pegboard.gateway.modes.search_words import SYNONYMS, Spelling, significant_words, split_words
from pegboard.gateway.modes.tool_directory import Directory, DirectoryEntry, arguments_text
from pegboard.gateway.modes.tool_search import MAX_CACHED_ROWS, MAX_FIELD_LENGTH, SearchDocument, SearchIndex
from pegboard.tools.qualified_names import ToolName
from tests.depth import examples
from tests.gateway.real_questions import REAL_QUESTIONS, real_entries
from tests.gateway.sample_tools import SHED, directory
from tests.gateway.search_queries import LATER, QUESTIONS
from tests.gateway.test_gateway import configured, server
from tests.waiting import until
from tests.work import count_instructions, grows_linearly

SHOWN = 5


def everything(_entry: DirectoryEntry) -> bool:
    return True


def found(query: str, tools: Directory) -> list[str]:
    return [f"{entry.place.server}/{entry.place.tool}" for entry in tools.search(query, everything)[:SHOWN]]


def recall(questions: Iterable[tuple[str, tuple[str, ...]]], slip: Callable[[str], str]) -> float:
    """The share of questions that find one of their tools among the first five; `slip` spoils the main word of each."""
    tools = directory()
    hits = []
    for question, wanted in questions:
        before, word, after = question.split("*")
        hits.append(not set(wanted).isdisjoint(found(f"{before}{slip(word)}{after}", tools)))
    return sum(hits) / len(hits)


def swapped(word: str) -> str:
    place = len(word) // 2
    return word[: place - 1] + word[place] + word[place - 1] + word[place + 1 :]


def left_out(word: str) -> str:
    place = len(word) // 2
    return word[:place] + word[place + 1 :]


def doubled(word: str) -> str:
    place = len(word) // 2
    return word[:place] + word[place] + word[place:]


def changed(word: str) -> str:
    place = len(word) // 2
    return word[:place] + ("x" if word[place] != "x" else "z") + word[place + 1 :]


def test_the_questions_cover_enough_tools_of_enough_servers() -> None:
    servers = [server for servers in SHED.values() for server in servers]
    known = {f"{entry.place.server}/{entry.place.tool}" for entry in directory()}

    assert len(servers) >= 12
    assert len(known) >= 150
    assert len(QUESTIONS) >= 120
    assert {tool for _, wanted in QUESTIONS + LATER for tool in wanted} <= known


@pytest.mark.parametrize("questions", [QUESTIONS, LATER], ids=["questions", "later questions"])
def test_nine_of_ten_questions_find_their_tool_among_the_first_five(
    questions: tuple[tuple[str, tuple[str, ...]], ...],
) -> None:
    reached = recall(questions, lambda word: word)
    print(f"recall@{SHOWN} over {len(questions)} questions: {reached:.3f}")
    assert reached >= 0.9


def test_34_of_35_questions_over_tools_of_real_servers_find_theirs_among_the_first_five() -> None:
    tools = Directory(real_entries())
    missed = [question for question, wanted in REAL_QUESTIONS if set(wanted).isdisjoint(found(question, tools))]
    assert (len(tools), len(REAL_QUESTIONS)) == (137, 35)
    assert len(missed) <= 1, missed


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("open a pull request", "create_pull_request"),
        ("open the pull request", "get_pull_request"),
        ("show a pull request", "get_pull_request"),
        ("add an issue", "create_issue"),
        ("which issues are there", "list_issues"),
    ],
)
def test_a_question_that_asks_to_change_finds_what_changes_before_what_reads(question: str, first: str) -> None:
    names = ["get_pull_request", "create_pull_request", "list_issues", "create_issue", "get_issue"]
    tools = SearchIndex([SearchDocument(name=name) for name in names])
    assert names[tools.search(question)[0]] == first


def test_a_name_without_a_verb_is_judged_by_the_annotations() -> None:
    pages = [SearchDocument(name="branch", changes=changes) for changes in (False, True)]
    assert SearchIndex(pages).search("make a branch") == [1, 0]
    assert SearchIndex(pages).search("show the branch") == [0, 1]


@pytest.mark.parametrize("slip", [swapped, left_out, doubled, changed])
@pytest.mark.parametrize("questions", [QUESTIONS, LATER], ids=["questions", "later questions"])
def test_nine_of_ten_find_it_with_a_slip_in_the_main_word(
    questions: tuple[tuple[str, tuple[str, ...]], ...], slip: Callable[[str], str]
) -> None:
    reached = recall(questions, slip)
    print(f"recall@{SHOWN} over {len(questions)} questions, a letter {slip.__name__}: {reached:.3f}")
    assert reached >= 0.9


def test_a_name_is_found_by_any_of_its_words() -> None:
    tools = SearchIndex(
        [
            SearchDocument(name="readTextFile"),
            SearchDocument(name="HTTPRequest"),
            SearchDocument(name="list_open_issues"),
        ]
    )

    assert tools.search("text") == [0]
    assert tools.search("http") == [1]
    assert tools.search("issue") == [2]
    assert tools.search("readTextFile")[0] == 0


def test_the_last_word_may_be_unfinished() -> None:
    tools = SearchIndex(
        [SearchDocument(name="a", description="kubernetes"), SearchDocument(name="b", description="postgres")]
    )

    assert tools.search("kuber") == [0]
    assert tools.search("a post") == [1]


def test_a_part_of_a_word_is_enough() -> None:
    assert SearchIndex(
        [SearchDocument(name="a", description="database"), SearchDocument(name="b", description="other")]
    ).search("tabas x") == [0]


def test_a_word_in_the_name_counts_more_than_one_in_an_argument() -> None:
    pages = [
        SearchDocument(name="a", arguments="refund"),
        SearchDocument(name="refund", arguments="a"),
        SearchDocument(name="c", description="refund"),
    ]

    assert SearchIndex([*pages, *[SearchDocument(name=f"x{n}") for n in range(9)]]).search("refund") == [1, 2, 0]


def test_equals_come_in_the_order_of_the_catalog() -> None:
    assert SearchIndex(
        [
            SearchDocument(name="same"),
            SearchDocument(name="same"),
            SearchDocument(name="same"),
            SearchDocument(name="other"),
        ]
    ).search("same") == [
        0,
        1,
        2,
    ]


def test_arguments_and_tags_are_searched_too() -> None:
    pages = [
        SearchDocument(name="a", arguments="latitude"),
        SearchDocument(name="b", tags="billing"),
        SearchDocument(name="c", owner="dev jira"),
    ]

    assert [SearchIndex(pages).search(word) for word in ("latitude", "billing", "jira")] == [[0], [1], [2]]


def test_what_is_not_admitted_leaves_no_trace() -> None:
    tools = directory()
    allowed = tools.search("list", lambda entry: entry.place.toolbox == "code")

    assert allowed
    assert {entry.place.toolbox for entry in allowed} == {"code"}
    assert len(allowed) < len(tools.search("list", everything))


def test_nothing_is_found_where_nothing_is() -> None:
    assert SearchIndex().search("anything") == []
    assert directory().search("", everything) == []
    assert directory().search("!!! 🙂 ???", everything) == []


_TOOLS = directory()
_TRICKS = ['"', "'", "*", "NEAR(a b)", "a AND", "OR", "name:x", "^a", "{name} : a", "-a", "a;--", "\0", "\ud800", "🙂"]


@settings(max_examples=examples(40), deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from([*_TRICKS, "file", "read"])).map(" ".join)))
@example("NOT")
@example('""')
@example("①²½ ª")
@example("file " * 2_000)
@example("x" * 10_000)
@example("ﬁle ǅ İ")
def test_any_text_is_a_query(query: str) -> None:
    answer = _TOOLS.search(query, everything)

    assert len(set(map(id, answer))) == len(answer)
    assert answer == _TOOLS.search(query, everything)


@given(st.lists(st.text(max_size=30), max_size=6))
def test_any_text_can_be_searched(texts: list[str]) -> None:
    tools = SearchIndex([SearchDocument(name=text, description=text, arguments=text) for text in texts])

    for text in texts:
        tools.search(text)


@given(st.data())
def test_every_single_slip_is_found(data: st.DataObject) -> None:
    word = data.draw(st.text("abcde", min_size=3, max_size=8))
    slip = data.draw(st.sampled_from([swapped, left_out, doubled, changed]))
    others = data.draw(st.lists(st.text("vwxyz", min_size=1, max_size=8), max_size=5))

    assert word in Spelling({word, *others}).near(slip(word), 50)


def test_words_two_slips_apart_are_others() -> None:
    assert Spelling(["file", "abcd"]).near("bile", 5) == ["file"]
    assert Spelling(["flies"]).near("xiles", 5) == []
    assert Spelling(["abcd"]).near("badc", 5) == []


def test_words_that_say_nothing_count_only_where_there_are_no_others() -> None:
    assert significant_words("what is the time in here", 10) == ["time", "here"]
    assert significant_words("what is it", 10) == ["what", "is", "it"]
    assert significant_words("a b c d", 2) == ["b", "c"]


def test_words_are_split_at_case_underscores_and_signs() -> None:
    assert split_words("readFile_v2.HTTPServer-ok") == ["read", "file", "v2", "http", "server", "ok"]


def test_arguments_are_described_by_name_and_description() -> None:
    schema = {"type": "object", "properties": {"path": {"description": "Where"}, "odd": True, "n": {"type": "integer"}}}

    assert arguments_text(schema).split() == ["path", "Where", "odd", "n"]
    assert arguments_text({"properties": []}) == arguments_text(None) == ""


def test_a_catalogue_of_books_is_bounded_and_its_tools_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_search, "MAX_TEXT", 50_000)
    monkeypatch.setattr(tool_search, "MAX_VOCABULARY", 500)
    random = Random(3)
    words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(3_000)]
    books = [
        SearchDocument(name=f"tool_{words[n]}", description=" ".join(random.choices(words, k=400))) for n in range(100)
    ]
    tools = SearchIndex([*books, SearchDocument(name="last", title="needle", description="haystack")])
    tools.prepare()

    assert tools.search("needle") == [100]
    assert tools.search("haystack") == []
    assert tools.search(swapped(words[5]))[0] == 5
    assert len(tools._vocabulary) == 500
    assert sum(len(text) for fields in tools._texts for text in fields) < 60_000


def test_what_is_remembered_of_queries_is_bounded() -> None:
    tools = SearchIndex([SearchDocument(name=f"same t{number}") for number in range(1_000)])
    for number in range(1_000):
        tools.search(f"same t{number} t")

    assert sum(len(found) for found in tools._kept.values()) <= MAX_CACHED_ROWS


def test_a_python_without_fts5_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Poor(sqlite3.Connection):
        def executescript(self, script: str, /) -> sqlite3.Cursor:
            raise sqlite3.OperationalError("no such module: fts5")

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **told: connect(*given, factory=Poor, **told))

    with pytest.raises(SetupError, match="FTS5"):
        SearchIndex([SearchDocument(name="a")]).search("a")


def test_a_tool_is_found_by_served_qualified_and_structured_name() -> None:
    place = ToolName("dev", "files", "read")
    tools = Directory([DirectoryEntry("read", place, {"name": "read"})])

    assert tools.find("read") is tools.find("dev__files__read") is tools.find_at(place)
    assert tools.find("dev__files__write") is None


@pytest.mark.parametrize(
    "piece", ["a", "delete ", "readFile", "x1 ", "ABc", "é́", "_", "zzzz9 ", "a b ", '"* NEAR('], ids=repr
)
def test_a_query_costs_in_proportion_to_its_length_and_no_more_beyond_the_longest(piece: str) -> None:
    index = SearchIndex(
        [SearchDocument(name=f"delete_file_{number}", description="Removes zzzz8 files") for number in range(50)]
    )
    index.prepare()

    def ask(size: int) -> Callable[[], object]:
        query = (piece * size)[:size]

        def search() -> None:
            index._kept.clear()
            index.search(query)

        return search

    assert grows_linearly(ask, MAX_FIELD_LENGTH // 4)
    # Twenty times the length for the price of the longest; the interpreter itself counts a few more or less.
    assert count_instructions(ask(MAX_FIELD_LENGTH * 20)) <= count_instructions(ask(MAX_FIELD_LENGTH)) * 1.5


def test_words_that_every_tool_has_are_looked_up_once_each() -> None:
    words = list(SYNONYMS)[:32]
    index = SearchIndex([SearchDocument(name=f"t{number}", description=" ".join(words)) for number in range(1_000)])
    index.prepare()
    asked: list[str] = []
    index._tables.set_trace_callback(asked.append)
    assert len(index.search(" ".join(words))) == 1_000
    assert len([one for one in asked if one.startswith("SELECT rowid, -bm25")]) == len(words)


async def test_a_search_among_very_many_tools_runs_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    tool_search = Directory.search

    def watched(self: Directory, *asked: Any) -> list[DirectoryEntry]:
        threads.append(threading.get_ident())
        return tool_search(self, *asked)

    monkeypatch.setattr(Directory, "search", watched)
    for count, on_the_loop in ((10, True), (600, False)):
        board = Board("many")
        for number in range(count):
            board.add(lambda: "", name=f"tool{number}", description="Deletes files")
        gateway = Gateway(configured(server("calc"), mode="proxy"), boards={"calc": board})
        async with Client(gateway) as client:
            await until(lambda: len(gateway.endpoints[0].directory) == count)  # noqa: B023 — it is over before the next round
            assert f'"found":{count}' in (await client.call("search_tools", {"query": "delete"})).text
        assert (threads.pop() == threading.get_ident()) is on_the_loop
