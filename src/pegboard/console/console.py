"""The console: its pages, its documents and its stream of events, at `/console`."""

from __future__ import annotations

import mimetypes
import webbrowser
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import msgspec

from pegboard.call import Json
from pegboard.console.console_access import SECURITY_HEADERS, ConsoleAccess
from pegboard.console.console_calls import ConsoleCalls
from pegboard.console.console_subject import ConsoleSubject
from pegboard.console.live_stream import LiveStream
from pegboard.errors import Busy, InvalidParams, Refusal, SetupError
from pegboard.server.http_types import Answer, EndpointResult, Head, Sink

PATH: Final = "/console"
MAX_PAGES: Final = 16
"""How many pages may be open at once."""

_encode = msgspec.json.Encoder(enc_hook=str).encode
_FRESH: Final = (*SECURITY_HEADERS, (b"cache-control", b"no-store"))

Change = Callable[[Mapping[str, Json], Sink], Coroutine[Any, Any, Answer | None]]


class Console:
    """Serves the console of a board or gateway; `accept` is a route of its HTTP endpoint."""

    def __init__(self, subject: ConsoleSubject, *, token: str | None = None) -> None:
        self._subject = subject
        subject.served.routes[PATH] = self.accept
        self._access = ConsoleAccess(token)
        self._calls = ConsoleCalls(self._subject)
        self._open_pages = 0
        self._documents: Mapping[str, Callable[[Mapping[str, list[str]]], Json]] = {
            "overview": lambda query: self._subject.overview(),
            "tools": lambda query: self._subject.tools(),
            "calls": self._list_calls,
            "search": lambda query: self._subject.search(query.get("q", [""])[0][:200]),
        }
        self._changes: Mapping[str, Change] = {
            "call": self._call,
            "answer": self._answer,
            "server": self._change_server,
            "accept": self._accept,
        }

    def link(self, url: str) -> str:
        """The link that opens the console, made from the URL of the MCP endpoint."""
        parts = urlsplit(url)
        path = parts.path.removesuffix("/mcp") + PATH + "/"
        return urlunsplit((parts.scheme, parts.netloc, path, f"token={self._access.token}", ""))

    def open_in_browser(self, url: str) -> None:
        """Open the console in the browser of this user."""
        webbrowser.open(self.link(url))

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        """Answer a request below `/console`."""
        prefix, _, rest = head.path.decode("latin-1").partition(PATH)
        home = head.locate(f"{prefix}{PATH}/")
        if rest in ("", "/"):
            entered = self._access.enter(head, home)
            if entered is not None:
                return entered
        if not self._access.allows(head):
            return self._access.refuse()
        if rest == "":
            return Answer(303, headers=((b"location", home.encode()), *_FRESH))
        if head.method == b"POST":
            return self._post(head, rest, body, sink)
        if head.method != b"GET":
            return Answer(405, headers=((b"allow", b"GET, POST"), *_FRESH))
        query = parse_qs(head.query.decode("latin-1"))
        if rest == "/events":
            return self._follow(query, sink)
        if rest.startswith("/api/"):
            return self._document(rest.removeprefix("/api/"), query)
        return _file(rest.removeprefix("/") or "index.html", head)

    def _document(self, name: str, query: Mapping[str, list[str]]) -> EndpointResult:
        if name.startswith("calls/"):
            number = name.removeprefix("calls/")
            kept = self._subject.history.find(int(number)) if number.isdecimal() and len(number) < 16 else None
            if kept is None:
                return _json({"error": "This call is not kept any more"}, 404)
            return _json(kept.details())
        if name == "calls.jsonl":
            lines = b"\n".join(_encode(kept.details()) for kept in self._subject.history)
            disposition = (b"content-disposition", b'attachment; filename="calls.jsonl"')
            return Answer(200, lines + b"\n", b"application/jsonl", (*_FRESH, disposition))
        if name == "lock":
            return self._show_lock()
        document = self._documents.get(name)
        return _json({"error": "Not found"}, 404) if document is None else _json(document(query))

    def _list_calls(self, query: Mapping[str, list[str]]) -> Json:
        return [kept.summary() for kept in self._subject.history]

    def _follow(self, query: Mapping[str, list[str]], sink: Sink) -> EndpointResult:
        if self._open_pages >= MAX_PAGES:
            return _json({"error": f"{MAX_PAGES} consoles are open already; close one of them"}, 503)
        after = query.get("after", ["0"])[0]
        return self._stream(int(after) if after.isdecimal() and len(after) < 16 else 0, sink)

    async def _stream(self, after: int, sink: Sink) -> None:
        self._open_pages += 1
        try:
            await LiveStream(self._subject, sink).run(after)
        finally:
            self._open_pages -= 1

    # -- changes -------------------------------------------------------------------------------------------------------

    def _post(self, head: Head, rest: str, body: bytes, sink: Sink) -> EndpointResult:
        if not self._access.may_change(head):
            return _json({"error": "Only the console may send this"}, 403)
        change = self._changes.get(rest.removeprefix("/api/"))
        if change is None:
            return _json({"error": "Not found"}, 404)
        try:
            request = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError:
            return _json({"error": "The body must be a JSON object"}, 400)
        return self._apply(change, request, sink)

    async def _apply(self, change: Change, request: Mapping[str, Json], sink: Sink) -> Answer | None:
        try:
            return await change(request, sink)
        except Refusal as refusal:
            return _json({"error": refusal.message}, 429 if isinstance(refusal, Busy) else 400)
        except SetupError as error:
            return _json({"error": str(error)}, 400)

    async def _call(self, request: Mapping[str, Json], sink: Sink) -> None:
        await self._calls.stream(request, sink)

    async def _answer(self, request: Mapping[str, Json], sink: Sink) -> Answer:
        self._calls.answer(request)
        return _json({})

    async def _change_server(self, request: Mapping[str, Json], sink: Sink) -> Answer:
        toolbox, server, action = (str(request.get(key, "")) for key in ("toolbox", "server", "action"))
        await self._subject.change_server(toolbox, server, action)
        return _json(self._subject.overview())

    async def _accept(self, request: Mapping[str, Json], sink: Sink) -> Answer:
        names = request.get("names")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InvalidParams("Name the definitions to accept")
        await self._subject.accept(names)
        return await self._show_lock()

    async def _show_lock(self) -> Answer:
        return _json(await self._subject.lock())


def _json(value: Json, status: int = 200) -> Answer:
    return Answer(status, _encode(value), headers=_FRESH)


@cache
def _files() -> Mapping[str, tuple[bytes, bytes, bytes]]:
    """The files of the console: content, media type and entity tag of each."""
    found = {}
    for path in files("pegboard.console").joinpath("static").iterdir():
        content = path.read_bytes()
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        text = "; charset=utf-8" if kind.startswith("text/") else ""
        found[path.name] = content, (kind + text).encode(), f'"{sha256(content).hexdigest()[:16]}"'.encode()
    return found


def _file(name: str, head: Head) -> Answer:
    found = _files().get(unquote(name))
    if found is None:
        return _json({"error": "Not found"}, 404)
    content, kind, tag = found
    headers = (*SECURITY_HEADERS, (b"cache-control", b"no-cache"), (b"etag", tag))
    if head.headers.get(b"if-none-match") == tag:
        return Answer(304, headers=headers)
    return Answer(200, content, kind, headers)
