"""A board with a page that has a form, and a browser without scripts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx

from pegboard import Auth, Board
from pegboard.server.http_types import Answer, EndpointResult, Head, Sink
from pegboard.server.pages.plain_page import FormButton, FormField, PageForm, PageText, plain_page, redirect
from pegboard.server.pages.sign_in import root_of
from tests.auth.serving import Site, serving


class NotesPage:
    """A page at `/notes`: it shows who uses it, and a form."""

    def __init__(self, board: Board) -> None:
        self._sign_in = board.sign_in
        self.notes: list[tuple[str, str]] = []
        board.routes["/notes"] = self.accept

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        return self._serve(head, body)

    async def _serve(self, head: Head, body: bytes) -> Answer:
        visitor = await self._sign_in.visitor(head, "/notes")
        if isinstance(visitor, Answer):
            return visitor
        path = f"{root_of(head, '/notes')}/notes"
        if head.method == b"POST":
            fields = self._sign_in.read_form(visitor, head, body)
            if isinstance(fields, Answer):
                return fields
            self.notes.append((visitor.principal.id, fields.get("note", "")))
            return redirect(path)
        form = PageForm(path, visitor.csrf, [FormButton("Add")], [FormField("note", "Note")])
        leave = self._sign_in.sign_out_form(visitor, head, "/notes")
        who = f"{visitor.principal.id} {sorted(visitor.principal.scopes)} {visitor.principal.kind}"
        return plain_page("Notes", PageText(who), form, *([leave] if leave else []))


class Browser:
    """Follows links and sends forms, with the cookies of one person."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.page = httpx.Response(204)

    async def open(self, url: str, **headers: str) -> httpx.Response:
        sent = {"accept": "text/html", "sec-fetch-mode": "navigate", "sec-fetch-site": "none", **headers}
        self.page = await self.client.get(url, headers=sent, follow_redirects=True)
        return self.page

    async def follow(self, text: str) -> httpx.Response:
        """Follow a link of the page, up to the first page of another server."""
        found = re.search(rf'<a href="([^"]*)"[^>]*>{re.escape(text)}', self.page.text)
        assert found is not None, self.page.text
        self.page = await self.client.get(str(self.page.url.join(unescape(found[1]))))
        return self.page

    async def submit(self, **fields: str) -> httpx.Response:
        """Fill in the form of the page that has these fields, and send it."""
        for action, content in re.findall(
            r'<form method="post" action="([^"]*)">(.*?)</form>', self.page.text, re.DOTALL
        ):
            if all(f'name="{name}"' in content for name in fields):
                given = dict(re.findall(r'name="([^"]*)" value="([^"]*)"', content)) | fields
                url = str(self.page.url.join(unescape(action)))
                return await self.post(url, **{name: unescape(value) for name, value in given.items()})
        raise AssertionError(f"no form with {[*fields]}: {self.page.text}")

    async def post(self, url: str, **fields: str) -> httpx.Response:
        host = self.client.headers.get("host", url.split("/")[2])
        origin = f"http://{host}"
        sent = {"accept": "text/html", "origin": origin, "sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}
        self.page = await self.client.post(url, data=fields, headers=sent, follow_redirects=True)
        return self.page


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        yield Browser(client)


@asynccontextmanager
async def serving_notes(auth: Auth | None, **options: Any) -> AsyncIterator[tuple[Site, NotesPage]]:
    board = Board("notes", auth=auth)
    page = NotesPage(board)
    async with serving(board, **options) as site:
        yield site, page
