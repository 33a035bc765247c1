"""Plain pages: every text stays text, and nothing but our own style applies."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.server.pages.plain_page import (
    FormButton,
    FormField,
    PageCode,
    PageFacts,
    PageForm,
    PageLink,
    PageText,
    plain_page,
)

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&lt;\u202egnp.exe"


class Elements(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value or "" for name, value in attrs if name == "href"]


def whole_page(text: str) -> bytes:
    fields = [
        FormField("a", text, value=text, hint=text),
        FormField("b", text, "choice", text, [text, "other"]),
        FormField("c", text, "lines", text),
        FormField("d", text, "check", text),
        FormField("e", kind="hidden", value=text),
    ]
    form = PageForm("/notes", text, [FormButton(text, text)], fields)
    parts = [PageText(text), PageText(text, "error"), PageCode(text), PageFacts([(text, text)]), PageLink(text, "/x")]
    return plain_page(text, *parts, form).body


@given(st.text(max_size=60))
def test_no_text_changes_the_elements_of_a_page(text: str) -> None:
    assert Elements(whole_page(text)).found == Elements(whole_page("x")).found or not text


def test_a_hostile_text_is_shown_as_it_is() -> None:
    page = whole_page(HOSTILE)
    assert b"<script" not in page
    assert b"<img" not in page
    assert "\u202e" not in plain_page(HOSTILE, PageText(HOSTILE), PageCode(HOSTILE)).body.decode()


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "//evil.example", "/\\evil.example", "x:y", "http://["]
)
def test_only_pages_of_the_web_are_linked(url: str) -> None:
    assert Elements(plain_page("x", PageLink("open", url)).body).links == []
    assert Elements(plain_page("x", PageLink("open", "https://a.example/b")).body).links == ["https://a.example/b"]


def test_the_policy_allows_exactly_the_style_of_the_page() -> None:
    page = plain_page("x")
    style = re.search(rb"<style>(.*)</style>", page.body, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1]).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in dict(page.headers)[b"content-security-policy"].decode()
