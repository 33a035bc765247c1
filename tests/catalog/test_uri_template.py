"""URI templates, filled in and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.catalog.uri_template import Template, is_template
from pegboard.errors import DeclarationError

SEGMENT = st.text(alphabet=st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("template", "uri", "variables"),
    [
        ("notes://{name}", "notes://today", {"name": "today"}),
        ("notes://{name}", "notes://a%20b", {"name": "a b"}),
        ("test://template/{id}/data", "test://template/123/data", {"id": "123"}),
        ("file:///{+path}", "file:///a/b/c.txt", {"path": "a/b/c.txt"}),
        ("x://s{?q,lang}", "x://s?q=1&lang=no", {"q": "1", "lang": "no"}),
        ("x://s{?q,lang}", "x://s?lang=no", {"lang": "no"}),
        ("x://s{?q}", "x://s", {}),
        ("x://{a}-{b}", "x://1-2", {"a": "1", "b": "2"}),
        ("x://a{/b}/c", "x://a/q/c", {"b": "q"}),
        ("x://{a,b}", "x://1,2", {"a": "1", "b": "2"}),
        ("x://f{.ext}", "x://f.txt", {"ext": "txt"}),
        ("x://p{;a}", "x://p;a=1", {"a": "1"}),
        ("x://p{#part}", "x://p#two", {"part": "two"}),
        ("{;3c}c", ";3c=1c", {"3c": "1"}),
        ("{?ab,b}b", "?ab=1&b=2b", {"ab": "1", "b": "2"}),
        ("x://{?a}&b=1", "x://?a=2&b=1", {"a": "2"}),
    ],
)
def test_a_uri_of_the_template_tells_its_variables(template: str, uri: str, variables: dict[str, str]) -> None:
    assert Template(template).match(uri) == variables


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("notes://{name}", "notes://a/b"),
        ("notes://{name}", "notes://"),
        ("notes://{name}", "other://a"),
        ("test://{id}/data", "test://1/other"),
        ("test://{id}/data", "test://1/data/more"),
        ("x://{a}", "x://a?b"),
    ],
)
def test_another_uri_does_not_match(template: str, uri: str) -> None:
    assert Template(template).match(uri) is None


@pytest.mark.parametrize(
    ("template", "values", "uri"),
    [
        ("x://{a}", {"a": "b c"}, "x://b%20c"),
        ("x://{+a}", {"a": "b/c"}, "x://b/c"),
        ("x://s{?q,lang}", {"q": "a&b"}, "x://s?q=a%26b"),
        ("x://s{?q*}", {"q": ["1", "2"]}, "x://s?q=1&2"),
        ("x://{a:3}", {"a": "abcdef"}, "x://abc"),
        ("x://{a}", {}, "x://"),
    ],
)
def test_values_make_a_uri(template: str, values: dict[str, object], uri: str) -> None:
    assert Template(template).expand(values) == uri


@given(SEGMENT, SEGMENT)
def test_what_was_filled_in_is_read_back(first: str, second: str) -> None:
    template = Template("x://{a}/then/{b}{?c}")
    values = {"a": first, "b": second, "c": first}
    assert template.match(template.expand(values)) == values


@given(st.text(max_size=60))
def test_any_text_is_matched_or_not_and_never_an_error(text: str) -> None:
    Template("x://{a}/{+b}{?c,d}{#e}").match("x://" + text)


@pytest.mark.parametrize("template", ["x://{", "x://}", "x://{a", "x://{a-b}", "x://{}", "x://{a}{a}", "x://{a:0}"])
def test_a_template_that_is_none_is_refused_where_it_is_declared(template: str) -> None:
    with pytest.raises(DeclarationError, match=r"^here: "):
        Template(template, "here")


def test_only_braces_make_a_template() -> None:
    assert is_template("x://{a}")
    assert not is_template("x://a")
