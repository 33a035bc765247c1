"""A user's first call to a server that wants a login: asked in the way of each era, and continued."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path

import pytest

from pegboard import Accepted, Declined
from pegboard.client.client_channel import Elicitation
from pegboard.errors import Refusal
from pegboard.gateway.connections.connect_links import ConnectLinks
from pegboard.gateway.forwarding import connecting
from tests.auth.serving import bearer
from tests.gateway.connections.account_site import account_site, person
from tests.waiting import until

MODERN, LEGACY = "2026-07-28", "2025-11-25"
LINK = re.compile(r"http://127\.0\.0\.1:\d+/connect/accounts\?link=[\w-]{43}")


async def until_gone(links: ConnectLinks, link_id: str) -> None:
    async with asyncio.timeout(10):
        while await links.find(link_id) is not None:  # noqa: ASYNC110 — the store has a clock of its own
            await asyncio.sleep(0.01)


def link_in(text: str) -> str:
    found = LINK.search(text)
    assert found is not None, text
    return found[0]


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_the_first_call_asks_the_user_to_log_in_and_continues(tmp_path: Path, version: str) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        assert await gateway.call("ann", version, elicit=ann.elicit) == "ann-account"
        assert await gateway.call("ann", version, elicit=ann.elicit) == "ann-account"
        assert len(ann.opened) == 1


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_client_that_only_says_yes_waits_until_the_user_has_logged_in(tmp_path: Path, version: str) -> None:
    asked: list[str] = []

    def agree(question: Elicitation) -> Accepted[None]:
        asked.append(question.url or "")
        return Accepted()

    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        calling = asyncio.create_task(gateway.call("ann", version, elicit=agree))
        await until(lambda: bool(asked))
        await ann.connect(asked[0])
        assert await calling == "ann-account"
        assert len(asked) == 1


async def test_a_modern_client_is_asked_again_while_the_user_has_not_logged_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "ROUND_SECONDS", 0.1)
    asked: list[str] = []
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:

        async def agree(question: Elicitation) -> Accepted[None]:
            asked.append(question.url or "")
            if len(asked) == 3:
                await ann.connect(asked[-1])
            return Accepted()

        assert await gateway.call("ann", MODERN, elicit=agree) == "ann-account"
        # It is the same link as long as it is unused.
        assert len(asked) == 3
        assert len(set(asked)) == 1


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_user_who_declines_gets_a_result_that_says_so(tmp_path: Path, version: str) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway:
        async with gateway.client("ann", version, elicit=lambda _: Declined()) as client:
            result = await client.call("dev__accounts__whoami")
        assert result.is_error
        assert "The user did not connect 'accounts'" in result.text


@pytest.mark.parametrize("version", [MODERN, LEGACY, "2025-06-18", "2024-11-05"])
async def test_a_client_that_cannot_ask_gets_a_link_and_its_next_call_works(tmp_path: Path, version: str) -> None:
    async with (
        account_site(tmp_path) as accounts,
        accounts.gateway() as gateway,
        person(accounts, "ann") as ann,
        gateway.client("ann", version) as client,
    ):
        result = await client.call("dev__accounts__whoami")
        assert result.is_error
        link = link_in(result.text)
        assert "call the tool again" in result.text
        await ann.connect(link)
        assert (await client.call("dev__accounts__whoami")).text == "ann-account"


@pytest.mark.requirement(
    "modern/asks/third-party-not-through-client",
    "legacy/asks/third-party-not-through-client",
    "modern/asks/third-party-not-returned",
    "legacy/asks/third-party-not-returned",
    "modern/asks/third-party-direct",
    "legacy/asks/third-party-direct",
    "modern/asks/client-credentials-not-forwarded",
    "legacy/asks/client-credentials-not-forwarded",
    "modern/asks/url-without-personal-data",
    "legacy/asks/url-without-personal-data",
)
@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_the_client_sees_no_credentials_and_the_server_none_of_the_client(
    tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asked: list[Elicitation] = []
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:

        async def elicit(question: Elicitation) -> Accepted[None]:
            asked.append(question)
            return await ann.elicit(question)

        async with gateway.client("ann", version, elicit=elicit) as client:
            result = await client.call("dev__accounts__whoami")
        seen = f"{result} {asked}"
        secrets = [*accounts.issuer.refresh_tokens, *accounts.issuer.used, *accounts.issuer.issued_tokens]
        assert len(secrets) >= 4
        assert not any(secret in seen for secret in secrets)
        assert "ann" not in str(asked)
        # Nor does the log, of either.
        assert not any(secret in caplog.text for secret in [*secrets, accounts.keys["ann"]])
        assert accounts.keys["ann"] not in str(accounts.issuer.forms)


async def test_a_prompt_or_resource_of_the_server_asks_too(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        async with gateway.client("ann", MODERN, elicit=ann.elicit) as client:
            prompt = await client.prompt("dev__accounts__greet")
            assert "ann-account" in json.dumps(prompt)
        async with gateway.client("bob", MODERN) as client:
            with pytest.raises(Refusal, match="/connect/accounts"):
                await client.prompt("dev__accounts__greet")


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_call_that_needs_more_scopes_asks_the_user_once_more(tmp_path: Path, version: str) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        assert await gateway.call("ann", version, elicit=ann.elicit) == "ann-account"
        assert await gateway.call("ann", version, tool="write", elicit=ann.elicit) == "ann-account wrote"
        assert accounts.issuer.scopes["ann-account"] == "notes.write"
        assert await gateway.call("ann", version, tool="write") == "ann-account wrote"
        assert len(ann.opened) == 2


async def test_a_user_whose_login_never_suffices_is_asked_twice_at_most(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        accounts.issuer.keeps_scopes = False
        said = await gateway.call("ann", LEGACY, tool="write", elicit=ann.elicit)
        assert "did not accept the login of this user" in said
        assert len(ann.opened) <= 3


async def test_a_key_that_the_user_enters_is_sent_as_their_header(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts:
        token = accounts.issuer.sign(sub="ann-by-key", aud="accounts")
        auth = {"kind": "header", "key": accounts.issuer.sign(sub="operator", aud="accounts")}
        async with accounts.gateway(auth=auth) as gateway, person(accounts, "ann") as ann:
            first = await gateway.call("ann")
            page = await ann.open(link_in(first))
            assert 'type="password"' in page.text
            refused = await ann.browser.submit(key="two\nlines")
            assert "must be one line" in refused.text
            done = await ann.browser.submit(key=token)
            assert "is connected" in done.text
            assert token not in done.text
            assert await gateway.call("ann") == "ann-by-key"
            link_in(await gateway.call("bob"))


async def test_a_page_of_ours_has_no_script_and_shows_who_connects_what(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        page = await ann.open(link_in(await gateway.call("ann")))
        assert "<script" not in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "key:ann" in page.text
        assert "dev/accounts" in page.text


@pytest.mark.requirement(
    "modern/asks/phishing-identity",
    "legacy/asks/phishing-identity",
    "modern/asks/phishing-url-changed",
    "legacy/asks/phishing-url-changed",
    "modern/asks/url-not-preauthenticated",
    "legacy/asks/url-not-preauthenticated",
    "modern/asks/user-not-by-claim",
    "legacy/asks/user-not-by-claim",
)
async def test_a_link_is_only_for_its_user(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway:
        link = link_in(await gateway.call("ann"))
        async with person(accounts, "bob") as bob, person(accounts, "ann") as ann:
            page = await bob.open(link)
            assert page.status_code == 403
            assert "This link is for another user" in page.text
            assert "key:ann" not in page.text
            # Nor does the form work for bob, with the id that it needs.
            forged = await bob.browser.post(link.partition("?")[0], link=link.rpartition("=")[2], action="connect")
            assert forged.status_code == 403
            assert "is connected" in (await ann.connect(link)).text
        link_in(await gateway.call("bob"))
        assert await gateway.call("ann") == "ann-account"


@pytest.mark.requirement(
    "modern/asks/phishing-same-user",
    "legacy/asks/phishing-same-user",
)
async def test_a_redirect_in_another_users_browser_connects_nobody(tmp_path: Path) -> None:
    """The attack that the specification describes: ann lets bob log in with her link."""
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway:
        async with person(accounts, "bob") as bob, person(accounts, "ann") as ann:
            await ann.open(link_in(await gateway.call("ann")))
            page = await ann.browser.submit(action="connect")
            away = page.headers["refresh"].partition("url=")[2]
            await bob.open(link_in(await gateway.call("bob")))
            refused = await bob.browser.open(away, **{"sec-fetch-site": "cross-site"})
            assert refused.status_code == 403
            assert "for another user" in refused.text
        assert accounts.issuer.granted["authorization_code"] == 1
        for user in ("ann", "bob"):
            link_in(await gateway.call(user))


async def test_a_link_works_once(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        link = link_in(await gateway.call("ann"))
        await ann.open(link)
        form = ann.browser.page
        # Opening it again changes nothing; its use does.
        await ann.open(link)
        assert "is connected" in (await ann.log_in()).text
        again = await ann.open(link)
        assert again.status_code == 410
        assert "was used already" in again.text
        ann.browser.page = form
        assert "was used already" in (await ann.browser.submit(action="connect")).text
        assert accounts.issuer.granted["authorization_code"] == 2


async def test_a_redirect_works_once(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        done = await ann.connect(link_in(await gateway.call("ann")))
        again = await ann.browser.open(str(done.url), **{"sec-fetch-site": "cross-site"})
        assert again.status_code == 400
        assert "finished already" in again.text
        assert await gateway.call("ann") == "ann-account"


async def test_a_link_that_is_opened_too_late_says_how_to_get_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.gateway.connections.connect_links.LINK_SECONDS", 0.01)
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        link = link_in(await gateway.call("ann"))
        assert gateway.gateway.connections is not None
        await until_gone(gateway.gateway.connections.links, link.rpartition("=")[2])
        late = await ann.open(link)
        assert late.status_code == 410
        assert "Call the tool again to get a new one" in late.text


async def test_a_login_ends_if_the_metadata_of_the_server_changed_meanwhile(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        await ann.open(link_in(await gateway.call("ann")))
        page = await ann.browser.submit(action="connect")
        accounts.issuer.metadata = {"token_endpoint": f"{accounts.issuer.url}/elsewhere"}
        away = page.headers["refresh"].partition("url=")[2]
        refused = await ann.browser.open(away, **{"sec-fetch-site": "cross-site"})
        assert refused.status_code == 400
        assert "has changed since the login began" in refused.text
        assert not any(form["grant_type"] == "authorization_code" and "ann" in form for form in accounts.issuer.forms)
        assert accounts.issuer.asked["/elsewhere"] == 0
        accounts.issuer.metadata = {}
        assert "is connected" in (await ann.connect(link_in(await gateway.call("ann")))).text


async def test_a_link_ends_if_its_server_was_changed_in_the_configuration(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, person(accounts, "ann") as ann:
        async with accounts.gateway() as gateway:
            link = link_in(await gateway.call("ann"))
        moved = accounts.config(url=f"{accounts.server.url}/mcp/")
        async with accounts.gateway(moved) as gateway:
            at = f"{gateway.site.url}/connect/accounts?{link.partition('?')[2]}"
            page = await ann.open(at)
            assert page.status_code == 400
            assert "was changed in the configuration" in page.text


async def test_a_forged_redirect_is_rejected(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        await ann.open(link_in(await gateway.call("ann")))
        page = await ann.browser.submit(action="connect")
        state = re.search(r"state=([\w-]+)", page.headers["refresh"])
        assert state is not None
        callback = f"{gateway.site.url}/connect/accounts/callback"
        for query, said in (
            ("code=x&state=" + "y" * 43, "finished already, or it took too long"),
            (f"code=x&state={state[1]}&iss=https://other.example", "from another authorization server"),
        ):
            refused = await ann.browser.open(f"{callback}?{query}", **{"sec-fetch-site": "cross-site"})
            assert refused.status_code == 400
            assert said in refused.text


@pytest.mark.requirement(
    "modern/asks/url-not-for-itself",
    "legacy/asks/url-not-for-itself",
    "modern/asks/user-by-credentials",
    "legacy/asks/user-by-credentials",
)
async def test_an_anonymous_caller_is_refused(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway:
        reply = await gateway.site.call("dev__accounts__whoami")
        assert reply.status == 401
        reply = await gateway.site.ask(
            "GET", "/connect/accounts?link=" + "x" * 43, headers=bearer(accounts.keys["ann"])
        )
        assert reply.status == 410


async def test_an_authorization_server_that_is_down_is_a_page_without_its_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway, person(accounts, "ann") as ann:
        await ann.open(link_in(await gateway.call("ann")))
        accounts.issuer.down_for_all = True
        page = await ann.browser.submit(action="connect")
        assert page.status_code == 400
        assert "the operator finds why in the log" in page.text
        assert accounts.issuer.url not in page.text
        assert "a user could not connect accounts" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status"), [("PUT", "/connect/accounts", 405), ("GET", "/connect/a/b", 404)]
)
async def test_other_requests_below_the_page_are_refused(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway:
        reply = await gateway.site.ask(method, path, headers=bearer(accounts.keys["ann"]))
        assert reply.status == status


async def test_a_legacy_client_whose_user_does_not_log_in_in_time_gets_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "WAIT_SECONDS", 0.05)
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway:
        link_in(await gateway.call("ann", LEGACY, elicit=lambda _: Accepted()))


async def test_a_gateway_that_does_not_know_its_url_says_what_the_operator_has_to_do(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, accounts.gateway() as gateway:
        gateway.gateway.listens_at("unix:/somewhere")
        assert "set auth.publicUrl" in await gateway.call("ann")


async def test_a_key_that_the_user_replaces_at_another_replica_is_used(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, person(accounts, "ann") as ann:
        sign = accounts.issuer.sign
        auth = {"kind": "header", "key": sign(sub="operator", aud="accounts")}
        async with accounts.gateway(auth=auth) as one, accounts.gateway(auth=auth) as two:
            for value, answer in (("wrong-key", "/connect/accounts"), (sign(sub="ann", aud="accounts"), "ann")):
                await ann.open(link_in(await one.call("ann")))
                await ann.browser.submit(key=value)
                for gateway in (one, two):
                    assert answer in await gateway.call("ann")
