"""Edits of JSON and TOML texts: the value changes as asked, and everything else stays as it is, to the byte."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from pegboard.config.editing import json_text, toml_text
from pegboard.config.editing.edits import Edit, apply_edits, parse_text
from pegboard.config.source_file import parse_source
from pegboard.errors import SetupError

JSON, TOML = Path("a.json"), Path("a.toml")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)

KEYS = st.text(alphabet='ab."\\é/ \n', min_size=0, max_size=4)
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='ab"/*\\é\n', max_size=5)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(KEYS, TREES, max_size=4)
GAPS = st.sampled_from(["", "", " ", "\n  ", "\r\n\t", " // one \u00a0\n", "/* two */", "\n// three\r\n  "])


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A value as JSON, with comments, gaps and trailing commas anywhere."""
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    pairs = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    parts = []
    for key, item in pairs:
        start = "" if key is None else f"{json.dumps(key)}{draw(GAPS)}:{draw(GAPS)}"
        parts.append(f"{draw(GAPS)}{start}{draw(written(item))}{draw(GAPS)}")
    inner = ",".join(parts)
    if parts and draw(st.booleans()):
        inner += ","
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{inner}{draw(GAPS)}{closing}"


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    tree = draw(OBJECTS)
    text = draw(GAPS) + draw(written(tree)) + draw(GAPS)
    paths = [path for path in parse_source(text, JSON).spans if path and all(isinstance(key, str) for key in path)]
    place = draw(st.sampled_from(paths)) if paths and draw(st.booleans()) else ()
    if not place or draw(st.booleans()):
        place = (*place, draw(KEYS))
    return tree, text, place


def comments(text: str) -> list[str]:
    return [found.rstrip(" \t\r") for found in COMMENT.findall(text) if not found.startswith('"')]


def check_rest(text: str, new: str, place: tuple[str, ...]) -> None:
    """Everything that the edit of `place` does not concern is the same."""
    before, after = parse_source(text, JSON), parse_source(new, JSON)
    for path, span in before.spans.items():
        if path != place[: len(path)] and path[: len(place)] != place:
            assert new[after.spans[path].start : after.spans[path].end] == text[span.start : span.end]
    holder = place[:-1]
    while holder not in before.spans:
        holder = holder[:-1]
    assert new[: after.spans[holder].value] == text[: before.spans[holder].value]
    assert new[after.spans[holder].end :] == text[before.spans[holder].end :]
    kept = text
    if place in before.spans:
        kept = text[: before.spans[place].start] + " " + text[before.spans[place].end :]
    left = iter(comments(new))
    assert all(comment in left for comment in comments(kept))


@given(case=cases(), value=TREES)
def test_a_value_is_set_in_json_and_the_rest_stays(
    case: tuple[dict[str, Any], str, tuple[str, ...]], value: Any
) -> None:
    tree, text, place = case
    inside: Any = tree
    for key in place[:-1]:
        inside = inside.setdefault(key, {})
        if not isinstance(inside, dict):
            with pytest.raises(SetupError, match="is not an object"):
                apply_edits(text, [Edit(place, value)], JSON)
            return
    new = apply_edits(text, [Edit(place, value)], JSON)
    inside[place[-1]] = value
    assert parse_source(new, JSON).tree == tree
    check_rest(text, new, place)
    assert apply_edits(new, [Edit(place, value)], JSON) == new


