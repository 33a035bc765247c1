"""A proxy in front names the caller, in a signed header or in a plain one; nobody else can."""

from __future__ import annotations

import pytest

from pegboard import Auth, Board, Context, Issuer, TrustedProxy
from pegboard.errors import SetupError
from tests.auth.issuing import RESOURCE, issuing
from tests.auth.serving import Site, modern_call, serving

CLOUD = "Cf-Access-Jwt-Assertion"


def board_behind(proxy: TrustedProxy) -> Board:
    board = Board("notes", auth=Auth(proxy=proxy))

    @board.tool
    def whoami(ctx: Context) -> str:
        return f"{ctx.principal.id} {ctx.principal.kind}"

    return board


async def who(site: Site, *headers: tuple[str, str]) -> str | int:
    body, fields = modern_call("whoami")
    reply = await site.ask("POST", "/mcp", body, {**fields, **dict(headers)})
    return reply.json["result"]["content"][0]["text"] if reply.status == 200 else reply.status


async def test_only_the_proxy_can_name_a_principal() -> None:
    name = ("X-Client-Dn", "CN=ann,O=Example")
    async with serving(board_behind(TrustedProxy("127.0.0.1", "X-Client-Dn"))) as site:
        assert await who(site, name) == "proxy:CN=ann,O=Example proxy"
        assert await who(site) == 401
        assert await who(site, ("X-Client-Dn", "a\u200bb")) == 401
    async with serving(board_behind(TrustedProxy(["192.0.2.1"], "X-Client-Dn"))) as site:
        assert await who(site, name) == 401


async def test_an_address_that_a_proxy_forwards_is_not_that_of_the_proxy() -> None:
    board = board_behind(TrustedProxy(["192.0.2.1"], "X-Client-Dn"))
    async with serving(board, trusted_proxy="127.0.0.1") as site:
        assert await who(site, ("X-Client-Dn", "ann"), ("X-Forwarded-For", "192.0.2.1")) == 401


async def test_a_signed_header_is_verified_like_a_token() -> None:
    async with issuing() as issuer:
        described = Issuer(issuer.url, RESOURCE, jwks_uri=f"{issuer.url}/keys", principal="email")
        async with serving(board_behind(TrustedProxy("127.0.0.1", CLOUD, issuer=described))) as site:
            signed = issuer.sign(email="ann@example.com", sub=None)
            assert await who(site, (CLOUD, signed)) == "ann@example.com token"
            assert await who(site, (CLOUD, issuer.sign(email="ann@example.com", exp=1))) == 401
            assert await who(site, (CLOUD, "ann@example.com")) == 401
            assert await who(site, ("Authorization", f"Bearer {signed}")) == 401


def test_the_issuer_of_a_proxy_and_another_one_cannot_name_the_same_caller() -> None:
    issuers = [Issuer("https://people.example.com", RESOURCE)]
    others = Issuer("https://partners.example.com", RESOURCE)
    with pytest.raises(SetupError, match="different prefixes"):
        Auth(issuers=issuers, proxy=TrustedProxy("127.0.0.1", CLOUD, issuer=others))
    Auth(issuers=issuers, proxy=TrustedProxy("127.0.0.1", CLOUD, issuer=issuers[0]))


async def test_callers_of_a_signed_header_have_the_prefix_of_its_issuer() -> None:
    async with issuing() as issuer:
        described = Issuer(issuer.url, RESOURCE, jwks_uri=f"{issuer.url}/keys", prefix="partner:")
        async with serving(board_behind(TrustedProxy("127.0.0.1", CLOUD, issuer=described))) as site:
            assert await who(site, (CLOUD, issuer.sign(sub="ann"))) == "partner:ann token"


@pytest.mark.parametrize(("addresses", "header"), [([], "X-User"), ("127.0.0.1", "Authorization"), ("127.0.0.1", "")])
def test_a_proxy_that_cannot_be_safe_is_rejected(addresses: str | list[str], header: str) -> None:
    with pytest.raises(SetupError, match="proxy"):
        Auth(proxy=TrustedProxy(addresses, header))
