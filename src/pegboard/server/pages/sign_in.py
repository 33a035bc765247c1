"""Who uses a page: the principal of a browser, or the way to the sign-in page.

A page calls `visitor(head, "/page")` and gets a Visitor, or the response that lets the person sign in: at an issuer, with
an API key, or with the link that was printed at the start. A trusted proxy and a Bearer token identify a request as they do
for any other. Forms and other changes carry the token of the visitor.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from pegboard.auth.api_keys import MARK, digest_of
from pegboard.auth.auth import Auth
from pegboard.auth.local_user import local_user
from pegboard.auth.openid_login import LoginAttempt
from pegboard.auth.principal import Principal
from pegboard.auth.request_credentials import (
    AuthRefusal,
    RequestCredentials,
    VerifiedIdentity,
    invalid_token,
    read_credentials,
)
from pegboard.auth.trusted_proxy import SCHEME as PROXY
from pegboard.errors import StoreDown
from pegboard.server.access import NO_ACCESS
from pegboard.server.endpoint_names import SIGN_IN
from pegboard.server.http_types import Answer, EndpointResult, Head, Headers, Sink
from pegboard.server.pages.browser_session import BrowserSession, SessionCookies, open_session
from pegboard.server.pages.plain_page import (
    CSRF_FIELD,
    FormButton,
    FormField,
    PageForm,
    PageLink,
    PagePart,
    PageText,
    plain_page,
    redirect,
)
from pegboard.stores.cluster import SharedStore

CSRF_HEADER: Final = b"x-pegboard-csrf"
FORM_BYTES: Final = 64 * 1024
ATTEMPT_SECONDS: Final = 600.0
"""How long a person may take at the issuer."""
_FIELDS: Final = 100
_NEXT_CHARACTERS: Final = 1024


class Visitor(Struct, frozen=True):
    """The person, or the program, that a request of a page comes from.

    csrf: the token for forms and other changes; empty for a program, which no other site can make send a request.
    session: the sign-in, if it can be ended here.
    """

    principal: Principal
    csrf: str
    session: BrowserSession | None = None


class _Attempt(Struct, frozen=True, array_like=True):
    """A sign-in that has begun in a browser; `issuer` is empty while it shows the page only."""

    id: str
    next: str
    issuer: str = ""
    login: LoginAttempt | None = None


class SignIn:
    """The sign-in of one server; `accept` is its route, `routes` are the paths of all pages."""

    def __init__(
        self, name: str, auth: Auth | None, routes: Collection[str], clock: Callable[[], float] = time.time
    ) -> None:
        self._name = name
        self._auth = auth
        self._clock = clock
        self._routes = routes
        self._cookies = SessionCookies(name, routes, clock)
        self._link = ""
        self._once = ""

    async def start(self, shared: SharedStore | None) -> None:
        """Share sign-ins with the other processes of a store."""
        await self._cookies.share(shared)

    def link_token(self, token: str | None = None) -> str:
        """The token of this launch: a page that is opened with `?token=` signs in the user who started the server."""
        self._link = token or self._link or secrets.token_urlsafe(24)
        return self._link

    def token_for_once(self) -> str:
        """Another token, for a single browser: other users can read it in the command line of a program that opens it."""
        self._once = secrets.token_urlsafe(24)
        return self._once

    # -- for pages -----------------------------------------------------------------------------------------------------

    async def visitor(self, head: Head, page: str) -> Visitor | Answer:
        """Who sends this request to `page`, the first part of its path; else the response to send.

        A GET of a browser is sent to the sign-in page and returns afterwards; everything else is rejected.
        """
        root = root_of(head, page)
        try:
            entered = await self._enter(head)
            if entered is not None:
                return entered
            found = await self._identify(head, root)
        except AuthRefusal as refusal:
            return _problem(refusal)
        except StoreDown:
            return plain_page("Try again later", PageText("The sign-in cannot be checked now."), status=503)
        return self._ask(head, root) if found is None else found

    def read_form(self, visitor: Visitor, head: Head, body: bytes) -> Mapping[str, str] | Answer:
        """The fields of a form that one of our pages sent; else the rejection."""
        fields = _read_fields(head, body)
        if visitor.csrf and not self._cookies.is_token(fields.get(CSRF_FIELD, ""), _bearer(visitor)):
            return _expired_form()
        return fields

    def may_change(self, visitor: Visitor, head: Head) -> bool:
        """Whether a request without a form, such as JSON, was sent by one of our pages."""
        given = head.headers.get(CSRF_HEADER, b"").decode("latin-1")
        return not visitor.csrf or self._cookies.is_token(given, _bearer(visitor))

    def sign_out_form(self, visitor: Visitor, head: Head, page: str) -> PageForm | None:
        """A button that ends the sign-in; None if it is not ours to end."""
        if visitor.session is None:
            return None
        action = f"{root_of(head, page)}{SIGN_IN}/out"
        return PageForm(action, visitor.csrf, [FormButton("Sign out", tone="plain")])

    # -- who it is -----------------------------------------------------------------------------------------------------

    async def _identify(self, head: Head, root: str) -> Visitor | None:
        if _is_from_elsewhere(head):
            return None
        if head.access is not NO_ACCESS:
            # The application around a mounted board has said who it is.
            principal = head.access.principal
            if head.access.until <= time.monotonic():
                return None
            return Visitor(principal, self._cookies.make_token(f"proxy {principal.id}"))
        auth = self._auth
        if auth is not None:
            credentials = _read_credentials(auth, head, self._base(head, root) + "/mcp")
            if credentials is not None:
                verified = auth.verify(credentials)
                identity = verified if isinstance(verified, VerifiedIdentity) else await verified
                principal = identity.principal
                proxied = credentials.scheme == PROXY
                return Visitor(principal, self._cookies.make_token(f"proxy {principal.id}") if proxied else "")
        session = await self._cookies.read(head)
        if session is None:
            return None
        try:
            principal = await self._check(session)
        except AuthRefusal as refusal:
            if refusal.http_status == 503:
                raise
            return None
        return Visitor(principal, self._cookies.make_token(session.id), session)

    async def _check(self, session: BrowserSession) -> Principal:
        """The principal of a sign-in whose source is still accepted."""
        auth = self._auth
        match session.source:
            case "link":
                if self._link and hmac.compare_digest(session.proof, digest_of(self._link)):
                    return session.identity()
            case "key":
                if auth is not None:
                    verified = auth.verify_key(session.proof)
                    identity = verified if isinstance(verified, VerifiedIdentity) else await verified
                    return identity.principal
            case issuer:
                if auth is not None and issuer in auth.logins:
                    return session.identity()
        raise invalid_token("The sign-in is not accepted any more")

    async def _enter(self, head: Head) -> Answer | None:
        """Exchange the token of a link for a cookie, and remove it from the address."""
        query = read_query(head)
        given = query.pop("token", None)
        if given is None or not self._link or head.method != b"GET":
            return None
        sent = given.encode("utf-8", "replace")
        if self._once and hmac.compare_digest(sent, self._once.encode()):
            self._once = ""
        elif not hmac.compare_digest(sent, self._link.encode()):
            return self._locked()
        session = open_session(local_user(), "link", digest_of(self._link), now=self._clock())
        path = head.locate(quote(head.path.decode("latin-1")))
        location = path + ("?" + urlencode(query) if query else "")
        return self._admit(head, session, location)

    def _admit(self, head: Head, session: BrowserSession, location: str, more: Headers = ()) -> Answer:
        cookie = self._cookies.write(head, session)
        if cookie is None:
            text = (
                "The issuer states too much about this account for a cookie. Let it put fewer claims into the ID token."
            )
            return plain_page("Sign-in failed", PageText(text, "error"), status=400)
        return redirect(location, (*cookie, *more))

    def _ask(self, head: Head, root: str) -> Answer:
        if not self._ways():
            return self._locked()
        if not _is_navigation(head):
            body = b'{"error":"Sign in again: reload the page"}'
            return Answer(401, body, headers=((b"cache-control", b"no-store"),))
        asked = head.locate(quote(head.path.decode("latin-1")))
        if head.method == b"GET" and head.query:
            asked += "?" + head.query.decode("latin-1")
        return redirect(f"{root}{SIGN_IN}?{urlencode({'next': asked})}")

    def _ways(self) -> bool:
        auth = self._auth
        return auth is not None and (auth.keys or bool(auth.logins))

    # -- the pages of the sign-in --------------------------------------------------------------------------------------

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult:
        """Answer a request for `/sign-in` or below it."""
        return self._serve(head, body)

    async def _serve(self, head: Head, body: bytes) -> Answer:
        root = root_of(head, SIGN_IN)
        rest = head.path.decode("latin-1").partition(SIGN_IN)[2].strip("/")
        try:
            match head.method, rest:
                case b"GET", "":
                    return self._show(head, root)
                case b"GET", "issuer":
                    return await self._begin(head, root)
                case b"GET", "callback":
                    return await self._finish(head, root)
                case b"POST", "":
                    return await self._take_key(head, root, body)
                case b"POST", "out":
                    return await self._sign_out(head, root, body)
                case _, "" | "issuer" | "callback" | "out":
                    return plain_page("Method not allowed", status=405, headers=((b"allow", b"GET, POST"),))
        except AuthRefusal as refusal:
            return _problem(refusal, PageLink("Start again", f"{root}{SIGN_IN}"))
        except StoreDown:
            return plain_page("Try again later", PageText("The sign-in cannot be checked now."), status=503)
        return plain_page("Not found", status=404)

    def _show(self, head: Head, root: str, problem: str = "", next_page: str | None = None) -> Answer:
        """The page with all ways to sign in."""
        auth = self._auth
        if auth is None or not self._ways():
            return self._locked()
        query = read_query(head)
        asked = self._own_path(query.get("next") if next_page is None else next_page, root)
        attempt = _Attempt(secrets.token_urlsafe(16), asked)
        parts: list[PagePart] = [PageText(problem, "error")] if problem else []
        for issuer in auth.logins:
            name = urlsplit(issuer).hostname or issuer
            url = f"{root}{SIGN_IN}/issuer?{urlencode({'issuer': issuer, 'next': asked})}"
            parts.append(PageLink(f"Sign in with {name}", url, button=True))
        if auth.keys:
            parts += [PageText("or with an API key:", "quiet")] if auth.logins else []
            key = FormField("key", "API key", kind="password", required=True, hint="It begins with pb_.")
            button = FormButton("Sign in", tone="plain" if auth.logins else "main")
            token = self._cookies.make_token(attempt.id)
            parts.append(PageForm(f"{root}{SIGN_IN}", token, [button], [key]))
        cookie = self._cookies.write_attempt(head, attempt, ATTEMPT_SECONDS)
        return plain_page(f"Sign in to {self._name}", *parts, status=401 if problem else 200, headers=cookie)

    async def _begin(self, head: Head, root: str) -> Answer:
        """Send the browser to an issuer."""
        query = read_query(head)
        issuer = query.get("issuer", "")
        login = None if self._auth is None else self._auth.logins.get(issuer)
        if self._auth is None or login is None:
            raise invalid_token("This server has no sign-in at this issuer")
        url, begun = await login.begin(self._callback(head, root), self._auth.scopes)
        attempt = _Attempt(secrets.token_urlsafe(16), self._own_path(query.get("next"), root), issuer, begun)
        return redirect(url, self._cookies.write_attempt(head, attempt, ATTEMPT_SECONDS))

    async def _finish(self, head: Head, root: str) -> Answer:
        """The browser returns from the issuer."""
        attempt = self._read_attempt(head)
        pairs = _read_pairs(head.query.decode("latin-1"))
        if self._auth is None or attempt is None or attempt.login is None or len(dict(pairs)) < len(pairs):
            raise invalid_token("This sign-in was not begun in this browser, or too long ago")
        identity = await self._auth.finish_login(attempt.issuer, attempt.login, self._callback(head, root), dict(pairs))
        session = open_session(identity.principal, attempt.issuer, now=self._clock(), expires=identity.expires)
        return self._admit(head, session, self._own_path(attempt.next, root), self._cookies.forget_attempt(head))

    async def _take_key(self, head: Head, root: str, body: bytes) -> Answer:
        """Sign in with an API key."""
        auth, attempt, fields = self._auth, self._read_attempt(head), _read_fields(head, body)
        if auth is None or attempt is None or not self._cookies.is_token(fields.get(CSRF_FIELD, ""), attempt.id):
            return _expired_form(f"{root}{SIGN_IN}")
        key = fields.get("key", "").strip()
        if not key.startswith(MARK):
            return self._show(head, root, "This is not an API key: it begins with pb_.", attempt.next)
        proof = digest_of(key)
        try:
            verified = auth.verify_key(proof)
            identity = verified if isinstance(verified, VerifiedIdentity) else await verified
        except AuthRefusal as refusal:
            if refusal.http_status == 503:
                raise
            return self._show(head, root, f"{refusal.message}.", attempt.next)
        session = open_session(identity.principal, "key", proof, now=self._clock(), expires=identity.expires)
        return self._admit(head, session, self._own_path(attempt.next, root), self._cookies.forget_attempt(head))

    async def _sign_out(self, head: Head, root: str, body: bytes) -> Answer:
        visitor = await self._identify(head, root)
        if visitor is None or visitor.session is None:
            return plain_page("Signed out", PageText("This browser is not signed in."))
        fields = self.read_form(visitor, head, body)
        if isinstance(fields, Answer) and not self.may_change(visitor, head):
            return fields
        cookie = await self._cookies.end(head, visitor.session)
        again = [PageLink("Sign in again", f"{root}{SIGN_IN}")] if self._ways() else []
        return plain_page("Signed out", PageText("This browser is signed out.", "good"), *again, headers=cookie)

    def _read_attempt(self, head: Head) -> _Attempt | None:
        try:
            return msgspec.convert(self._cookies.read_attempt(head), _Attempt | None)
        except msgspec.ValidationError:
            return None

    def _own_path(self, text: str | None, root: str) -> str:
        """The path of one of our pages to return to; anything else becomes the console."""
        path, _, _ = (text or "").partition("?")
        parts = [unquote(part) for part in path.removeprefix(f"{root}/").split("/")]
        # A browser removes ".." and "." before it sends a path, also where they are spelled "%2e".
        is_ours = path.startswith(f"{root}/") and f"/{parts[0]}" in self._routes and not {".", ".."} & set(parts)
        # Some spellings with control characters and "\\" are other servers to a browser.
        is_plain = text is not None and text.isascii() and text.isprintable() and "\\" not in text and " " not in text
        return text if text and is_ours and is_plain and len(text) <= _NEXT_CHARACTERS else f"{root}/console/"

    def _locked(self) -> Answer:
        """The page for a person who has no way to sign in here."""
        text = (
            "Open the console link that contains its token: Pegboard prints the link when it starts."
            if self._link
            else "Sign in to the application that serves this page, and open it again."
        )
        return plain_page("This page is locked", PageText(text), status=401)

    def _base(self, head: Head, root: str) -> str:
        """The URL of this server as clients see it."""
        public = "" if self._auth is None else self._auth.public_url
        return public or head.origin + root

    def _callback(self, head: Head, root: str) -> str:
        return f"{self._base(head, root)}{SIGN_IN}/callback"


def root_of(head: Head, page: str) -> str:
    """The path of this server as the browser sees it, without a slash at the end: `page` is below it."""
    before = head.path.decode("latin-1").partition(page)[0]
    return head.locate(quote(before)).rstrip("/")


def read_query(head: Head) -> dict[str, str]:
    """The fields of the query; none if there are too many."""
    return dict(_read_pairs(head.query.decode("latin-1")))


def _read_credentials(auth: Auth, head: Head, resource: str) -> RequestCredentials | None:
    """What a proxy or a program sent."""
    proxy = auth.proxy
    named = None if proxy is None else proxy.sent(head.headers, head.via or head.peer)
    if proxy is not None and named is not None:
        if proxy.field in head.repeated:
            raise invalid_token(f"The header {proxy.header} occurs more than once")
        return RequestCredentials(PROXY, named, resource=resource)
    read = read_credentials(head.headers, head.query)
    return None if read is None else RequestCredentials(*read, resource=resource)


def _is_navigation(head: Head) -> bool:
    """Whether a person opens the page, rather than a script of it."""
    mode = head.headers.get(b"sec-fetch-mode")
    return mode == b"navigate" if mode is not None else b"text/html" in head.headers.get(b"accept", b"")


def _is_from_elsewhere(head: Head) -> bool:
    """Whether another site sends the request, and not by a link that a person follows."""
    site = head.headers.get(b"sec-fetch-site", b"same-origin")
    return site not in (b"same-origin", b"none") and not (head.method == b"GET" and _is_navigation(head))


def _read_fields(head: Head, body: bytes) -> dict[str, str]:
    kind = head.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/x-www-form-urlencoded" or len(body) > FORM_BYTES:
        return {}
    return dict(_read_pairs(body.decode("utf-8", "replace")))


def _read_pairs(text: str) -> list[tuple[str, str]]:
    """The fields of a query or a form; none if there are too many."""
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        return []


def _bearer(visitor: Visitor) -> str:
    return f"proxy {visitor.principal.id}" if visitor.session is None else visitor.session.id


def _expired_form(again: str = "") -> Answer:
    text = PageText("This form is too old, or it is from another page. Nothing was changed.", "error")
    back: tuple[Any, ...] = (PageLink("Open the page again", again),) if again else ()
    return plain_page("Open the page again", text, *back, status=403)


def _problem(refusal: AuthRefusal, *more: PageLink) -> Answer:
    status = refusal.http_status
    title = "Try again later" if status == 503 else "Sign-in failed"
    return plain_page(title, PageText(f"{refusal.message}.", "error"), *more, status=status)
