"""The console: its pages, its documents and its stream of events, at `/console`."""

from __future__ import annotations

import mimetypes
import webbrowser
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from pegboard.board import Board
from pegboard.call import Json
from pegboard.config.foreign.known_clients import connection_texts
from pegboard.console.board_subject import BoardSubject
from pegboard.console.console_access import RIGHTS, SECURITY_HEADERS, ConsoleAccess, Right, refuse
from pegboard.console.console_calls import ConsoleCalls
from pegboard.console.console_people import list_approvals, list_principals, list_records, view_as
from pegboard.console.console_sessions import describe_sessions
from pegboard.console.console_subject import ConsoleSubject
from pegboard.console.live_stream import LiveStream
from pegboard.errors import Busy, InvalidParams, LimitReached, PegboardError, StoreDown
from pegboard.logs.audit_sink import Decision
from pegboard.middleware.observability.history import History
from pegboard.server.hosting import Hosted
from pegboard.server.http_types import Answer, EndpointResult, Head, Sink
from pegboard.server.pages.plain_page import redirect
from pegboard.server.pages.sign_in import Visitor, read_query, root_of

PATH: Final = "/console"
MAX_CALLS: Final = 2000
"""How many calls a page shows."""
MAX_PAGES: Final = 16
"""How many pages may be open at once."""

_encode = msgspec.json.Encoder(enc_hook=str).encode
_FRESH: Final = (*SECURITY_HEADERS, (b"cache-control", b"no-store"))

Document: TypeAlias = Callable[[Visitor, Mapping[str, str]], Json | Awaitable[Json]]


class ChangeRequest(Struct):
    """A change that a person makes: what the page sent, and where from."""

    sent: Mapping[str, Json]
    visitor: Visitor
    address: str
    sink: Sink

    def text(self, name: str) -> str:
        return str(self.sent.get(name, ""))


Change: TypeAlias = Callable[[ChangeRequest], Coroutine[Any, Any, Answer | None]]


