"""Who uses a page: signing in with a key, at an issuer, by a proxy and by a link; forms; signing out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest

from pegboard import Auth, Board, Issuer, SignInClient, TrustedProxy
from pegboard.auth.api_keys import ApiKeys
from pegboard.errors import StoreDown
from pegboard.server.pages import browser_session
from pegboard.stores.store_url import open_store
from tests.auth.issuing import PUBLIC_URL, SigningKeys, TestIssuer, issuing
from tests.auth.serving import bearer, serving
from tests.server.pages.paged_board import Browser, NotesPage, browsing, serving_notes


async def add_key(store: str, name: str = "ann", **options: Any) -> str:
    opened = open_store(store, Board("notes").limits)
    await opened.start()
    try:
        return await ApiKeys(opened.records).add(name, **options)
    finally:
        await opened.close()


async def revoke_key(store: str, name: str) -> None:
    opened = open_store(store, Board("notes").limits)
    await opened.start()
    try:
        await ApiKeys(opened.records).revoke(name)
    finally:
        await opened.close()


def issuer_of(issuer: TestIssuer, **options: Any) -> Issuer:
    return Issuer(issuer.url, "pages", sign_in=SignInClient("pages", **options))


# -- an API key --------------------------------------------------------------------------------------------------------


async def test_a_person_signs_in_with_an_api_key_and_returns_to_the_page(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store, scopes=["notes.read"])
    async with serving_notes(Auth(keys=True), store=store) as (site, page), browsing() as browser:
        asked = await browser.open(f"{site.url}/notes?page=2")
        assert asked.url.path == "/sign-in"
        wrong = await browser.submit(key="pb_wrong")
        assert wrong.status_code == 401
        assert "The key is unknown or was revoked" in wrong.text
        shown = await browser.submit(key=key)
        assert (shown.status_code, str(shown.url)) == (200, f"{site.url}/notes?page=2")
        assert "key:ann [&#x27;notes.read&#x27;] key" in shown.text
        await browser.submit(note="buy milk")
        assert page.notes == [("key:ann", "buy milk")]


async def test_the_cookie_is_closed_to_scripts_and_other_sites_and_contains_no_key(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store)
    async with serving_notes(Auth(keys=True), store=store) as (site, _), browsing() as browser:
        await browser.open(f"{site.url}/notes")
        entered = (await browser.submit(key=key)).history[0]
        cookies = [value for value in entered.headers.get_list("set-cookie") if "pegboard-session" in value]
        assert all("HttpOnly; SameSite=Lax" in cookie and "Max-Age=2" in cookie for cookie in cookies)
        # Browsers send cookies to all ports of a host: other programs on this machine get them only at these paths.
        assert [re.findall("Path=([^;]*)", cookie)[0] for cookie in cookies] == ["/sign-in", "/notes"]
        assert key not in str(cookies)
        assert entered.headers["cache-control"] == "no-store"


async def test_over_tls_the_cookie_belongs_to_the_host_alone(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store)
    async with (
        serving_notes(Auth(keys=True), store=store, trusted_proxy=["127.0.0.1"]) as (site, _),
        httpx.AsyncClient(trust_env=False, headers={"x-forwarded-proto": "https"}) as client,
    ):
        shown = await client.get(f"{site.url}/sign-in", headers={"accept": "text/html"})
        attempt = shown.headers["set-cookie"]
        assert attempt.startswith("__Host-pegboard-attempt-")
        assert attempt.endswith("Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure")
        token = re.findall(r'name="csrf" value="([^"]*)"', shown.text)[0]
        cookie = {"cookie": attempt.partition(";")[0]}
        entered = await client.post(f"{site.url}/sign-in", data={"csrf": token, "key": key}, headers=cookie)
        assert entered.headers.get_list("set-cookie")[0].startswith("__Host-pegboard-session-")


async def test_a_revoked_key_ends_the_sign_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.auth.api_keys.CHECK_SECONDS", 0.0)
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store)
    async with serving_notes(Auth(keys=True), store=store) as (site, _), browsing() as browser:
        await browser.open(f"{site.url}/notes")
        assert (await browser.submit(key=key)).url.path == "/notes"
        await revoke_key(store, "ann")
        assert (await browser.open(f"{site.url}/notes")).url.path == "/sign-in"


async def test_a_sign_in_holds_on_every_replica_until_the_sign_out_on_one_of_them(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store)
    async with (
        serving_notes(Auth(keys=True, public_url=PUBLIC_URL), store=store) as (one, _),
        serving_notes(Auth(keys=True, public_url=PUBLIC_URL), store=store) as (two, _),
        browsing() as browser,
    ):
        # Both are reached under one name, as behind a balancer.
        host = {"host": "localhost"}
        browser.client.headers.update(host)
        await browser.open(f"{one.url}/notes")
        # The key is typed into the form of one replica and sent to the other.
        form = dict(re.findall(r'name="(\w+)" value="([^"]*)"', browser.page.text)) | {"key": key}
        entered = await browser.client.post(f"{two.url}/sign-in", data=form)
        assert entered.status_code == 303
        for site in (one, two):
            assert (await browser.open(f"{site.url}/notes")).url.path == "/notes"
        stolen = list(browser.client.cookies.jar)
        token = re.search(r'sign-in/out"><input type="hidden" name="csrf" value="([^"]*)"', browser.page.text)
        assert token is not None
        assert "is signed out" in (await browser.post(f"{one.url}/sign-in/out", csrf=token[1])).text
        for cookie in stolen:
            browser.client.cookies.jar.set_cookie(cookie)
        for site in (one, two):
            assert (await browser.open(f"{site.url}/notes")).url.path == "/sign-in"


async def test_a_sign_in_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store)
    async with serving_notes(Auth(keys=True), store=store) as (site, page), browsing() as browser:
        await browser.open(f"{site.url}/notes")
        assert (await browser.submit(key=key)).url.path == "/notes"
        cookies = page._sign_in._cookies
        later = cookies._clock() + browser_session.SESSION_SECONDS + 1
        monkeypatch.setattr(cookies, "_clock", lambda: later)
        assert (await browser.open(f"{site.url}/notes")).url.path == "/sign-in"


# -- forms -------------------------------------------------------------------------------------------------------------


async def test_a_form_of_another_sign_in_or_without_a_token_changes_nothing(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    keys = [await add_key(store, name) for name in ("ann", "bob")]
    async with serving_notes(Auth(keys=True), store=store) as (site, page), browsing() as ann, browsing() as bob:
        for browser, key in zip((ann, bob), keys, strict=True):
            await browser.open(f"{site.url}/notes")
            await browser.submit(key=key)
        token = re.search(r'name="csrf" value="([^"]*)"', bob.page.text)
        assert token is not None
        for given in ({}, {"csrf": "guessed"}, {"csrf": token[1]}):
            refused = await ann.post(f"{site.url}/notes", note="forged", **given)
            assert refused.status_code == 403
            assert "Nothing was changed" in refused.text
        for header in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
            forged = await ann.client.post(f"{site.url}/notes", data={"note": "forged"}, headers=header)
            assert forged.status_code in (303, 401, 403)
        assert page.notes == []


async def test_a_key_form_of_another_browser_signs_nobody_in(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store, "mallory")
    async with serving_notes(Auth(keys=True), store=store) as (site, _), browsing() as mallory, browsing() as ann:
        await mallory.open(f"{site.url}/sign-in")
        await ann.open(f"{site.url}/sign-in")
        token = re.search(r'name="csrf" value="([^"]*)"', mallory.page.text)
        assert token is not None
        forced = await ann.post(f"{site.url}/sign-in", key=key, csrf=token[1])
        assert forced.status_code == 403
        assert (await ann.open(f"{site.url}/notes")).url.path == "/sign-in"


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "javascript:alert(1)",
        "/notes\r\nset-cookie: a=b",
        "/\t/evil.example",
        "/%5cevil.example/../../\\",
        "notes",
        "/" + "x" * 5000,
        "/nötes",
        "/other",
        "/notes/../other",
        "/notes/%2E%2e/other",
    ],
)
async def test_the_way_back_leads_to_one_of_our_pages_only(tmp_path: Path, target: str) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store)
    async with serving_notes(Auth(keys=True), store=store) as (site, _), browsing() as browser:
        await browser.open(f"{site.url}/sign-in?next={quote(target, safe='')}")
        entered = (await browser.submit(key=key)).history[0]
        assert entered.headers["location"] == "/console/"
        assert "a=b" not in str(entered.headers)


async def test_pages_run_no_script_and_cannot_be_framed_or_cached(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    async with serving_notes(Auth(keys=True), store=store) as (site, _), browsing() as browser:
        shown = await browser.open(f"{site.url}/sign-in?next=/notes")
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "frame-ancestors 'none'" in policy
        assert "form-action 'self'" in policy
        assert shown.headers["x-frame-options"] == "DENY"
        assert shown.headers["cache-control"] == "no-store"


# -- an issuer ---------------------------------------------------------------------------------------------------------


async def begin(browser: Browser, site_url: str) -> str:
    """Start a sign-in at the issuer; the address of its page."""
    await browser.open(f"{site_url}/notes")
    sent = await browser.follow("Sign in with 127.0.0.1")
    assert sent.status_code == 303
    return sent.headers["location"]


async def test_a_person_signs_in_at_an_issuer() -> None:
    async with issuing() as issuer:
        auth = Auth(
            issuers=[Issuer(issuer.url, "pages", sign_in=SignInClient("pages", "s3cret", ["notes.write"]))],
            implies={"notes.write": ["notes.read"]},
        )
        async with serving_notes(auth) as (site, _), browsing() as browser:
            address = await begin(browser, site.url)
            asked = parse_qs(urlsplit(address).query)
            assert asked["code_challenge_method"] == ["S256"]
            assert asked["scope"] == ["openid notes.write"]
            assert asked["redirect_uri"] == [f"{site.url}/sign-in/callback"]
            shown = await browser.open(issuer.consent(address))
            assert str(shown.url) == f"{site.url}/notes"
            assert "ann [&#x27;notes.read&#x27;, &#x27;notes.write&#x27;] token" in shown.text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nonce": "another"}, "belongs to another sign-in"),
        ({"aud": "another client"}, "is for another client"),
        ({"aud": ["pages", "other"], "azp": "other"}, "is for another client"),
        ({"iss": "https://evil.example"}, "is for another client"),
        ({"exp": 1}, "has expired"),
        ({"exp": None}, "has no expiry"),
        ({"sub": None}, "does not identify a caller"),
        ({"sub": "key:ci"}, "another issuer"),
    ],
)
async def test_an_id_token_that_was_not_made_for_this_sign_in_is_rejected(change: Any, reason: str) -> None:
    async with issuing() as issuer:
        issuer.id_claims = change
        async with serving_notes(Auth(issuers=[issuer_of(issuer)])) as (site, _), browsing() as browser:
            refused = await browser.open(issuer.consent(await begin(browser, site.url)))
            assert refused.status_code == 401
            assert reason in refused.text
            assert (await browser.open(f"{site.url}/notes")).url.path == "/sign-in"


async def test_an_id_token_with_a_wrong_signature_is_rejected() -> None:
    async with (
        issuing() as issuer,
        serving_notes(Auth(issuers=[issuer_of(issuer)])) as (site, _),
        browsing() as browser,
    ):
        issuer.keys = [SigningKeys.rsa]
        refused = await browser.open(issuer.consent(await begin(browser, site.url)))
        assert refused.status_code == 401
        assert "signature" in refused.text


async def test_the_answer_of_an_issuer_is_accepted_only_in_the_browser_that_asked_and_once() -> None:
    async with (
        issuing() as issuer,
        serving_notes(Auth(issuers=[issuer_of(issuer)])) as (site, _),
        browsing() as mallory,
        browsing() as ann,
    ):
        answer = issuer.consent(await begin(mallory, site.url))
        assert "not begun in this browser" in (await ann.open(answer)).text
        await begin(ann, site.url)
        assert "another sign-in" in (await ann.open(answer)).text
        assert (await ann.open(f"{site.url}/notes")).url.path == "/sign-in"
        answer = issuer.consent(await begin(mallory, site.url))
        for changed in (answer + "&code=more", re.sub("&iss=.*", "&iss=https://evil.example", answer)):
            assert (await mallory.open(changed)).status_code == 401
        assert (await mallory.open(answer)).url.path == "/notes"
        assert (await mallory.open(answer)).status_code == 401


async def test_a_refusal_of_the_issuer_is_shown_without_its_text() -> None:
    async with (
        issuing() as issuer,
        serving_notes(Auth(issuers=[issuer_of(issuer)])) as (site, _),
        browsing() as browser,
    ):
        state = parse_qs(urlsplit(await begin(browser, site.url)).query)["state"][0]
        refused = await browser.open(f"{site.url}/sign-in/callback?state={state}&error=<script>alert(1)</script>")
        assert (refused.status_code, "script" in refused.text) == (401, False)
        assert "The issuer refused the sign-in" in refused.text


async def test_an_issuer_that_cannot_be_reached_is_not_asked_at_each_request() -> None:
    async with (
        issuing() as issuer,
        serving_notes(Auth(issuers=[issuer_of(issuer)])) as (site, _),
        browsing() as browser,
    ):
        issuer.down = True
        await browser.open(f"{site.url}/notes")
        for _ in range(5):
            page = await browser.client.get(f"{site.url}/sign-in/issuer?issuer={quote(issuer.url)}")
            assert page.status_code == 503
        assert sum(issuer.asked.values()) == 1


async def test_claims_that_do_not_fit_into_a_cookie_are_not_dropped() -> None:
    async with issuing() as issuer:
        issuer.id_claims = {"groups": ["g" * 50] * 100}
        async with serving_notes(Auth(issuers=[issuer_of(issuer)])) as (site, _), browsing() as browser:
            refused = await browser.open(issuer.consent(await begin(browser, site.url)))
            assert refused.status_code == 400
            assert "fewer claims" in refused.text


# -- a proxy, a program, a link ----------------------------------------------------------------------------------------


async def test_a_trusted_proxy_names_the_person_and_forms_still_need_their_token() -> None:
    auth = Auth(proxy=TrustedProxy("127.0.0.1", "X-User"))
    async with serving_notes(auth) as (site, page), browsing() as browser:
        browser.client.headers["x-user"] = "ann"
        assert "proxy:ann" in (await browser.open(f"{site.url}/notes")).text
        assert (await browser.post(f"{site.url}/notes", note="forged")).status_code == 403
        await browser.open(f"{site.url}/notes")
        await browser.submit(note="mine")
        browser.client.headers["x-user"] = "bob"
        await browser.open(f"{site.url}/notes")
        token = re.search(r'name="csrf" value="([^"]*)"', browser.page.text)
        browser.client.headers["x-user"] = "ann"
        assert token is not None
        assert (await browser.post(f"{site.url}/notes", note="forged", csrf=token[1])).status_code == 403
        assert page.notes == [("proxy:ann", "mine")]


async def test_a_program_uses_a_page_with_its_bearer_token(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store)
    async with serving_notes(Auth(keys=True), store=store) as (site, page), browsing() as browser:
        reply = await browser.client.post(f"{site.url}/notes", data={"note": "hello"}, headers=bearer(key))
        assert (reply.status_code, page.notes) == (303, [("key:ann", "hello")])
        assert (await browser.client.get(f"{site.url}/notes", headers=bearer("pb_wrong"))).status_code == 401
        assert (await browser.client.get(f"{site.url}/notes")).status_code == 401


async def test_the_link_of_a_launch_signs_in_the_user_who_started_the_server() -> None:
    board = Board("notes")
    page = NotesPage(board)
    token = board.sign_in.link_token()
    async with serving(board) as site, browsing() as browser, browsing() as stranger:
        shown = await browser.open(f"{site.url}/notes?token={token}&page=2")
        assert str(shown.url) == f"{site.url}/notes?page=2"
        assert "local:" in shown.text
        await browser.submit(note="mine")
        assert len(page.notes) == 1
        for path in ("/notes", "/notes?token=guessed", "/sign-in"):
            locked = await stranger.open(f"{site.url}{path}")
            assert locked.status_code == 401
            assert "Open the console link" in locked.text


async def test_the_link_of_an_earlier_launch_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_SECRET", "a secret that outlives the launch")
    async with browsing() as browser:
        browser.client.headers["host"] = "localhost"
        for _ in range(2):
            board = Board("notes")
            NotesPage(board)
            token = board.sign_in.link_token()
            async with serving(board) as site:
                assert (await browser.open(f"{site.url}/notes")).status_code == 401
                assert (await browser.open(f"{site.url}/notes?token={token}")).status_code == 200


async def test_without_a_store_that_responds_nobody_is_signed_in(tmp_path: Path) -> None:
    """A sign-out could not be seen."""
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store)
    async with serving_notes(Auth(keys=True), store=store) as (site, page), browsing() as browser:
        await browser.open(f"{site.url}/notes")
        await browser.submit(key=key)
        page._sign_in._cookies._records = DownRecords()  # type: ignore[assignment]  # only what is used
        assert (await browser.open(f"{site.url}/notes")).status_code == 503


class DownRecords:
    """A store that does not respond."""

    async def get(self, key: str) -> None:
        raise StoreDown("The store does not respond")


async def test_a_query_with_very_many_fields_is_answered_like_one_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    many = "&".join(f"field{number}=" for number in range(150))
    async with (
        serving_notes(Auth(keys=True), store=f"sqlite:{tmp_path / 'store.db'}") as (site, _),
        browsing() as browser,
    ):
        paths = ("/notes", "/sign-in", "/sign-in/issuer", "/sign-in/callback")
        statuses = [(await browser.open(f"{site.url}{path}?{many}")).status_code for path in paths]
    assert statuses == [200, 200, 401, 401]
    assert caplog.records == []
