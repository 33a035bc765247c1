"""Tokens of issuers: JWTs, key rotation, introspection and DPoP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from pegboard import Auth, Board, Context, Introspection, Issuer
from pegboard.errors import SetupError
from pegboard.server.http.authenticated_endpoint import AuthenticatedEndpoint
from tests.auth.issuing import PUBLIC_URL, RESOURCE, SigningKeys, TestIssuer, issuing, prove
from tests.auth.serving import Site, modern_call, serving, write_request


def board_of(*issuers: Issuer, **options: Any) -> Board:
    board = Board("notes", auth=Auth(issuers=issuers, public_url=PUBLIC_URL, **options))

    @board.tool
    def whoami(ctx: Context) -> str:
        return f"{ctx.principal.id} {sorted(ctx.principal.scopes)} {sorted(ctx.principal.roles)}"

    return board


async def who(site: Site, token: str, scheme: str = "Bearer", **headers: str) -> str | int:
    body, fields = modern_call("whoami")
    reply = await site.ask("POST", "/mcp", body, {**fields, "Authorization": f"{scheme} {token}", **headers})
    return reply.json["result"]["content"][0]["text"] if reply.status == 200 else reply.status


@pytest.mark.parametrize("key", [SigningKeys.rsa, SigningKeys.ec, SigningKeys.okp], ids=["rsa", "ec", "okp"])
async def test_a_token_of_a_trusted_issuer_gives_its_principal(key: Any) -> None:
    async with issuing() as issuer, serving(board_of(Issuer(issuer.url, roles="realm_access.roles"))) as site:
        token = issuer.sign(key, realm_access={"roles": ["nurse"]})
        assert await who(site, token) == "ann ['notes.read'] ['nurse']"


async def test_keys_are_fetched_once_for_many_requests_at_the_same_time() -> None:
    async with issuing() as issuer, serving(board_of(Issuer(issuer.url))) as site:
        tokens = [issuer.sign(sub=f"user-{number}") for number in range(20)]
        names = await asyncio.gather(*(who(site, token) for token in tokens))
        assert [str(name).split()[0] for name in names] == [f"user-{number}" for number in range(20)]
        assert issuer.asked["/keys"] == 1


async def test_a_rotated_key_is_found_and_invented_key_ids_cause_no_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    async with issuing() as issuer, serving(board_of(Issuer(issuer.url))) as site:
        assert str(await who(site, issuer.sign())).startswith("ann")
        issuer.keys = [SigningKeys.okp]
        monkeypatch.setattr("pegboard.auth.issuer_keys.ROTATION_SECONDS", 0.0)
        # The key set is fetched again for a key that is not known, here one that was removed.
        assert await who(site, issuer.sign(SigningKeys.ec, {"kid": "new"})) == 401
        monkeypatch.setattr("pegboard.auth.issuer_keys.ROTATION_SECONDS", 3600.0)
        fetched = issuer.asked["/keys"]
        assert [await who(site, issuer.sign(SigningKeys.ec, {"kid": f"made-up-{n}"})) for n in range(10)] == [401] * 10
        assert issuer.asked["/keys"] == fetched == 2


async def test_an_issuer_that_is_down_is_not_a_rejection_and_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with issuing() as issuer, serving(board_of(Issuer(issuer.url))) as site:
        issuer.down = True
        replies = [await who(site, issuer.sign(jti=str(number))) for number in range(10)]
        assert replies == [503] * 10
        assert sum(issuer.asked.values()) == 1
        issuer.down = False
        monkeypatch.setattr("pegboard.auth.issuer_keys.RETRY_SECONDS", 0.0)
        assert str(await who(site, issuer.sign())).startswith("ann")


async def test_a_token_of_one_issuer_cannot_name_a_principal_of_another() -> None:
    async with issuing() as issuer, issuing() as other:
        board = board_of(Issuer(issuer.url), Issuer(other.url, prefix="other:"))
        async with serving(board) as site:
            assert str(await who(site, other.sign(sub="bob"))).startswith("other:bob ")
            for name in ("other:bob", "key:ci", "local:root"):
                assert await who(site, issuer.sign(sub=name)) == 401


def test_two_issuers_need_different_prefixes() -> None:
    with pytest.raises(SetupError, match="different prefixes"):
        Auth(issuers=[Issuer("https://a.example", "x"), Issuer("https://b.example", "x")])


def test_an_issuer_needs_an_audience_or_the_public_url() -> None:
    with pytest.raises(SetupError, match="need an audience"):
        Auth(issuers=[Issuer("https://a.example")])


def test_an_issuer_beyond_loopback_must_use_https() -> None:
    with pytest.raises(SetupError, match="must be an https URL"):
        Auth(issuers=[Issuer("http://a.example", "x")])


async def test_a_broad_scope_includes_narrower_ones() -> None:
    async with issuing() as issuer:
        board = board_of(Issuer(issuer.url), implies={"admin": ["notes.write"], "notes.write": ["notes.read"]})
        async with serving(board) as site:
            assert await who(site, issuer.sign(scope="admin")) == "ann ['admin', 'notes.read', 'notes.write'] []"


# -- introspection ---------------------------------------------------------------------------------------------------


def asked(issuer: TestIssuer, **options: Any) -> Issuer:
    return Issuer(issuer.url, introspection=Introspection("gateway", "s3cret", **options))


async def test_an_opaque_token_is_asked_about_once_while_the_answer_is_fresh() -> None:
    async with issuing() as issuer:
        issuer.opaque["opaque-1"] = {"active": True, "sub": "ann", "aud": [RESOURCE], "scope": "notes.read"}
        async with serving(board_of(asked(issuer))) as site:
            assert [await who(site, "opaque-1") for _ in range(5)] == ["ann ['notes.read'] []"] * 5
            assert issuer.asked["/introspect"] == 1
            assert [await who(site, "opaque-2") for _ in range(5)] == [401] * 5
            assert issuer.asked["/introspect"] == 2


@pytest.mark.parametrize(
    "change",
    [
        {"aud": "https://other.example"},
        {"aud": None},
        {"exp": 1},
        {"active": "true"},
        {"sub": 7},
        {"iss": "https://evil.example"},
    ],
)
async def test_an_opaque_token_is_checked_like_a_jwt(change: dict[str, Any]) -> None:
    async with issuing() as issuer:
        issuer.opaque["opaque"] = {"active": True, "sub": "ann", "aud": RESOURCE, **change}
        async with serving(board_of(asked(issuer))) as site:
            assert await who(site, "opaque") == 401


async def test_introspection_that_is_down_is_not_a_rejection_and_causes_no_storm() -> None:
    async with issuing() as issuer:
        issuer.down = True
        async with serving(board_of(asked(issuer))) as site:
            assert [await who(site, f"opaque-{number}") for number in range(10)] == [503] * 10
            assert sum(issuer.asked.values()) == 1


# -- DPoP ------------------------------------------------------------------------------------------------------------


def bound_token(issuer: TestIssuer, key: Any = SigningKeys.okp) -> str:
    return issuer.sign(cnf={"jkt": key.thumbprint()})


async def test_a_bound_token_with_its_proof_is_accepted_and_the_proof_only_once() -> None:
    async with issuing() as issuer, serving(board_of(Issuer(issuer.url))) as site:
        token = bound_token(issuer)
        proof = prove(token)
        assert str(await who(site, token, "DPoP", DPoP=proof)).startswith("ann")
        assert await who(site, token, "DPoP", DPoP=proof) == 401
        assert str(await who(site, token, "DPoP", DPoP=prove(token))).startswith("ann")


@pytest.mark.parametrize(
    "change",
    [
        {"method": "GET"},
        {"url": "https://tools.example/other"},
        {"key": SigningKeys.ec},
        {"iat": 1},
        {"jti": None},
        {"ath": "x"},
        {"header": {"typ": "JWT"}},
        {"header": {"jwk": None}},
        {"header": {"jwk": SigningKeys.okp.as_dict(private=True)}},
    ],
    ids=["method", "url", "key", "time", "no-id", "token", "type", "no-key", "private-key"],
)
async def test_a_wrong_proof_is_rejected(change: dict[str, Any]) -> None:
    async with issuing() as issuer, serving(board_of(Issuer(issuer.url))) as site:
        token = bound_token(issuer)
        assert await who(site, token, "DPoP", DPoP=prove(token, **change)) == 401


async def test_a_bound_token_without_a_proof_and_a_proof_without_a_bound_token_are_rejected() -> None:
    async with issuing() as issuer, serving(board_of(Issuer(issuer.url))) as site:
        token = bound_token(issuer)
        assert await who(site, token) == 401
        assert await who(site, token, "DPoP") == 401
        free = issuer.sign()
        assert await who(site, free, "DPoP", DPoP=prove(free)) == 401
        assert await who(site, issuer.sign(cnf={"x5t#S256": "abc"})) == 401


async def test_a_proof_is_checked_once_although_the_body_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    screened = asyncio.Event()
    grant = AuthenticatedEndpoint._grant

    def note(self: AuthenticatedEndpoint, *granted: Any) -> None:
        grant(self, *granted)
        screened.set()

    monkeypatch.setattr(AuthenticatedEndpoint, "_grant", note)
    async with issuing() as issuer, serving(board_of(Issuer(issuer.url))) as site:
        token = bound_token(issuer)
        body, fields = modern_call("whoami")
        raw = write_request("POST", "/mcp", body, {**fields, "Authorization": f"DPoP {token}", "DPoP": prove(token)})
        line = await site.connect()
        line._writer.write(raw[:-10])
        await screened.wait()
        reply = await line.ask(raw[-10:])
        assert (reply.status, reply.json["result"]["content"][0]["text"][:3]) == (200, "ann")
        assert (await line.ask(raw)).status == 401
        line.hang_up()


async def test_a_mounted_board_checks_a_proof_once() -> None:
    async with issuing() as issuer:
        mounted = board_of(Issuer(issuer.url)).asgi()
        token = bound_token(issuer)
        body, fields = modern_call("whoami")
        headers = {**fields, "Authorization": f"DPoP {token}", "DPoP": prove(token), "Content-Type": "application/json"}
        headers["Accept"] = "application/json, text/event-stream"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=mounted), base_url="http://127.0.0.1") as client:
            replies = [(await client.post("/mcp", content=body, headers=headers)).status_code for _ in range(2)]
        assert replies == [200, 401]
        await mounted.close()