class Console:
    """Serves the console of a board or gateway; `accept` is a route of its HTTP endpoint.

    `link` lets the user who started the server in by a link with a token; others sign in as the server's `auth` says.
    """

    def __init__(self, subject: ConsoleSubject, *, token: str | None = None, link: bool = True) -> None:
        self._subject = subject
        subject.served.routes[PATH] = self.accept
        self._sign_in = subject.served.sign_in
        self._token = self._sign_in.link_token(token) if link else ""
        self._access = ConsoleAccess(subject.board.verdict)
        self._calls = ConsoleCalls(self._subject)
        self._open_pages = 0
        self._documents: Mapping[str, Document] = {
            "me": self._describe_visitor,
            "overview": lambda visitor, query: self._subject.overview(),
            "tools": lambda visitor, query: self._subject.tools(),
            "calls": lambda visitor, query: self._list_calls(query),
            "search": lambda visitor, query: self._subject.search(query.get("q", "")[:200]),
            "lock": lambda visitor, query: self._subject.lock(),
            "sessions": lambda visitor, query: describe_sessions(subject.served),
            "approvals": lambda visitor, query: list_approvals(subject.served, visitor),
            "connections": lambda visitor, query: subject.connections(visitor.principal),
            "clients": lambda visitor, query: list(connection_texts(str(subject.overview()["name"]), "{url}")),
            "people": lambda visitor, query: list_principals(subject.served.auth),
            "view": lambda visitor, query: view_as(subject, self._access, query),
            "server": lambda visitor, query: subject.server_tools(query.get("toolbox", ""), query.get("server", "")),
        }
        self._changes: Mapping[str, tuple[Right, Change]] = {
            "call": ("read", self._call),
            "answer": ("read", self._answer),
            "server": ("operate", self._change_server),
            "tool": ("operate", self._switch_tool),
            "accept": ("administer", self._accept),
            "approval": ("read", self._decide),
            "connection": ("read", self._change_connection),
        }

    def link(self, url: str) -> str:
        """The link that opens the console, made from the URL of the MCP endpoint, or the public one."""
        auth = self._subject.served.auth
        if not self._token and auth is not None and auth.public_url:
            return f"{auth.public_url}{PATH}/"
        return _link(url, self._token)

    def open_in_browser(self, url: str) -> None:
        """Open the console in the browser of this user."""
        webbrowser.open(_link(url, self._sign_in.token_for_once()) if self._token else self.link(url))

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        """Answer a request below `/console`."""
        return self._serve(head, body, sink)

    async def _serve(self, head: Head, body: bytes, sink: Sink) -> Answer | None:
        visitor = await self._sign_in.visitor(head, PATH)
        if isinstance(visitor, Answer):
            return visitor
        rights = self._access.rights(visitor.principal)
        if not rights:
            return refuse(visitor.principal, self._sign_in.sign_out_form(visitor, head, PATH))
        rest = head.path.decode("latin-1").partition(PATH)[2]
        if rest == "":
            return redirect(f"{root_of(head, PATH)}{PATH}/")
        if head.method == b"POST":
            return await self._post(head, rest, body, sink, visitor, rights)
        if head.method != b"GET":
            return Answer(405, headers=((b"allow", b"GET, POST"), *_FRESH))
        query = read_query(head)
        if rest == "/events":
            return await self._follow(query, head, sink, visitor)
        if rest.startswith("/api/"):
            return await self._document(rest.removeprefix("/api/"), query, visitor)
        return _file(rest.removeprefix("/") or "index.html", head)

    async def _document(self, name: str, query: Mapping[str, str], visitor: Visitor) -> Answer:
        if name.startswith("calls/"):
            number = name.removeprefix("calls/")
            kept = await self._subject.history.find(_read_number(number))
            if kept is None:
                return _json({"error": "This call is not kept any more"}, 404)
            return _json(kept.everything())
        if name == "calls.jsonl":
            lines = b"\n".join([_encode(kept.everything()) async for kept in self._subject.history.all()])
            disposition = (b"content-disposition", b'attachment; filename="calls.jsonl"')
            return Answer(200, lines + b"\n", b"application/jsonl", (*_FRESH, disposition))
        if name == "audit":
            if "administer" not in self._access.rights(visitor.principal):
                return _lacking("administer", visitor)
            return _json(await list_records(self._subject.served))
        document = self._documents.get(name)
        if document is None:
            return _json({"error": "Not found"}, 404)
        found = document(visitor, query)
        return _json(await found if isinstance(found, Awaitable) else found)

    async def _list_calls(self, query: Mapping[str, str]) -> Json:
        """The latest calls; with `text`, those that contain it."""
        text = query.get("text", "")[:200].casefold()
        found = await self._subject.history.latest(MAX_CALLS)
        return [kept.summary() for kept in found if not text or kept.contains(text)]

    def _describe_visitor(self, visitor: Visitor, query: Mapping[str, str]) -> Json:
        principal = visitor.principal
        return {
            "principal": principal.id,
            "kind": principal.kind,
            "scopes": sorted(principal.scopes),
            "roles": sorted(principal.roles),
            "rights": sorted(self._access.rights(principal), key=RIGHTS.index),
            "csrf": visitor.csrf,
            "signed_in": visitor.session is not None and visitor.session.source != "link",
        }

    async def _follow(self, query: Mapping[str, str], head: Head, sink: Sink, visitor: Visitor) -> Answer | None:
        if self._open_pages >= MAX_PAGES:
            return _json({"error": f"{MAX_PAGES} consoles are open already; close one of them"}, 503)

        async def is_allowed() -> bool:
            found = await self._sign_in.visitor(head, PATH)
            return isinstance(found, Visitor) and bool(self._access.rights(found.principal))

        after = query.get("after", "0")
        self._open_pages += 1
        try:
            stream = LiveStream(self._subject, sink, visitor.principal, is_allowed)
            await stream.run(_read_number(after))
        finally:
            self._open_pages -= 1
        return None

    # -- changes -------------------------------------------------------------------------------------------------------

    async def _post(
        self, head: Head, rest: str, body: bytes, sink: Sink, visitor: Visitor, rights: frozenset[Right]
    ) -> Answer | None:
        if not self._sign_in.may_change(visitor, head):
            return _json({"error": "This page is too old, or the request is from elsewhere: reload the page"}, 403)
        known = self._changes.get(rest.removeprefix("/api/"))
        if known is None:
            return _json({"error": "Not found"}, 404)
        right, change = known
        if right not in rights:
            return _lacking(right, visitor)
        try:
            sent = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError:
            return _json({"error": "The body must be a JSON object"}, 400)
        try:
            return await change(ChangeRequest(sent, visitor, head.peer, sink))
        except PegboardError as problem:
            status = 429 if isinstance(problem, Busy) else 503 if isinstance(problem, LimitReached | StoreDown) else 400
            return _json({"error": str(problem)}, status)

    async def _record(self, request: ChangeRequest, action: str, name: str, **details: Json) -> None:
        """Record a change before it is made."""
        await self._subject.served.audit.record(
            Decision(
                action,
                principal=request.visitor.principal.id,
                name=name,
                transport="console",
                address=request.address,
                details=details,
            )
        )

    async def _call(self, request: ChangeRequest) -> None:
        await self._calls.stream(request.sent, request.sink, request.visitor.principal)

    async def _answer(self, request: ChangeRequest) -> Answer:
        self._calls.answer(request.sent, request.visitor.principal)
        return _json({})

    async def _change_server(self, request: ChangeRequest) -> Answer:
        toolbox, server, action = (request.text(key) for key in ("toolbox", "server", "action"))
        if action not in ("start", "stop", "restart"):
            raise InvalidParams(f"Unknown action {action[:40]!r}; use start, stop or restart")
        await self._record(request, f"servers.{action}", f"{toolbox}/{server}")
        await self._subject.change_server(toolbox, server, action)
        return _json(self._subject.overview())

    async def _switch_tool(self, request: ChangeRequest) -> Answer:
        toolbox, server, tool = (request.text(key) for key in ("toolbox", "server", "tool"))
        on = request.sent.get("on") is True
        await self._record(request, "tools.enable" if on else "tools.disable", f"{toolbox}/{server}/{tool}")
        await self._subject.switch_tool(toolbox, server, tool, on=on)
        return _json(self._subject.server_tools(toolbox, server))

    async def _accept(self, request: ChangeRequest) -> Answer:
        names = request.sent.get("names")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InvalidParams("Name the definitions to accept")
        await self._record(request, "lock.accept", ", ".join(names), names=names[:1000])
        await self._subject.accept(names)
        return _json(await self._subject.lock())

    async def _change_connection(self, request: ChangeRequest) -> Answer:
        toolbox, server, action = (request.text(key) for key in ("toolbox", "server", "action"))
        if action not in ("connect", "remove"):
            raise InvalidParams(f"Unknown action {action[:40]!r}; use connect or remove")
        # Recorded by the connections themselves.
        principal = request.visitor.principal
        outcome = await self._subject.change_connection(principal, toolbox, server, action)
        return _json({"outcome": outcome, "connections": await self._subject.connections(principal)})

    async def _decide(self, request: ChangeRequest) -> Answer:
        # Recorded by the approvals themselves.
        approve = request.sent.get("approve") is True
        served, principal = self._subject.served, request.visitor.principal
        await served.approvals.decide(
            request.text("id"), principal, approve=approve, reason=request.text("reason"), how="console"
        )
        return _json(await list_approvals(served, request.visitor))


def subject_of(served: Hosted, history: History | None = None) -> ConsoleSubject:
    """A board or a gateway, as the console shows it."""
    if isinstance(served, Board):
        return BoardSubject(served, history)
    # A board does not load the gateway.
    subject: ConsoleSubject = import_module("pegboard.console.gateway_subject").GatewaySubject(served, history)
    return subject


def _link(url: str, token: str) -> str:
    parts = urlsplit(url)
    path = parts.path.removesuffix("/mcp") + PATH + "/"
    return urlunsplit((parts.scheme, parts.netloc, path, f"token={token}" if token else "", ""))


def _lacking(right: Right, visitor: Visitor) -> Answer:
    return _json({"error": f"This needs the scope console.{right}, which {visitor.principal.id} lacks"}, 403)


def _read_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 17 else 0


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
