"""URIs through the gateway: reversible without a table, and safe for templates."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl

from pegboard.catalog.uri_template import Template
from pegboard.gateway.uri_rewriter import unwrap_uri, wrap_uri

names = st.from_regex(r"[aB0-](_?[aB0-]){0,6}", fullmatch=True)
schemes = st.from_regex(r"[A-Za-z][A-Za-z0-9+.-]{0,8}", fullmatch=True) | st.sampled_from(["file", "ui", "memo", "x"])
own_schemes = schemes.filter(lambda scheme: scheme.lower() not in ("http", "https"))
rests = st.text(max_size=30) | st.text("/:~!?#@[]%ab.{}", max_size=20)
uris = st.builds("{}:{}".format, schemes, rests) | st.builds("{}://{}".format, schemes, rests) | rests


def stays(uri: str) -> bool:
    return uri.lower().startswith(("http:", "https:"))


values = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", "e"]),
    st.text(max_size=8) | st.lists(st.text(max_size=4), max_size=3),
    max_size=5,
)
expressions = st.builds(
    "{{{}{}{}}}".format,
    st.sampled_from(["", "+", "#", ".", "/", ";", "?", "&"]),
    st.just("NAME"),
    st.sampled_from(["", "*"]),
)
literals = st.text("/:~!?#@%ab.é", max_size=6)
# An expression's variable may stand in a template once.
tails = st.lists(literals | expressions, max_size=5).map(
    lambda parts: "".join(part.replace("NAME", "abcd"[min(index, 3)]) for index, part in enumerate(parts[:4]))
)


@pytest.mark.parametrize(
    ("uri", "wrapped"),
    [
        ("file:///a", "file://fs.dev.pegboard/~/a"),
        ("notes://h/p", "notes://fs.dev.pegboard/~h/p"),
        ("notes://h", "notes://fs.dev.pegboard/~h"),
        ("notes://h?q#f", "notes://fs.dev.pegboard/~h?q#f"),
        ("memo:n", "memo://fs.dev.pegboard/:n"),
        ("file:/a", "file://fs.dev.pegboard/:/a"),
        ("urn:isbn:1", "urn://fs.dev.pegboard/:isbn:1"),
        ("ui://app/main.html", "ui://fs.dev.pegboard/~app/main.html"),
        ("notes://{name}{?page}", "notes://fs.dev.pegboard/~{name}{?page}"),
        ("file:///{+path}", "file://fs.dev.pegboard/~/{+path}"),
        ("readme", "pegboard://fs.dev.pegboard/!readme"),
        ("/etc/motd", "pegboard://fs.dev.pegboard/!/etc/motd"),
        ("{+uri}", "pegboard://fs.dev.pegboard/!{+uri}"),
        ("file://bank.dev.pegboard/~/a", "file://fs.dev.pegboard/~bank.dev.pegboard/~/a"),
        ("", "pegboard://fs.dev.pegboard/!"),
    ],
)
def test_a_uri_says_whose_it_is_and_is_read_back(uri: str, wrapped: str) -> None:
    assert wrap_uri(uri, "dev", "fs") == wrapped
    assert unwrap_uri(wrapped) == ("dev", "fs", uri)


@pytest.mark.parametrize("uri", ["http://h/p", "https://h/{x}", "HTTPS://H", "http:x"])
def test_what_a_client_may_fetch_itself_stays(uri: str) -> None:
    assert wrap_uri(uri, "dev", "fs") == uri


@pytest.mark.parametrize(
    "uri",
    [
        "file:///a",
        "file://fs.dev.pegboard/a",
        "file://fs.dev.pegboard",
        "file://dev.pegboard/~/a",
        "file://a.fs.dev.pegboard/~/a",
        "file://fs.dev.pegboard.evil/~/a",
        "file://fs.dev.pegboard:80/~/a",
        "file://fs..pegboard/~/a",
        "file://fs.dev.pegboard/!a",
        "fs.dev.pegboard/~/a",
        "",
    ],
)
def test_an_unwrapped_uri_belongs_to_no_server(uri: str) -> None:
    assert unwrap_uri(uri) is None


def test_a_client_may_write_the_host_in_small_letters_and_escape_the_mark() -> None:
    wrapped = wrap_uri("notes://Host/Path", "Dev", "MyFiles")
    assert wrapped == "notes://myfiles.dev.pegboard/~Host/Path"
    for written in (
        wrapped,
        wrapped.replace("/~", "/%7E"),
        wrapped.replace("/~", "/%7e"),
        wrapped.replace("myfiles.dev.pegboard", "MyFiles.Dev.Pegboard"),
    ):
        assert unwrap_uri(written) == ("dev", "myfiles", "notes://Host/Path")


def test_a_strict_parser_of_urls_leaves_a_wrapped_uri_alone() -> None:
    for uri in ("file:///a/b.txt", "notes://h/p?q=1#f", "memo:n", "readme", "ui://app/main.html"):
        wrapped = wrap_uri(uri, "My_Box", "-fs-2")
        assert str(AnyUrl(wrapped)) == wrapped


@given(uris, names, names)
def test_every_uri_comes_back(uri: str, toolbox: str, server: str) -> None:
    wrapped = wrap_uri(uri, toolbox, server)
    if stays(uri):
        assert wrapped == uri
    else:
        assert unwrap_uri(wrapped) == (toolbox.lower(), server.lower(), uri)
        scheme, colon, _ = uri.partition(":")
        assert not colon or "/" in scheme or not scheme.isalpha() or wrapped.startswith(f"{scheme}:")


@given(uris, uris, names, names, names, names)
def test_two_uris_of_one_server_or_one_of_two_are_never_the_same(
    uri: str, other: str, toolbox: str, server: str, toolbox_too: str, server_too: str
) -> None:
    same = (uri, toolbox.lower(), server.lower()) == (other, toolbox_too.lower(), server_too.lower())
    if not stays(uri) and not stays(other):
        assert (wrap_uri(uri, toolbox, server) == wrap_uri(other, toolbox_too, server_too)) == same


@given(st.text("/:~!ab.%7eE-_", max_size=12), own_schemes, names, names)
def test_what_is_read_as_wrapped_is_written_the_same_or_leads_to_the_same(
    rest: str, scheme: str, toolbox: str, server: str
) -> None:
    whole = f"{scheme}://{server}.{toolbox}.pegboard/{rest}"
    found = unwrap_uri(whole)
    if found is not None and not stays(found[2]):
        again = wrap_uri(found[2], *found[:2])
        assert unwrap_uri(again) == found


@given(own_schemes, st.sampled_from(["://", "://h", "://h/", ":/a", ":a"]), tails, values, names, names)
def test_expanding_a_wrapped_template_is_wrapping_what_it_expands_to(
    scheme: str, lead: str, tail: str, given_values: dict[str, object], toolbox: str, server: str
) -> None:
    template = f"{scheme}{lead}{tail}"
    expanded = Template(template).expand(given_values)
    wrapped = Template(wrap_uri(template, toolbox, server)).expand(given_values)
    assert wrapped == wrap_uri(expanded, toolbox, server)


@given(st.builds("{}{}".format, st.sampled_from(["x:", "x:/", "", "http", "x", "{+e}:"]), tails), values, names, names)
def test_whatever_a_wrapped_template_expands_to_leads_back(
    template: str, given_values: dict[str, object], toolbox: str, server: str
) -> None:
    if stays(template):
        return
    expanded = Template(template).expand(given_values)
    wrapped = Template(wrap_uri(template, toolbox, server)).expand(given_values)
    assert unwrap_uri(wrapped) == (toolbox.lower(), server.lower(), expanded)


@given(own_schemes, tails, values)
def test_a_uri_that_a_template_matches_is_matched_by_the_wrapped_one_with_the_same_values(
    scheme: str, tail: str, given_values: dict[str, object]
) -> None:
    template = f"{scheme}://{tail}"
    uri = Template(template).expand(given_values)
    wrapped = Template(wrap_uri(template, "dev", "fs"))
    assert wrapped.match(wrap_uri(uri, "dev", "fs")) == Template(template).match(uri)


def test_a_wrapped_uri_splits_as_urls_do() -> None:
    parts = urlsplit(wrap_uri("notes://h/p?q=1#f", "dev", "fs"))
    assert (parts.scheme, parts.netloc, parts.path, parts.query, parts.fragment) == (
        "notes",
        "fs.dev.pegboard",
        "/~h/p",
        "q=1",
        "f",
    )