@given(case=cases())
def test_a_member_is_removed_from_json_and_the_rest_stays(case: tuple[dict[str, Any], str, tuple[str, ...]]) -> None:
    tree, text, place = case
    new = apply_edits(text, [Edit(place)], JSON)
    inside: Any = tree
    for key in place[:-1]:
        inside = inside.get(key) if isinstance(inside, dict) else None
    if isinstance(inside, dict):
        inside.pop(place[-1], None)
    assert parse_source(new, JSON).tree == tree
    check_rest(text, new, place)


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("", '{\n  "s": {\n    "x": {\n      "args": ["-y"]\n    }\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "x": {\n      "args": ["-y"]\n    }\n  }\n}'),
        ('{"s":{}}', '{"s":{"x": {"args": ["-y"]}}}'),
        ('{"s": {"a": 1}}\n', '{"s": {"a": 1, "x": {"args": ["-y"]}}}\n'),
        (
            '{\n\t"s": {\n\t\t"a": 1, // one\n\t\t// two\n\t},\n}\n',
            '{\n\t"s": {\n\t\t"a": 1, // one\n\t\t// two\n\t\t"x": {\n\t\t\t"args": ["-y"]\n\t\t},\n\t},\n}\n',
        ),
        (
            '{\r\n    "s": {\r\n        "a": 1 // one\r\n    }\r\n}',
            '{\r\n    "s": {\r\n        "a": 1, // one\r\n        "x": {\r\n            "args": ["-y"]\r\n        }\r\n    }\r\n}',
        ),
    ],
)
def test_a_new_member_has_the_style_of_its_file(text: str, new: str) -> None:
    assert apply_edits(text, [Edit(("s", "x"), {"args": ["-y"]})], JSON) == new
    assert parse_source(apply_edits(new, [Edit(("s", "x"))], JSON), JSON).tree == (
        {"s": {}} if len(text) < 12 else parse_source(text, JSON).tree
    )


def test_an_entry_is_changed_member_by_member_so_that_its_comments_stay() -> None:
    text = '{"x": {\n  // why\n  "command": "old", // it\n  "args": ["a"],\n  "trust": true\n}}'
    new = apply_edits(text, [Edit(("x",), {"command": "new", "trust": True, "env": {"A": "1"}})], JSON)
    assert new == '{"x": {\n  // why\n  "command": "new", // it\n  "trust": true,\n  "env": {\n    "A": "1"\n  }\n}}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{\n"s": []}', "a.json:2: s is not an object, so nothing can be added to it; correct it first"),
        ('{"s": {"x": 1,\n"x": 2}}', "a.json:2: s.x is given twice (also on line 1); remove one of them first"),
        ('{"s": {\n', "a.json:2: Invalid JSON in config file: expected a key in double quotes or '}', got the end"),
        ("[]", "a.json:1: the file is not an object, so nothing can be added to it; correct it first"),
    ],
)
def test_a_json_file_that_cannot_be_edited_is_reported_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(SetupError, match=re.escape(problem)):
        apply_edits(text, [Edit(("s", "x"), {})], JSON)


SAMPLE = """\
model = "m" # the model
notes = '''
[mcp_servers.not_a_table]
x = 1
'''

[mcp_servers.docs] # the docs
command = "npx"
args = [
  "-y", # yes
  "docs]",
]

  [mcp_servers.docs.env]
  KEY = "a # b"

[projects."/home/a.b"]
trust_level = "trusted"
"""


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_a_table_is_added_to_toml_at_the_end_and_removed_again(line_break: str) -> None:
    text = SAMPLE.replace("\n", line_break)
    new = apply_edits(text, [Edit(("mcp_servers", "a b"), {"url": "http://x", "env": {"A-B": 'q"\x7f'}})], TOML)
    added = '\n[mcp_servers."a b"]\nurl = "http://x"\nenv = { A-B = "q\\"\\u007F" }\n'
    assert new == text + added.replace("\n", line_break)
    assert apply_edits(new, [Edit(("mcp_servers", "a b"))], TOML) == text


def test_a_table_of_toml_is_changed_key_by_key() -> None:
    entry = {"command": "uvx", "args": ["docs"], "env": {"KEY": "new", "MORE": "1"}, "enabled": True}
    new = apply_edits(SAMPLE, [Edit(("mcp_servers", "docs"), entry)], TOML)
    assert new == SAMPLE.replace('"npx"', '"uvx"').replace(
        'args = [\n  "-y", # yes\n  "docs]",\n]\n', 'args = ["docs"]\nenabled = true\n'
    ).replace('KEY = "a # b"\n', 'KEY = "new"\n  MORE = "1"\n')


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("s = { a = { b = 1 } } # c\n", "s = { a = { b = 1 }, x = { y = 2 } } # c\n"),
        ("[s]\na.b = 1\n", "[s]\na.b = 1\n\n[s.x]\ny = 2\n"),
        ("[s.a]\nb = 1", "[s.a]\nb = 1\n\n[s.x]\ny = 2\n"),
        ("", "[s.x]\ny = 2\n"),
        ("[s]\nx = { y = 1, z = 3 }\n", "[s]\nx = { y = 2 }\n"),
        ("s.x.y = 1\n[t]\n", "s.x.y = 2\n[t]\n"),
    ],
)
def test_every_form_of_a_table_in_toml_is_edited(text: str, new: str) -> None:
    assert apply_edits(text, [Edit(("s", "x"), {"y": 2})], TOML) == new
    assert "x" not in tomllib.loads(apply_edits(new, [Edit(("s", "x"))], TOML)).get("s", {})


