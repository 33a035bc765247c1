"""A server with accounts behind a gateway: an authorization server, the server that takes its tokens, users and browsers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx

from pegboard import Accepted, Auth, Board, Client, Context, Gateway, Issuer
from pegboard.auth.api_keys import ApiKeys
from pegboard.client.client_channel import Elicitation
from pegboard.client.login.browser import Redirect
from pegboard.client.login.storage import MemoryStorage
from pegboard.gateway.servers.server_logins import Logins
from pegboard.limits import Limits
from pegboard.stores.store_url import open_store
from tests.auth.issuing import TestIssuer
from tests.auth.serving import Site, serving
from tests.client.fakes import Asked, faking, reply
from tests.server.pages.paged_board import Browser

AUDIENCE = "accounts"
GATEWAY = "gateway"
SECRET = "a-key-of-the-operator-for-tests"


class AccountIssuer(TestIssuer):
    """Issues tokens for the account that a cookie names; a refresh token works once, and using it again revokes all."""

    def __init__(self) -> None:
        super().__init__("")
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: dict[str, str] = {}
        self.used: dict[str, str] = {}
        self.revoked: set[str] = set()
        self.granted: Counter[str] = Counter()
        self.refreshed: Counter[str] = Counter()
        self.reused = 0
        self.clients = 0
        self.seconds = 600
        self.metadata: dict[str, Any] = {}
        self.unknown: set[str] = set()
        self.issued = ""
        self.issued_tokens: list[str] = []
        self.scopes: dict[str, str] = {}
        self.keeps_scopes = True
        self.down_for_all = False
        self.forms: list[dict[str, str]] = []
        self.refreshing: asyncio.Event | None = None

    def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> Any:
        path = urlsplit(asked.target).path
        if self.down_for_all:
            reply(writer, b"", "503 Service Unavailable")
            return None
        match asked.method, path:
            case "GET", "/.well-known/oauth-authorization-server":
                reply(writer, {**self._metadata(), **self.metadata})
            case "POST", "/register":
                self.clients += 1
                reply(writer, {"client_id": f"client-{self.clients}"}, "201 Created")
            case "GET", "/authorize":
                self._authorize(asked, writer)
            case "POST", "/token":
                return self._token(asked, writer)
            case "POST", "/revoke":
                form = dict(parse_qsl(asked.body.decode()))
                self.revoked.add(form["token"])
                self.refresh_tokens.pop(form["token"], None)
                reply(writer, b"")
            case _:
                super().answer(asked, writer)
        return None

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "code_challenge_methods_supported": ["S256"],
        }

    def _authorize(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        query = dict(parse_qsl(urlsplit(asked.target).query))
        cookie = SimpleCookie(asked.headers.get("cookie", "")).get("account")
        location = f"{query['redirect_uri']}?{urlencode(self.agree(cookie.value if cookie else 'nobody', query))}"
        writer.write(f"HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode())

    def agree(self, account: str, query: Mapping[str, str]) -> dict[str, str]:
        """The parameters of the redirect after a person agreed."""
        code = uuid.uuid4().hex
        self.codes[code] = {**query, "account": account}
        return {"code": code, "state": query["state"], "iss": self.url}

    async def _token(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        self.forms.append(form)
        match form["grant_type"]:
            case "authorization_code":
                account = self._redeem(form)
            case "refresh_token":
                if self.refreshing is not None:
                    await self.refreshing.wait()
                account = self._rotate(form["refresh_token"])
            case "client_credentials":
                account = "the-gateway"
            case "urn:ietf:params:oauth:grant-type:token-exchange" if form["requested_token_type"].endswith("id-jag"):
                reply(writer, self._assert_identity(form))
                return
            case "urn:ietf:params:oauth:grant-type:token-exchange":
                account = self._account_of(form["subject_token"], GATEWAY)
            case _:
                account = self._account_of(form["assertion"], self.url)
        if account is None:
            reply(writer, {"error": "invalid_grant"}, "400 Bad Request")
            return
        self.granted[form["grant_type"]] += 1
        refresh = uuid.uuid4().hex
        self.refresh_tokens[refresh] = account
        token = self.sign(sub=account, aud=AUDIENCE, scope=self.scopes.get(account, "") or None)
        self.issued_tokens.append(token)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.seconds, "refresh_token": refresh}
        reply(writer, answer)

    def _account_of(self, token: str, audience: str) -> str | None:
        """The account of a person at this authorization server, by a token that is for `audience`."""
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        if claims["aud"] != audience or claims["sub"] in self.unknown:
            return None
        return f"{claims['sub']}-account"

    def _assert_identity(self, form: dict[str, str]) -> dict[str, Any]:
        claims = json.loads(base64.urlsafe_b64decode(form["subject_token"].split(".")[1] + "=="))
        assertion = self.sign(sub=claims["sub"], aud=form["audience"], header={"typ": "oauth-id-jag+jwt"})
        kind = "urn:ietf:params:oauth:token-type:id-jag"
        return {"access_token": assertion, "issued_token_type": self.issued or kind, "token_type": "N_A"}

    def _redeem(self, form: dict[str, str]) -> str | None:
        given = self.codes.pop(form["code"], None)
        proof = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if given is None or given["code_challenge"] != proof or given["redirect_uri"] != form["redirect_uri"]:
            return None
        self.scopes[given["account"]] = given.get("scope", "") if self.keeps_scopes else ""
        return given["account"]

    def _rotate(self, token: str) -> str | None:
        account = self.refresh_tokens.pop(token, None)
        if account is None:
            self.reused += 1
            family = self.used.get(token)
            self.refresh_tokens = {
                other: of for other, of in self.refresh_tokens.items() if family is None or of != family
            }
            return None
        self.used[token] = account
        self.refreshed[account] += 1
        return account


@dataclass
class Operator:
    """The operator logs in to read the lists of the server, as an account of their own."""

    issuer: AccountIssuer
    uri: str = "http://127.0.0.1:9/callback"

    @asynccontextmanager
    async def opened(self, registered: str | None) -> AsyncIterator[Redirect]:
        yield self

    async def visit(self, url: str) -> str:
        query = dict(parse_qsl(urlsplit(url).query))
        return f"{self.uri}?{urlencode(self.issuer.agree('operator', query))}"


def account_board(issuer: str) -> Board:
    """The server: its tools say which account calls them."""
    board = Board("accounts", auth=Auth(issuers=[Issuer(issuer, audience=AUDIENCE)]))

    @board.tool
    async def whoami(ctx: Context, mark: str = "") -> str:
        return f"{ctx.principal.id}{mark}"

    @board.tool(scopes={"notes.write"})
    async def write(ctx: Context) -> str:
        return f"{ctx.principal.id} wrote"

    @board.prompt
    async def greet(ctx: Context) -> str:
        return f"Greet {ctx.principal.id}"

    return board


@dataclass
class AccountSite:
    """The authorization server and the server behind the gateway, and the store of the gateway."""

    issuer: AccountIssuer
    server: Site
    store: str
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{self.server.url}/mcp"

    def config(self, **changes: Any) -> dict[str, Any]:
        entry = {"url": self.url, "auth": {"kind": "oauth", "per": "user"}, **changes}
        return {
            "auth": {"keys": True},
            "vault": {"key": SECRET},
            "toolboxes": {"dev": {"description": "d", "mcpServers": {"accounts": entry}}},
        }

    @asynccontextmanager
    async def gateway(
        self, config: Mapping[str, Any] | None = None, options: Mapping[str, Any] | None = None, **changes: Any
    ) -> AsyncIterator[Served]:
        """A gateway of this configuration; several of them are replicas."""
        logins = Logins(MemoryStorage(), login=Operator(self.issuer))
        gateway = Gateway(config or self.config(**changes), logins=logins)
        async with serving(gateway, **{"store": self.store, **(options or {})}) as site:
            gateway.listens_at(f"{site.url}/mcp")
            await gateway.wait_connected(30)
            yield Served(self, gateway, site)

    async def add_users(self, *names: str) -> None:
        store = open_store(self.store, Limits())
        await store.start()
        try:
            for name in names:
                self.keys[name] = await ApiKeys(store.records).add(name)
        finally:
            await store.close()


@dataclass
class Served:
    """A gateway at a port."""

    accounts: AccountSite
    gateway: Gateway
    site: Site

    def client(self, user: str, version: str | None = None, **options: Any) -> Client:
        headers = {"Authorization": f"Bearer {self.accounts.keys[user]}"}
        return Client(f"{self.site.url}/mcp", headers=headers, version=version, **options)

    async def call(
        self, user: str, version: str | None = None, mark: str = "", tool: str = "whoami", **options: Any
    ) -> str:
        """Call `whoami`, or another tool, as this user; the text of the result."""
        async with self.client(user, version, **options) as client:
            result = await client.call(f"dev__accounts__{tool}", {"mark": mark} if mark else {})
            return result.text


@dataclass
class Person:
    """A user at a browser, which is signed in to the gateway as `user` and at the authorization server as `account`."""

    accounts: AccountSite
    user: str
    account: str
    browser: Browser
    opened: list[str] = field(default_factory=list)

    async def open(self, url: str) -> httpx.Response:
        """Open a link, and sign in to the gateway if that is needed."""
        self.opened.append(url)
        page = await self.browser.open(url)
        return await self.browser.submit(key=self.accounts.keys[self.user]) if "API key" in page.text else page

    async def log_in(self) -> httpx.Response:
        """Press the button of the page, and let the authorization server send the browser back."""
        page = await self.browser.submit(action="connect")
        away = page.headers.get("refresh", "").partition("url=")[2]
        return await self.browser.open(away, **{"sec-fetch-site": "cross-site"}) if away else page

    async def connect(self, url: str) -> httpx.Response:
        await self.open(url)
        return await self.log_in()

    async def elicit(self, question: Elicitation) -> Accepted[None]:
        """Answer the question of a client: open the link, log in, agree."""
        assert question.url is not None
        page = await self.connect(question.url)
        assert "is connected" in page.text, page.text
        return Accepted()


@asynccontextmanager
async def person(accounts: AccountSite, user: str, account: str | None = None) -> AsyncIterator[Person]:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        client.cookies.set("account", account or f"{user}-account", domain="127.0.0.1")
        yield Person(accounts, user, account or f"{user}-account", Browser(client))


@asynccontextmanager
async def account_site(folder: Path, **users: str) -> AsyncIterator[AccountSite]:
    """The servers behind the gateway, and API keys for ann and bob."""
    issuer = AccountIssuer()
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(faking(issuer.answer))
        issuer.url = f"http://127.0.0.1:{fake.port}"
        board = account_board(issuer.url)
        site = await stack.enter_async_context(serving(board))
        accounts = AccountSite(issuer, site, f"sqlite:{folder / 'gateway.db'}")
        await accounts.add_users("ann", "bob")
        yield accounts
