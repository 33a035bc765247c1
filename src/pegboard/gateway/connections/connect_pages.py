"""The pages where a user connects a server: `/connect/SERVER`, and the redirect of its authorization server.

Opening a link changes nothing, so that a program which looks at links does not use it up. The person has to be signed in
as the user that the link is for, at the first page and at the redirect: "the server MUST ensure that the user who started
the elicitation request … is the same user who completes the authorization flow" (Elicitation, Phishing).
"""

from __future__ import annotations

import logging
from typing import Final
from urllib.parse import urlsplit

from pegboard.auth.auth import Auth
from pegboard.errors import Busy, LoginFailed, PegboardError
from pegboard.gateway.connections.connect_links import BegunLogin, ConnectLink
from pegboard.gateway.connections.header_credential import is_header_value
from pegboard.gateway.connections.user_connections import UserConnections
from pegboard.log_allowance import LogAllowance
from pegboard.logs.printable import printable
from pegboard.server.http_types import Answer, EndpointResult, Head, Sink
from pegboard.server.pages.plain_page import (
    FormButton,
    FormField,
    PageFacts,
    PageForm,
    PageLink,
    PagePart,
    PageText,
    plain_page,
)
from pegboard.server.pages.sign_in import SignIn, Visitor, read_query, root_of

PATH: Final = "/connect"
_USED: Final = "This link was used already, or it has expired. Call the tool again to get a new one."

_log = logging.getLogger("pegboard.gateway")


class ConnectPages:
    """The pages of one gateway; `accept` is its route."""

    def __init__(self, gateway: str, auth: Auth | None, sign_in: SignIn, connections: UserConnections) -> None:
        self._gateway = gateway
        self._auth = auth
        self._sign_in = sign_in
        self._connections = connections
        self._allowance = LogAllowance(_log, "connections of users")

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        """Answer a request for `/connect` or below it."""
        return self._serve(head, body)

    async def _serve(self, head: Head, body: bytes) -> Answer:
        rest = head.path.decode("latin-1").partition(PATH)[2].strip("/")
        visitor = await self._sign_in.visitor(head, PATH)
        if isinstance(visitor, Answer):
            return visitor
        try:
            match head.method, rest.partition("/")[2]:
                case b"GET", "":
                    return await self._show(visitor, head)
                case b"POST", "":
                    return await self._connect(visitor, head, body)
                case b"GET", "callback":
                    return await self._finish(visitor, head)
                case _, "" | "callback":
                    return plain_page("Method not allowed", status=405, headers=((b"allow", b"GET, POST"),))
        except (LoginFailed, Busy) as problem:
            return _problem(str(problem))
        except PegboardError as problem:
            # It may name addresses that are only for the operator.
            self._allowance.log(
                logging.WARNING, "a user could not connect %s: %s", printable(rest[:80]), printable(str(problem))
            )
            return _problem(
                "The server or its authorization server could not be used; the operator finds why in the log."
            )
        return plain_page("Not found", status=404)

    async def _show(self, visitor: Visitor, head: Head) -> Answer:
        link = await self._link(visitor, head, read_query(head).get("link", ""))
        if isinstance(link, Answer):
            return link
        return self._form(visitor, head, link)

    def _form(self, visitor: Visitor, head: Head, link: ConnectLink, problem: str = "") -> Answer:
        host = urlsplit(link.owner.server).hostname or link.server
        takes_key = self._connections.takes_key(link)
        what = f"Enter your key of {host}" if takes_key else f"Log in at {host}"
        parts: list[PagePart] = [PageText(problem, "error")] if problem else []
        parts += [
            PageText(
                f"{what}, and {self._gateway} can use {link.server} in your name when you call its tools. "
                "Your credentials stay here: the program that you use, and its model, do not see them."
            ),
            PageFacts([("Server", f"{link.toolbox}/{link.server}"), ("You are", visitor.principal.id)]),
        ]
        fields = [FormField("link", kind="hidden", value=link.id)]
        if takes_key:
            fields.append(FormField("key", "Key", kind="password", required=True))
        path = f"{root_of(head, PATH)}{PATH}/{link.server}"
        parts.append(PageForm(path, visitor.csrf, [FormButton("Connect", "connect")], fields))
        leave = self._sign_in.sign_out_form(visitor, head, PATH)
        return plain_page(f"Connect {link.server}", *parts, *([leave] if leave else []))

    async def _connect(self, visitor: Visitor, head: Head, body: bytes) -> Answer:
        fields = self._sign_in.read_form(visitor, head, body)
        if isinstance(fields, Answer):
            return fields
        link = await self._link(visitor, head, fields.get("link", ""))
        if isinstance(link, Answer):
            return link
        if self._connections.takes_key(link):
            value = fields.get("key", "").strip()
            if not is_header_value(value):
                return self._form(visitor, head, link, "This is not a key: it must be one line of plain characters.")
            await self._connections.enter(link, value)
            return _done(link)
        url = await self._connections.begin(link, self._base(head))
        host = urlsplit(url).netloc
        # Not a redirect: the policy of the form allows none to another site.
        away = ((b"refresh", b"0; url=" + url.encode()),)
        return plain_page(f"Log in at {host}", PageLink(f"Continue to {host}", url, button=True), headers=away)

    async def _finish(self, visitor: Visitor, head: Head) -> Answer:
        login = await self._connections.links.find_login(read_query(head).get("state", ""))
        if login is None:
            return _problem("This login was finished already, or it took too long. Call the tool again to start again.")
        refused = self._refuse_stranger(visitor, head, login)
        if refused is not None:
            return refused
        await self._connections.finish(login, f"?{head.query.decode('latin-1')}")
        return _done(login.link)

    async def _link(self, visitor: Visitor, head: Head, link_id: str) -> ConnectLink | Answer:
        """The link with this id, if it is for this visitor and its server is still the same."""
        link = await self._connections.links.find(link_id)
        if link is None:
            return _problem(_USED, status=410)
        refused = self._refuse_stranger(visitor, head, link)
        if refused is None:
            self._connections.config_of(link)
        return refused or link

    def _refuse_stranger(self, visitor: Visitor, head: Head, found: ConnectLink | BegunLogin) -> Answer | None:
        owner = found.owner if isinstance(found, ConnectLink) else found.link.owner
        principal = visitor.principal
        if (owner.principal, owner.issuer) == (principal.id, principal.issuer):
            return None
        self._allowance.log(
            logging.WARNING,
            "a link to connect a server was opened by %r, who is not the user that it is for",
            principal.id,
        )
        leave = self._sign_in.sign_out_form(visitor, head, PATH)
        text = f"This link is for another user. You are {principal.id}. If you got it from someone else, do not use it."
        parts: list[PagePart] = [PageText(text, "error"), *([leave] if leave else [])]
        return plain_page("Not your link", *parts, status=403)

    def _base(self, head: Head) -> str:
        """The URL of this gateway as browsers see it."""
        public = "" if self._auth is None else self._auth.public_url
        return public or head.origin + root_of(head, PATH)


def _done(link: ConnectLink) -> Answer:
    text = "You can close this page and return to your program: it can use the server now."
    return plain_page(f"{link.server} is connected", PageText(text, "good"))


def _problem(text: str, status: int = 400) -> Answer:
    return plain_page("Not connected", PageText(text, "error"), status=status)
