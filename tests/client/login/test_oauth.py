"""A locked server, as the user of a client meets it: one login, then calls."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from examples import logging_in

from pegboard import Client, ClientCredentials, OAuth
from pegboard.client.http.address import read_address
from pegboard.client.http.http_pool import PooledRequest
from pegboard.client.login.access_tokens import Token
from pegboard.client.login.oauth import Assertion
from pegboard.client.login.storage import FileStorage, MemoryStorage
from pegboard.errors import LoginFailed, MalformedMessage, ResponseTimeout, SetupError, Unauthorized
from tests.client.fakes import Asked, data, faking, initialized, modern, reply, result, stream, text
from tests.client.login.authorization_server import Authority, Locked, Person, challenge, locked
from tests.client.process_leftovers import nothing_left
from tests.loops import skip
from tests.waiting import until

REFRESH = {"refresh_token": "r-1", "expires_in": 3600}


async def call(client: Client, name: str = "any") -> str:
    return (await client.call(name)).text


# -- the first login -----------------------------------------------------------------------------------------------


async def test_a_person_logs_in_once_and_every_request_carries_the_token() -> None:
    async with nothing_left(), locked() as server:
        person = Person()
        async with Client(server.url, auth=OAuth(login=person)) as client:
            assert await call(client) == "in"
            assert await call(client) == "in"
        assert len(person.visits) == 1
        assert server.shown()[0] == ""
        assert set(server.shown()[1:]) == {"Bearer a-token-1"}


async def test_the_request_for_the_token_proves_that_it_is_the_one_who_asked_for_the_code() -> None:
    async with locked() as server:
        person = Person()
        async with Client(server.url, auth=OAuth(login=person, client_name="Mine")) as client:
            await call(client)
        asked, (form,), (registered,) = person.asked(), server.authority.forms, server.authority.registered
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert asked["code_challenge"] == challenge(form["code_verifier"])
        assert (form["grant_type"], form["code"]) == ("authorization_code", "code-1")
        assert asked["redirect_uri"] == form["redirect_uri"] == person.uri
        assert asked["resource"] == form["resource"] == server.url
        assert asked["client_id"] == "a-client-1"
        assert "scope" not in asked
        assert registered["application_type"] == "native"
        assert registered["client_name"] == "Mine"
        assert registered["grant_types"] == ["authorization_code", "refresh_token"]


async def test_many_calls_wait_for_one_login() -> None:
    async with locked() as server:
        person = Person(may=asyncio.Event())
        async with Client(server.url, version="2026-07-28", auth=OAuth(login=person)) as client:
            calls = [asyncio.create_task(call(client)) for _ in range(20)]
            await until(lambda: bool(person.visits))
            assert person.may is not None
            person.may.set()
            assert await asyncio.gather(*calls) == ["in"] * 20
        assert len(person.visits) == 1


async def test_many_calls_share_a_login_that_failed_and_the_next_may_try_again() -> None:
    async with locked() as server:
        person = Person(may=asyncio.Event(), answer={"code": "", "error": "access_denied"})
        async with Client(server.url, version="2026-07-28", auth=OAuth(login=person)) as client:
            calls = [asyncio.create_task(call(client)) for _ in range(20)]
            await until(lambda: server.shown().count("") >= 1 and bool(person.visits))
            assert person.may is not None
            person.may.set()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(one) for one in outcomes} == {LoginFailed}
            assert len(person.visits) == 1
            person.answer = {}
            assert await call(client) == "in"


async def test_the_time_that_a_person_takes_is_not_the_servers() -> None:
    async with locked() as server:
        person = Person(may=asyncio.Event())
        client = Client(server.url, auth=OAuth(login=person), timeout=20, max_timeout=20, connect_timeout=20)
        server.demand = {"tools/call": "more"}
        opening = asyncio.create_task(client.__aenter__())
        await until(lambda: len(person.visits) == 1)
        await skip(30)
        assert person.may is not None
        person.may.set()
        await opening
        person.may.clear()
        calling = asyncio.create_task(call(client))
        await until(lambda: len(person.visits) == 2)
        await skip(30)
        server.demand = {}
        person.may.set()
        assert await calling == "in"
        await client.__aexit__(None, None, None)


async def test_who_comes_with_an_old_token_while_a_person_logs_in_waits_on_their_own_time() -> None:
    async with locked(granted={"expires_in": 0}) as server:
        person = Person()
        async with Client(server.url, auth=OAuth(login=person), version="2026-07-28", timeout=20) as client:
            await client.list_tools()
            person.may, server.taken = asyncio.Event(), set()
            first = asyncio.create_task(client.list_tools())
            await until(lambda: len(person.visits) == 2)
            second = asyncio.create_task(client.list_prompts())
            await skip(30)
            server.taken = None
            person.may.set()
            assert await first == []
            with pytest.raises(MalformedMessage, match="no list of prompts"):
                await second
        assert len(person.visits) == 2


async def test_a_server_of_the_first_transport_can_be_locked_too() -> None:
    async with locked() as server:
        stream_of: list[asyncio.StreamWriter] = []
        lock = server.answer

        def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
            admitted = asked.headers.get("authorization", "") == "Bearer a-token-1"
            match asked.method, asked.target:
                case "POST", "/mcp":
                    reply(writer, b"", "405 Method Not Allowed")
                case "GET", "/mcp" if not admitted:
                    where = f'resource_metadata="{server.origin}/.well-known/oauth-protected-resource/mcp"'
                    reply(writer, b"", "401 Unauthorized", WWW_Authenticate=f"Bearer {where}")
                case "GET", "/mcp":
                    stream(writer, b"event: endpoint\ndata: /messages\n\n")
                    stream_of.append(writer)
                case "POST", "/messages":
                    assert admitted
                    reply(writer, b"", "202 Accepted")
                    if asked.message.get("method") == "initialize":
                        stream_of[0].write(data(initialized(asked)))
                    elif "id" in asked.message:
                        stream_of[0].write(data(text(asked, "in")))
                case _:
                    lock(asked, writer)

        assert server.fake is not None
        server.fake.answer = answer
        person = Person()
        async with Client(server.url, auth=OAuth(login=person)) as client:
            assert await call(client) == "in"
        assert len(person.visits) == 1


# -- scopes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("challenged", "listed", "configured", "offered", "asked"),
    [
        ("a b", ["c"], [], None, "a b"),
        ("", ["c", "d"], [], None, "c d"),
        ("", ["c"], ["x"], None, "x"),
        ("a", ["c"], ["x"], None, "a x"),
        ("a", None, [], ["a", "offline_access"], "a offline_access"),
        ("a offline_access", None, [], ["a"], "a"),
        ("", None, [], ["offline_access"], None),
        ("", None, [], None, None),
    ],
)
async def test_the_scopes_are_those_that_are_wanted(
    challenged: str, listed: list[str] | None, configured: list[str], offered: list[str] | None, asked: str | None
) -> None:
    async with locked(metadata={} if offered is None else {"scopes_supported": offered}) as server:
        server.scope, server.metadata = challenged, {} if listed is None else {"scopes_supported": listed}
        person = Person()
        async with Client(server.url, auth=OAuth(login=person, scopes=configured)) as client:
            await call(client)
        assert person.asked().get("scope") == asked
        assert person.asked().get("prompt") == ("consent" if "offline_access" in (asked or "") else None)


async def test_missing_scopes_are_asked_for_beside_the_old_ones() -> None:
    async with locked() as server:
        server.scope = "read"
        person = Person()
        async with Client(server.url, auth=OAuth(login=person)) as client:
            await client.list_tools()
            server.demand = {"tools/call": "write"}
            person.may = asyncio.Event()
            calling = asyncio.create_task(call(client))
            await until(lambda: len(person.visits) == 2)
            server.demand = {}
            person.may.set()
            assert await calling == "in"
        assert [person.asked(visit)["scope"] for visit in (0, 1)] == ["read", "read write"]


@pytest.mark.parametrize(("scope", "lists"), [("private", 2), ("public", 1)])
async def test_what_was_listed_for_one_token_is_not_shown_for_another(scope: str, lists: int) -> None:
    def lock(asked: Asked, writer: asyncio.StreamWriter) -> None:
        shown = asked.headers.get("authorization")
        if asked.message.get("method") == "tools/list" and shown in ("Bearer a-token-1", "Bearer a-token-2"):
            tools = [{"name": shown, "inputSchema": {"type": "object"}}]
            reply(writer, result(asked, {"tools": tools, "ttlMs": 60_000, "cacheScope": scope}))
        else:
            server.answer(asked, writer)

    async with nothing_left(), locked() as server:
        assert server.fake is not None
        server.fake.answer = lock
        async with Client(server.url, auth=OAuth(login=Person())) as client:
            await client.list_tools()
            await client.list_tools()
            server.demand = {"prompts/list": "more"}
            with pytest.raises(LoginFailed):
                await client.list_prompts()
            names = {tool["name"] for tool in await client.list_tools()}
        assert server.fake.methods.count("tools/list") == lists
        assert names == {f"Bearer a-token-{lists}"}


async def test_scopes_that_did_not_help_are_not_asked_for_again() -> None:
    async with locked() as server:
        person = Person()
        async with Client(server.url, auth=OAuth(login=person)) as client:
            server.demand = {"tools/call": "admin"}
            for _ in range(3):
                with pytest.raises(LoginFailed, match="requires the scopes 'admin'"):
                    await call(client)
        assert len(person.visits) == 2


async def test_a_server_that_always_thinks_of_another_scope_is_left() -> None:
    async with locked() as server:

        class Greedy(dict[str, str]):
            def __getitem__(self, method: str) -> str:
                return f"scope-{len(person.visits)}"

        person = Person()
        async with Client(server.url, auth=OAuth(login=person)) as client:
            server.demand = Greedy({"tools/call": ""})
            with pytest.raises(LoginFailed):
                await call(client)
        assert len(person.visits) == 1 + 2


async def test_a_forbidden_response_without_a_required_scope_is_raised_without_a_new_login() -> None:
    async with locked() as server:
        person = Person()
        async with Client(server.url, auth=OAuth(login=person)) as client:
            assert server.fake is not None
            server.fake.answer = lambda asked, writer: reply(writer, b"", "403 Forbidden")
            with pytest.raises(Unauthorized) as caught:
                await client.discover()
        assert not isinstance(caught.value, LoginFailed)
        assert len(person.visits) == 1


# -- refreshing ----------------------------------------------------------------------------------------------------


async def test_one_refresh_serves_many_calls() -> None:
    async with locked(granted=REFRESH, refreshing=asyncio.Event()) as server:
        person = Person()
        async with Client(server.url, version="2026-07-28", auth=OAuth(login=person)) as client:
            await client.list_tools()
            server.taken = set()
            calls = [asyncio.create_task(call(client)) for _ in range(20)]
            await until(lambda: len(server.authority.forms) == 2)
            server.taken = {"a-token-2"}
            assert server.authority.refreshing is not None
            server.authority.refreshing.set()
            assert await asyncio.gather(*calls) == ["in"] * 20
        assert [form["grant_type"] for form in server.authority.forms] == ["authorization_code", "refresh_token"]
        assert server.authority.forms[1]["resource"] == server.url
        assert server.authority.forms[1]["refresh_token"] == "r-1"
        assert len(person.visits) == 1


async def test_a_token_is_renewed_before_it_is_refused() -> None:
    async with locked(granted={"refresh_token": "r-1", "expires_in": 0}) as server:
        async with Client(server.url, auth=OAuth(login=Person())) as client:
            await client.list_tools()
            server.authority.granted = {"expires_in": 3600}
            assert await call(client) == "in"
            renewed = len(server.authority.tokens)
            assert await call(client) == "in"
        assert server.shown().count("") == 1
        assert len(server.authority.tokens) == renewed
        assert {form["grant_type"] for form in server.authority.forms[1:]} == {"refresh_token"}


async def test_where_a_refresh_is_refused_the_person_is_asked_again() -> None:
    async with locked(granted=REFRESH) as server:
        person = Person()
        async with Client(server.url, auth=OAuth(login=person)) as client:
            await call(client)
            server.taken = {"a-token-2"}
            server.authority.refusals = [{"error": "invalid_grant"}]
            assert await call(client) == "in"
        assert len(person.visits) == 2


async def test_a_token_that_another_process_refreshed_is_taken(tmp_path: Path) -> None:
    async with locked(granted=REFRESH) as server:
        people = [Person(), Person()]
        first = Client(server.url, version="2026-07-28", auth=OAuth(login=people[0], storage=FileStorage(tmp_path)))
        second = Client(server.url, version="2026-07-28", auth=OAuth(login=people[1], storage=FileStorage(tmp_path)))
        async with first, second:
            assert (await call(first), await call(second)) == ("in", "in")
            server.taken = {"a-token-2"}
            assert await call(first) == "in"
            server.authority.refusals = [{"error": "invalid_grant"}]
            assert await call(second) == "in"
        assert [len(person.visits) for person in people] == [1, 0]
        assert len(server.authority.refusals) == 1


async def test_a_server_that_refuses_every_token_is_left() -> None:
    async with locked(granted=REFRESH) as server:
        person = Person()
        server.taken = set()
        with pytest.raises(LoginFailed, match="rejects the token"):
            async with Client(server.url, auth=OAuth(login=person)):
                pass
        assert len(person.visits) == 1


# -- what is kept --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", [None, "a secret of sixteen characters"])
async def test_who_is_logged_in_stays_so_in_the_next_process(tmp_path: Path, secret: str | None) -> None:
    async with locked() as server:
        person = Person()
        for _ in range(2):
            storage = FileStorage(tmp_path / "logins", secret)
            async with Client(server.url, auth=OAuth(login=person, storage=storage)) as client:
                await call(client)
        assert len(person.visits) == 1
        assert server.shown().count("") == 1


async def test_a_client_registers_once_with_an_issuer_and_again_for_another_redirect() -> None:
    async with locked() as server:
        storage = MemoryStorage()
        person = Person()
        for uri in (person.uri, person.uri, "http://127.0.0.1:10/callback"):
            person.uri = uri
            await storage.delete(f"server person {server.url}")
            async with Client(server.url, auth=OAuth(login=person, storage=storage)) as client:
                await call(client)
        assert len(person.visits) == 3
        assert [one["redirect_uris"] for one in server.authority.registered] == [
            ["http://127.0.0.1:9/callback"],
            ["http://127.0.0.1:10/callback"],
        ]


async def test_a_client_that_was_forgotten_registers_again() -> None:
    async with locked(granted=REFRESH) as server:
        person = Person()
        async with Client(server.url, auth=OAuth(login=person)) as client:
            await call(client)
            server.taken = {"a-token-2"}
            server.authority.refusals = [{"error": "invalid_client"}]
            assert await call(client) == "in"
        assert [person.asked(visit)["client_id"] for visit in (0, 1)] == ["a-client-1", "a-client-2"]


async def test_a_client_whose_login_was_not_completed_registers_again() -> None:
    class Away(Person):
        async def visit(self, url: str) -> str:
            self.visits.append(url)
            raise ResponseTimeout("No login")

    async with locked() as server:
        storage = MemoryStorage()
        for person in (Away(), Person()):
            async with Client(server.url, version="2026-07-28", auth=OAuth(login=person, storage=storage)) as client:
                if isinstance(person, Away):
                    with pytest.raises(LoginFailed, match="No login"):
                        await call(client)
                else:
                    await call(client)
        assert len(server.authority.registered) == 2


async def test_a_person_and_a_program_do_not_take_each_others_tokens() -> None:
    async with locked() as server:
        storage = MemoryStorage()
        for auth in (OAuth(login=Person(), storage=storage), ClientCredentials("c", "s", storage=storage)):
            async with Client(server.url, auth=auth) as client:
                await call(client)
        assert [form["grant_type"] for form in server.authority.forms] == ["authorization_code", "client_credentials"]


# -- other authorization servers -----------------------------------------------------------------------------------


async def test_a_new_authorization_server_receives_no_credentials_of_the_old_one() -> None:
    async with locked(granted=REFRESH) as server:
        moved = Authority(name="b")
        async with faking(moved.answer) as door:
            moved.issuer = f"http://127.0.0.1:{door.port}"
            async with Client(server.url, auth=OAuth(login=Person())) as client:
                await call(client)
                server.authority = moved
                assert await call(client) == "in"
            told = b"".join(asked.target.encode() + asked.body for asked in door.asked)
            assert b"a-client" not in told
            assert b"r-1" not in told
            assert len(moved.registered) == 1


@pytest.mark.parametrize("pinned", [True, False])
async def test_credentials_for_one_authorization_server_are_not_shown_to_another(pinned: bool) -> None:
    async with locked() as server:
        moved = Authority(name="b")
        async with faking(moved.answer) as door:
            moved.issuer = f"http://127.0.0.1:{door.port}"
            issuer = server.authority.issuer if pinned else None
            auth = OAuth(login=Person(), client_id="mine", client_secret="s3cret", issuer=issuer)
            async with Client(server.url, auth=auth) as client:
                await call(client)
                server.authority = moved
                with pytest.raises(LoginFailed, match=r"its tokens are (now )?issued by"):
                    await call(client)
            assert {asked.method for asked in door.asked} <= {"GET"}


async def test_an_authorization_server_without_pkce_is_not_used() -> None:
    async with locked(metadata={"code_challenge_methods_supported": ["plain"]}) as server:
        person = Person()
        with pytest.raises(LoginFailed, match="PKCE"):
            async with Client(server.url, auth=OAuth(login=person)):
                pass
        assert person.visits == []


async def test_a_server_of_2025_03_26_gives_out_its_own_tokens() -> None:
    authority = Authority()
    server = Locked(authority)

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> Any:
        if asked.target == "/mcp":
            if not asked.headers.get("authorization"):
                return reply(writer, b"", "401 Unauthorized")
            return server.answer(asked, writer)
        return authority.answer(asked, writer)

    async with faking(answer) as fake:
        server.fake = fake
        authority.issuer = server.origin
        person = Person()
        async with Client(server.url, auth=OAuth(login=person)) as client:
            assert await call(client) == "in"
        assert person.asked()["resource"] == server.url


async def test_a_client_with_a_document_of_its_own_does_not_register() -> None:
    async with locked(metadata={"client_id_metadata_document_supported": True}) as server:
        person = Person()
        document = "https://me.example/client.json"
        async with Client(server.url, auth=OAuth(login=person, client_metadata_url=document)) as client:
            await call(client)
        assert person.asked()["client_id"] == server.authority.forms[0]["client_id"] == document
        assert server.authority.registered == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"token_type": "mac"}, "only Bearer"),
        ({"access_token": "a\r\nb"}, "a header cannot carry"),
        ({"access_token": 1}, "is not a token"),
        ({"access_token": ""}, "a header cannot carry"),
    ],
)
async def test_an_invalid_token_response_is_reported(answer: dict[str, Any], told: str) -> None:
    async with locked(granted=answer) as server:
        with pytest.raises(LoginFailed, match=told):
            async with Client(server.url, auth=OAuth(login=Person())):
                pass


# -- without a person ----------------------------------------------------------------------------------------------


async def test_a_program_speaks_for_itself_and_renews_its_token_in_silence() -> None:
    async with locked(granted={"expires_in": 0}) as server:
        server.scope = "a"
        async with Client(server.url, auth=ClientCredentials("c", "s")) as client:
            await client.list_tools()
            server.authority.granted = {"expires_in": 3600}
            await call(client)
            renewed = len(server.authority.tokens)
            await call(client)
        assert len(server.authority.tokens) == renewed > 1
        assert {form["grant_type"] for form in server.authority.forms} == {"client_credentials"}
        assert {form["scope"] for form in server.authority.forms} == {"a"}
        assert server.authority.heads[0]["authorization"].startswith("Basic ")
        assert server.shown().count("") == 1


async def test_somebody_vouches_and_is_asked_once_when_that_is_refused() -> None:
    async with locked() as server:
        asked: list[tuple[str, str]] = []

        async def vouch(issuer: str, resource: str) -> str:
            asked.append((issuer, resource))
            return "signed"

        async with Client(server.url, auth=Assertion("c", vouch)) as client:
            await call(client)
        assert asked == [(server.authority.issuer, server.url)]
        assert server.authority.forms[0]["assertion"] == "signed"
        server.authority.refusals = [{"error": "invalid_grant"}] * 2
        with pytest.raises(LoginFailed, match="invalid_grant"):
            async with Client(server.url, auth=Assertion("c", "another")) as client:
                await call(client)
        assert len(server.authority.refusals) == 1


# -- what is secret ------------------------------------------------------------------------------------------------


async def test_a_token_goes_to_no_other_origin() -> None:
    async with locked() as server, faking(modern(lambda asked, writer: reply(writer, text(asked, "there")))) as other:
        async with Client(server.url, auth=OAuth(login=Person())) as client:
            await call(client)
            assert server.fake is not None
            server.fake.answer = lambda asked, writer: reply(writer, b"", "307 Moved", Location=other.url)
            assert await call(client) == "there"
        assert all("authorization" not in asked.headers for asked in other.asked)


async def test_secrets_appear_in_neither_logs_nor_errors(caplog: pytest.LogCaptureFixture) -> None:
    secrets = ["r-1", "a-token", "a-secret", "code-", "s3cret"]
    with caplog.at_level(logging.DEBUG):
        async with locked(granted=REFRESH) as server:
            person = Person()
            async with Client(server.url, auth=OAuth(login=person)) as client:
                await call(client)
                server.taken = set()
                server.authority.refusals = [
                    {"error": "invalid_grant", "error_description": "r-1 is not known"},
                    {"error": "invalid_grant", "error_description": "code-2 was used by a-secret"},
                ]
                with pytest.raises(LoginFailed) as caught:
                    await call(client)
    assert len(person.visits) == 2
    verifier = server.authority.forms[0]["code_verifier"]
    for told in (caplog.text, str(caught.value), repr(caught.value)):
        assert [secret for secret in [*secrets, verifier] if secret in told] == []


def test_nothing_secret_is_shown() -> None:
    token = Token("https://a", "https://b", "c", "s3cret", [], "s3cret")
    request = PooledRequest("POST", read_address("https://a/token"), b"", b"Authorization: s3cret", b"s3cret")
    auths = [OAuth(client_id="c", client_secret="s3cret"), ClientCredentials("c", "s3cret"), Assertion("c", "s3cret")]
    assert "s3cret" not in "".join(map(repr, [token, request, *auths]))
    assert msgspec.json.decode(msgspec.json.encode(token), type=Token) == token


# -- set up wrongly ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Client("http://h/mcp", auth=OAuth(), headers={"authorization": "x"}), "use one of them"),
        (lambda: OAuth(client_secret="s"), "client_id"),
        (lambda: OAuth(client_metadata_url="http://me.example/client.json"), "https://example.com"),
        (lambda: OAuth(client_metadata_url="https://me.example"), "https://example.com"),
        (lambda: OAuth(scopes="a b"), r"\['a', 'b'\]"),
        (lambda: ClientCredentials("c"), "needs either"),
        (lambda: ClientCredentials("c", "s", private_key="k"), "needs either"),
        (lambda: ClientCredentials("c", private_key="/no/such/file"), "neither a PEM"),
    ],
)
def test_invalid_settings_are_rejected_immediately(make: Any, told: str) -> None:
    with pytest.raises(SetupError, match=told):
        make()


async def test_without_auth_the_error_says_what_to_do() -> None:
    async with locked() as server:
        with pytest.raises(Unauthorized, match="auth=OAuth") as caught:
            async with Client(server.url):
                pass
        assert caught.value.status == 401


async def test_the_example_logs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging_in, "FOLDER", tmp_path / "logins")
    async with locked() as server:
        person = Person()
        assert await logging_in.use(server.url, logging_in.as_a_person(person)) == []
        assert await logging_in.use(server.url, logging_in.as_a_person(person)) == []
        assert await logging_in.use(server.url, logging_in.as_a_program("nightly", "s")) == []
        assert len(person.visits) == 1


async def test_where_clients_are_registered_by_hand_the_error_says_so() -> None:
    async with locked(metadata={"registration_endpoint": None}) as server:
        with pytest.raises(LoginFailed, match="use its client_id"):
            async with Client(server.url, auth=OAuth(login=Person())):
                pass