def test_a_form_of_toml_that_cannot_be_edited_is_left_alone() -> None:
    with pytest.raises(SetupError, match="cannot be changed safely; change it by hand"):
        apply_edits("[[s]]\na = 1\n[[s]]\na = 2\n", [Edit(("s", "x"), {"y": 2})], TOML)


TOML_KEYS = st.text(alphabet='ab."é #', min_size=0, max_size=4)
TOML_TREES = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text(alphabet="ab\"'#[]{}\\é\n\x7f", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TOML_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(
    tables=st.dictionaries(TOML_KEYS, st.dictionaries(TOML_KEYS, TOML_TREES, max_size=3), max_size=3),
    value=st.dictionaries(TOML_KEYS, TOML_TREES, max_size=3),
    data=st.data(),
)
def test_a_table_is_set_in_toml_and_the_others_stay(tables: Any, value: Any, data: st.DataObject) -> None:
    text = "# first\n"
    for name, table in tables.items():
        text = apply_edits(text, [Edit(("s", name), table)], TOML) + "# after\n"
    assert tomllib.loads(text).get("s", {}) == tables
    name = data.draw(st.sampled_from([*tables, "new"]))
    new = apply_edits(text, [Edit(("s", name), value)], TOML)
    assert tomllib.loads(new)["s"] == {**tables, name: value}
    assert new.count("# after\n") == text.count("# after\n")
    removed = apply_edits(new, [Edit(("s", name), UNSET)], TOML)
    assert tomllib.loads(removed).get("s", {}) == {other: item for other, item in tables.items() if other != name}


@pytest.mark.parametrize("name", ["a.json", "a.toml"])
def test_the_members_of_an_entry_that_stay_cost_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {f"key{number}": number for number in range(300)}
    file = Path(name)
    text = apply_edits("", [Edit(("servers", "a"), entry)], file)
    parsed: list[int] = []
    loads, parse = tomllib.loads, json_text.parse_source
    monkeypatch.setattr(tomllib, "loads", lambda text: (parsed.append(1), loads(text))[1])
    monkeypatch.setattr(json_text, "parse_source", lambda text, file: (parsed.append(1), parse(text, file))[1])
    changed = apply_edits(text, [Edit(("servers", "a"), {**entry, "key7": "x"})], file)
    assert parse_text(changed, file)["servers"]["a"]["key7"] == "x"
    assert len(parsed) < 12


@pytest.mark.parametrize("suffix", [".json", ".toml"])
@pytest.mark.parametrize("old", ["", '{"toolboxes": {"main": {"mcpServers": {"a": {"command": "x"}}}}}'])
def test_many_servers_are_added_without_parsing_the_text_for_each(
    suffix: str, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = old if suffix == ".json" or not old else '[toolboxes.main.mcpServers.a]\ncommand = "x"\n'
    parsed: list[int] = []
    for module, name in ((json_text, "parse_source"), (toml_text.tomllib, "loads")):
        before = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *words, before=before: (parsed.append(1), before(*words))[1])
    edits = [Edit(("toolboxes", "main", "mcpServers", f"s{number}"), {"command": "y"}) for number in range(100)]
    changed = apply_edits(text, edits, Path(f"x{suffix}"))
    servers = parse_text(changed, Path(f"x{suffix}"))["toolboxes"]["main"]["mcpServers"]  # type: ignore[index, call-overload]
    assert len(servers) == 100 + bool(old)
    assert len(parsed) < 10
