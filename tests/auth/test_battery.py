"""Credentials that must be rejected, and those that must not, at every endpoint and in both eras.

Each case names its clause: of the specification 2026-07-28 (basic/authorization), of an RFC, or of docs/security.md.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from pegboard import Auth, Board, Context, Gateway, Issuer
from pegboard.config.gateway_config import read_config
from tests.auth.issuing import PUBLIC_URL, RESOURCE, SigningKeys, TestIssuer, encode, issuing, sign, unsigned
from tests.auth.serving import HELLO, LEGACY, Site, legacy_message, modern_call, read_to_end, serving, write_request
from tests.server.http_clients import Line, Reply

Headers = dict[str, str]


@dataclass(frozen=True)
class Case:
    """Credentials: the headers that carry them, and the response that they get.

    `error` is the error of the challenge; "" for a challenge without one, None where there is no challenge.
    """

    name: str
    clause: str
    headers: Callable[[TestIssuer], Headers]
    status: int = 401
    error: str | None = "invalid_token"
    query: str = ""
    more: tuple[str, ...] = ()
    seen: str = field(default="", compare=False)


def token(make: Callable[[TestIssuer], str]) -> Callable[[TestIssuer], Headers]:
    return lambda issuer: {"Authorization": f"Bearer {make(issuer)}"}


def fixed(**headers: str) -> Callable[[TestIssuer], Headers]:
    return lambda _: headers


def changed(**claims: Any) -> Callable[[TestIssuer], Headers]:
    return token(lambda issuer: issuer.sign(**claims))


def hs256(issuer: TestIssuer) -> str:
    """Signed with the public key as the secret of a symmetric algorithm."""
    parts = [
        encode(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": "rsa", "typ": "at+jwt"}, issuer.claims())
    ]
    secret = SigningKeys.rsa.as_pem(private=False)
    return ".".join([*parts, encode(hmac.new(secret, ".".join(parts).encode(), hashlib.sha256).digest())])


def tampered(issuer: TestIssuer) -> str:
    header, claims, signature = issuer.sign().split(".")
    padded = json.loads(base64.urlsafe_b64decode(claims + "=="))
    return ".".join([header, encode(json.dumps({**padded, "sub": "root"}).encode()), signature])


def own_key(issuer: TestIssuer) -> str:
    """A token that brings the key it is signed with."""
    described = SigningKeys.stranger.as_dict(private=False)
    return issuer.sign(SigningKeys.stranger, {"jwk": described, "kid": None})


NOW = int(time.time())
TOKENS = "Token Handling"
AUDIENCE = "Token Audience Binding and Validation"
REJECTED = [
    Case("no credentials", "RFC 6750, 3.1: without credentials no error code", fixed(), error=""),
    Case("basic", "RFC 6750, 3: the scheme is Bearer", fixed(Authorization="Basic YW5uOnNlY3JldA=="), error=""),
    Case("unknown scheme", "RFC 6750, 3: the scheme is Bearer", fixed(Authorization="Token abc"), error=""),
    Case("no scheme", "RFC 9110, 11.4: the scheme first", fixed(Authorization="pb_abc"), 400, "invalid_request"),
    Case("no token", "RFC 6750, 3.1: invalid_request", fixed(Authorization="Bearer"), 400, "invalid_request"),
    Case("blank token", "RFC 6750, 3.1: invalid_request", fixed(Authorization="Bearer  "), 400, "invalid_request"),
    Case("two tokens", "RFC 6750, 2.1: b64token", fixed(Authorization="Bearer a b"), 400, "invalid_request"),
    Case("quoted token", "RFC 6750, 2.1: b64token", fixed(Authorization='Bearer "abc"'), 400, "invalid_request"),
    Case("two headers", "Error Handling: 400 malformed", fixed(Authorization="Bearer a"), 400, "invalid_request", more=("Authorization: Bearer b",)),
    Case("in the query", "Token Requirements: not in the query string", fixed(), 400, "invalid_request", query="access_token=abc"),
    Case("opaque", TOKENS, fixed(Authorization="Bearer abcdef")),
    Case("two parts", TOKENS, fixed(Authorization="Bearer eyJhIjoxfQ.eyJhIjoxfQ")),
    Case("no json", TOKENS, fixed(Authorization="Bearer ey.ey.ey")),
    Case("expired", f"{TOKENS}: expired tokens MUST receive a 401", changed(exp=NOW - 3600)),
    Case("expired long ago", f"{TOKENS}: expired tokens MUST receive a 401", changed(exp=1)),
    Case("not yet valid", "RFC 7519, 4.1.5: nbf", changed(nbf=NOW + 3600)),
    Case("no expiry", "RFC 9068, 2.2: exp is required", changed(exp=None)),
    Case("expiry as text", "RFC 7519, 4.1.4: a number", changed(exp="tomorrow")),
    Case("expiry true", "RFC 7519, 4.1.4: a number", changed(exp=True)),
    Case("other audience", AUDIENCE, changed(aud="https://other.example/mcp")),
    Case("no audience", AUDIENCE, changed(aud=None)),
    Case("audience with slash", f"{AUDIENCE}: compared exactly", changed(aud=RESOURCE + "/")),
    Case("audience of another case", f"{AUDIENCE}: compared exactly", changed(aud=RESOURCE.upper())),
    Case("audience of the origin", f"{AUDIENCE}: compared exactly", changed(aud=PUBLIC_URL)),
    Case("other audiences", AUDIENCE, changed(aud=["https://a.example", "https://b.example"])),
    Case("audience as object", AUDIENCE, changed(aud={"url": RESOURCE})),
    Case("other issuer", "RFC 9068, 4: iss MUST exactly match", changed(iss="https://evil.example")),
    Case("issuer with slash", "RFC 9068, 4: iss MUST exactly match", token(lambda one: one.sign(iss=one.url + "/"))),
    Case("alg none", "RFC 9068, 4: MUST reject alg none", token(lambda one: unsigned({"alg": "none", "typ": "at+jwt"}, one.claims()))),
    Case("alg None", "RFC 9068, 4: MUST reject alg none", token(lambda one: unsigned({"alg": "None", "kid": "ec"}, one.claims()))),
    Case("no alg", "RFC 7515, 4.1.1: alg MUST be present", token(lambda one: unsigned({"typ": "at+jwt"}, one.claims()))),
    Case("hs256 with the public key", "RFC 8725, 3.1: algorithm verification", token(hs256)),
    Case("unknown key", "RFC 7515, 4.1.4: kid", token(lambda one: one.sign(SigningKeys.stranger, {"kid": "new"}))),
    Case("stranger's key", f"{TOKENS}: signature", token(lambda one: one.sign(SigningKeys.stranger))),
    Case("key in the header", "RFC 8725, 3.10: do not trust received claims", token(own_key)),
    Case("key url in the header", "RFC 8725, 3.10: do not trust received claims", token(lambda one: one.sign(SigningKeys.stranger, {"jku": "https://evil.example/keys"}))),
    Case("tampered", f"{TOKENS}: signature", token(tampered)),
    Case("signature removed", f"{TOKENS}: signature", token(lambda one: one.sign().rpartition(".")[0] + ".")),
    Case("critical extension", "RFC 7515, 4.1.11: crit", token(lambda one: unsigned({"alg": "ES256", "kid": "ec", "crit": ["x"], "x": 1}, one.claims()))),
    Case("id token", "RFC 9068, 2.1: typ distinguishes from ID tokens", changed(at_hash="abc")),
    Case("id token of keycloak", "RFC 9068, 2.1: typ distinguishes from ID tokens", changed(typ="ID")),
    Case("refresh token", "RFC 9068, 2.1: access tokens only", changed(typ="Refresh")),
    Case("proof as token", "RFC 9068, 4: typ at+jwt", token(lambda one: one.sign(header={"typ": "dpop+jwt"}))),
    Case("logout token", "RFC 9068, 4: typ at+jwt", token(lambda one: one.sign(header={"typ": "logout+jwt"}))),
    Case("no subject", "RFC 9068, 2.2: sub is required", changed(sub=None)),
    Case("empty subject", "RFC 9068, 2.2: sub is required", changed(sub="")),
    Case("subject as number", "RFC 7519, 4.1.2: a string", changed(sub=7)),
    Case("decomposed subject", "docs/security.md: ids in one Unicode form", changed(sub="re\u0301ne\u0301")),
    Case("invisible subject", "docs/security.md: printable ids", changed(sub="ann\u200b")),
    Case("subject with a line break", "docs/security.md: printable ids", changed(sub="ann\nroot")),
    Case("subject of a key", "docs/security.md: ids of another source", changed(sub="key:ci")),
    Case("bound token", "RFC 9449, 7.1: not as a bearer token", token(lambda one: one.sign(cnf={"jkt": "abc"}))),
    Case("certificate-bound token", "RFC 8705, 3: the certificate must match", token(lambda one: one.sign(cnf={"x5t#S256": "abc"}))),
    Case("16 KB", "docs/security.md: the length of a token is limited", token(lambda one: one.sign(padding="x" * 16_000))),
]  # fmt: skip
ACCEPTED = [
    Case("valid", TOKENS, changed(), 200, seen="ann"),
    Case("scheme in lower case", "RFC 9110, 11.1: case-insensitive", lambda one: {"authorization": f"bearer {one.sign()}"}, 200, seen="ann"),
    Case("one of several audiences", AUDIENCE, changed(aud=["https://a.example", RESOURCE]), 200, seen="ann"),
    Case("just expired", "RFC 7519, 4.1.4: leeway for clock skew", changed(exp=NOW + 600, nbf=NOW + 10), 200, seen="ann"),
    Case("rsa", TOKENS, token(lambda one: one.sign(SigningKeys.rsa)), 200, seen="ann"),
    Case("typ jwt", "docs/security.md: issuers before RFC 9068", token(lambda one: one.sign(header={"typ": "JWT"})), 200, seen="ann"),
    Case("no typ", "docs/security.md: issuers before RFC 9068", token(lambda one: one.sign(header={"typ": None})), 200, seen="ann"),
    Case("another case is another caller", "docs/security.md: ids are compared exactly", changed(sub="Ann"), 200, seen="Ann"),
    Case("composed subject", "docs/security.md: ids in one Unicode form", changed(sub="r\u00e9n\u00e9"), 200, seen="r\u00e9n\u00e9"),
]  # fmt: skip


@dataclass(frozen=True)
class Endpoint:
    """A request for an endpoint: its method and path, its body and its headers."""

    name: str
    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    answers: bool = True

    async def send(self, line: Line, case: Case, issuer: TestIssuer) -> Reply:
        path = f"{self.path}{'&' if '?' in self.path else '?'}{case.query}" if case.query else self.path
        raw = write_request(self.method, path, self.body, {**self.headers, **case.headers(issuer)})
        head, _, body = raw.partition(b"\r\n\r\n")
        for more in case.more:
            head += b"\r\n" + more.encode()
        return await line.ask(head + b"\r\n\r\n" + body, self.method)


CALL = {"name": "whoami", "arguments": {}}
SOCKET = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw=="}  # fmt: skip
SESSION = {"Mcp-Session-Id": "0" * 32, "MCP-Protocol-Version": LEGACY}
ENDPOINTS = [
    Endpoint("modern", "POST", "/mcp", *modern_call("whoami")),
    Endpoint("initialize", "POST", "/mcp", legacy_message("initialize", **HELLO)[0], answers=False),
    Endpoint("session", "POST", "/mcp", *legacy_message("tools/call", None, "0" * 32, **CALL), answers=False),
    Endpoint("session stream", "GET", "/mcp", b"", {**SESSION, "Accept": "text/event-stream"}, answers=False),
    Endpoint("end of session", "DELETE", "/mcp", b"", SESSION, answers=False),
    Endpoint("rpc", "POST", "/rpc", legacy_message("tools/call", **CALL)[0]),
    Endpoint("sse post", "POST", "/sse", legacy_message("tools/call", **CALL)[0]),
    Endpoint("sse", "GET", "/sse", b"", {"Accept": "text/event-stream"}, answers=False),
    Endpoint("messages", "POST", "/messages?sessionId=abc", legacy_message("ping")[0], answers=False),
    Endpoint("websocket", "GET", "/ws", b"", SOCKET, answers=False),
]
METADATA = f"{PUBLIC_URL}/.well-known/oauth-protected-resource"


def whoami_board(issuer: TestIssuer) -> Board:
    audience = [RESOURCE]
    board = Board(
        "battery", auth=Auth(public_url=PUBLIC_URL, issuers=[Issuer(issuer.url, audience)], scopes={"notes.read"})
    )

    @board.tool
    def whoami(ctx: Context) -> str:
        return f"<{ctx.principal.id}>"

    return board


REASONS = {
    "no scheme": "send it as Bearer <token>",
    "expired": "has expired",
    "not yet valid": "not valid yet",
    "other audience": "another audience",
    "alg none": "algorithm",
    "no alg": "algorithm",
    "hs256 with the public key": "algorithm",
    "unknown key": "unknown key",
    "stranger's key": "signature",
    "tampered": "signature",
    "critical extension": "extension",
    "id token": "not an access token",
    "subject of a key": "another issuer",
    "16 KB": "longer than",
}


def check_rejection(reply: Reply, case: Case, resource: str, issuer: TestIssuer) -> None:
    assert reply.status == case.status, reply.body
    challenge = reply.headers["www-authenticate"]
    assert challenge.startswith(("Bearer ", "DPoP "))
    if case.error:
        assert f'error="{case.error}"' in challenge
        assert 'error_description="' in challenge
    else:
        assert "error" not in challenge
    assert REASONS.get(case.name, "") in challenge
    if case.name != "two headers":
        assert f'resource_metadata="{METADATA}{resource}"' in challenge
    # "Servers SHOULD include a scope parameter" (Scope Selection Strategy)
    assert ('scope="notes.read"' in challenge) == (case.status == 401)
    sent = case.headers(issuer).get("Authorization", "").partition(" ")[2]
    said = reply.body.decode() + str(reply.headers)
    assert "battery" not in said, "what is behind is not shown"
    assert len(sent) < 20 or sent not in said, "the token is not repeated"


GROUPS = {
    "2026": ["modern", "websocket"],
    "2025": ["initialize", "session", "session stream", "end of session"],
    "deprecated": ["rpc", "sse post", "sse", "messages"],
}


@pytest.mark.same_on_every_python
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("case", REJECTED, ids=lambda one: one.name)
async def test_rejected_with_the_exact_challenge(case: Case, group: str) -> None:
    async with issuing() as issuer, serving(whoami_board(issuer)) as site:
        for endpoint in ENDPOINTS:
            if endpoint.name in GROUPS[group]:
                line = await site.connect()
                reply = await endpoint.send(line, case, issuer)
                resource = "/sse" if endpoint.name == "messages" else endpoint.path
                check_rejection(reply, case, resource, issuer)
                line.hang_up()


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda one: one.name)
async def test_accepted_with_its_principal(case: Case) -> None:
    async with issuing() as issuer, serving(whoami_board(issuer)) as site:
        for endpoint in ENDPOINTS:
            if endpoint.answers:
                line = await site.connect()
                reply = await endpoint.send(line, case, issuer)
                assert reply.status == 200, endpoint.name
                assert f"<{case.seen}>" in reply.body.decode(), endpoint.name
                line.hang_up()


async def test_a_websocket_opens_with_a_valid_token() -> None:
    async with issuing() as issuer, serving(whoami_board(issuer)) as site:
        line = await site.connect()
        line._writer.write(write_request("GET", "/ws", b"", {**SOCKET, "Authorization": f"Bearer {issuer.sign()}"}))
        assert (await line._reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        line.hang_up()


# -- toolboxes of a gateway -------------------------------------------------------------------------------------------


def gateway_of(issuer: TestIssuer, folder: Any, **auth: Any) -> Gateway:
    file = folder / "gateway.json"
    described = {"issuer": issuer.url, **auth}
    board = folder / "shop.py"
    board.write_text(
        "from pegboard import Board\nboard = Board('shop')\n@board.tool\ndef price() -> str:\n    return '7'\n"
    )
    toolboxes = {
        name: {"description": name, "mcpServers": {"shop": {"board": str(board)}}} for name in ("office", "home")
    }
    file.write_text(json.dumps({"auth": {"publicUrl": PUBLIC_URL, "issuers": [described]}, "toolboxes": toolboxes}))
    return Gateway(read_config(file, {}))


async def ask_toolbox(site: Site, name: str, sent: Headers) -> Reply:
    body, headers = modern_call("shop__price")
    return await site.ask("POST", f"/toolboxes/{name}/mcp", body, {**headers, **sent})


@pytest.mark.parametrize("case", REJECTED[::9], ids=lambda one: one.name)
async def test_a_toolbox_rejects_with_a_challenge_of_its_own(case: Case, tmp_path: Any) -> None:
    async with issuing() as issuer, serving(gateway_of(issuer, tmp_path, audience=[RESOURCE])) as site:
        endpoint = Endpoint("toolbox", "POST", "/toolboxes/office/mcp", *modern_call("shop__price"))
        line = await site.connect()
        reply = await endpoint.send(line, case, issuer)
        assert reply.status == case.status
        if case.name != "two headers":
            assert f'resource_metadata="{METADATA}/toolboxes/office/mcp"' in reply.headers["www-authenticate"]
        line.hang_up()


async def test_a_preflight_does_not_show_which_toolboxes_exist(tmp_path: Any) -> None:
    async with issuing() as issuer, serving(gateway_of(issuer, tmp_path)) as site:
        replies = [await site.ask("OPTIONS", f"/toolboxes/{name}/mcp") for name in ("office", "nowhere")]
        assert [(reply.status, reply.headers["allow"]) for reply in replies] == [
            (204, "GET, POST, DELETE, OPTIONS")
        ] * 2


async def test_a_token_for_one_toolbox_is_not_accepted_at_another_and_unknown_ones_look_the_same(tmp_path: Any) -> None:
    async with issuing() as issuer, serving(gateway_of(issuer, tmp_path)) as site:
        office = {"Authorization": f"Bearer {issuer.sign(aud=f'{PUBLIC_URL}/toolboxes/office/mcp')}"}
        assert (await ask_toolbox(site, "office", office)).status != 401
        for name in ("home", "nowhere"):
            reply = await ask_toolbox(site, name, office)
            assert (reply.status, "another audience" in reply.headers["www-authenticate"]) == (401, True)
        for path in ("", "/mcp", "/toolboxes/office/mcp", "/toolboxes/nowhere/mcp"):
            described = await site.ask("GET", f"/.well-known/oauth-protected-resource{path}")
            assert described.json["resource"] == PUBLIC_URL + (path or "/mcp")
            assert described.json["authorization_servers"] == [issuer.url]


# -- metadata and open paths ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mcp", "/rpc", "/sse", "/ws"])
async def test_each_endpoint_has_metadata_of_its_own(path: str) -> None:
    """RFC 9728, 3.1: the path of the resource follows the well-known path."""
    async with issuing() as issuer, serving(whoami_board(issuer)) as site:
        reply = await site.ask("GET", f"/.well-known/oauth-protected-resource{path}")
        assert reply.json == {
            "resource": PUBLIC_URL + path,
            "authorization_servers": [issuer.url],
            "bearer_methods_supported": ["header"],
            "resource_name": "battery",
            "scopes_supported": ["notes.read"],
        }
        assert reply.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_probes_need_no_credentials_and_show_no_servers(path: str, tmp_path: Any) -> None:
    async with issuing() as issuer, serving(gateway_of(issuer, tmp_path, audience=[RESOURCE])) as site:
        reply = await site.ask("GET", path)
        assert "shop" not in reply.body.decode()
        assert reply.json["status"] in ("ok", "ready")


@pytest.mark.parametrize(
    "path", ["/.well-known/oauth-authorization-server", "/register", "/.well-known/oauth-protected-resource/nothing"]
)
async def test_other_paths_are_not_found(path: str) -> None:
    """Clients look for an authorization server here; there is none of our own."""
    async with issuing() as issuer, serving(whoami_board(issuer)) as site:
        assert (await site.ask("GET", path)).status == 404


async def test_a_preflight_needs_no_credentials_and_a_rejection_can_be_read_by_an_allowed_page() -> None:
    async with issuing() as issuer, serving(whoami_board(issuer), cors="https://app.example") as site:
        origin = {"Origin": "https://app.example"}
        preflight = await site.ask(
            "OPTIONS", "/mcp", b"", {**origin, "Access-Control-Request-Headers": "authorization"}
        )
        assert (preflight.status, preflight.headers["access-control-allow-headers"]) == (204, "authorization")
        body, headers = modern_call("whoami")
        reply = await site.ask("POST", "/mcp", body, {**headers, **origin})
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (401, "https://app.example")
        assert "WWW-Authenticate" in reply.headers["access-control-expose-headers"]


async def test_a_body_is_not_read_before_its_sender_is_known() -> None:
    async with issuing() as issuer, serving(whoami_board(issuer)) as site:
        for headers in ({}, {"Expect": "100-continue"}, {"Authorization": f"Bearer {issuer.sign(exp=1)}"}):
            line = await site.connect()
            head = write_request(
                "POST", "/mcp", b"", {**headers, "Content-Type": "application/json", "Content-Length": "4000000"}
            )
            line._writer.write(head + b"{")
            answer = await read_to_end(line)
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"100 Continue" not in answer


async def test_behind_a_trusted_proxy_the_metadata_name_the_url_of_the_client() -> None:
    async with issuing() as issuer:
        board = Board("battery", auth=Auth(issuers=[Issuer(issuer.url, RESOURCE)]))
        options = {"trusted_proxy": "127.0.0.1", "allow_host": "tools.example"}
        async with serving(board, **options) as site:
            sent = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "tools.example", "X-Forwarded-For": "192.0.2.7"}
            body, headers = modern_call("whoami")
            reply = await site.ask("POST", "/mcp", body, {**headers, **sent})
            assert f'resource_metadata="{METADATA}/mcp"' in reply.headers["www-authenticate"]
        async with serving(board, allow_host="tools.example") as site:
            reply = await site.ask("POST", "/mcp", body, {**headers, **sent})
            assert 'resource_metadata="http://127.0.0.1/' in reply.headers["www-authenticate"]


async def test_the_wall_clock_that_is_set_back_does_not_prolong_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, ticks = time.time(), 1000.0
    monkeypatch.setattr("pegboard.server.http.authenticated_endpoint._monotonic", lambda: ticks)
    async with issuing() as issuer:
        board = Board("battery", auth=Auth(issuers=[Issuer(issuer.url, RESOURCE)], clock=lambda: wall))
        board.tool("yes")(_yes)
        async with serving(board) as site:
            line = await site.connect()
            raw = write_request("POST", "/mcp", *modern_call("yes", issuer.sign(exp=int(wall) + 60)))
            assert (await line.ask(raw)).status == 200
            wall -= 86_400
            ticks += 301
            assert (await line.ask(raw)).status == 200, "verified again, by the clock that now is right"
            wall += 2 * 86_400
            ticks += 301
            assert (await line.ask(raw)).status == 401
            line.hang_up()


def _yes() -> str:
    return "yes"


async def test_claims_are_never_more_than_what_was_signed() -> None:
    async with issuing() as issuer, serving(whoami_board(issuer)) as site:
        reply = await site.call("whoami", sign(issuer.claims(scope=["a b", 7, None]), SigningKeys.ec))
        assert reply.status == 200
