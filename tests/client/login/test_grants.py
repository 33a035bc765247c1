"""What comes back from a login, and what of it is believed."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from pegboard.client.login.discovery import ServerMetadata
from pegboard.client.login.grants import challenge_of, read_callback
from pegboard.errors import LoginFailed

ISSUER = "https://a.example"


def server(*, says_issuer: bool | None = None) -> ServerMetadata:
    return ServerMetadata(ISSUER, f"{ISSUER}/token", authorization_response_iss_parameter_supported=says_issuer)


def came(**answer: str) -> str:
    return f"http://127.0.0.1:1/callback?{urlencode(answer)}"


def test_the_challenge_is_that_of_the_rfc() -> None:
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.parametrize(
    ("says", "answer"), [(None, {}), (False, {}), (None, {"iss": ISSUER}), (True, {"iss": ISSUER})]
)
def test_a_code_is_taken_from_the_server_it_was_asked_of(says: bool | None, answer: dict[str, str]) -> None:
    assert read_callback(came(code="c", state="s", **answer), "s", server(says_issuer=says)) == "c"


@pytest.mark.parametrize(
    ("says", "answer", "told"),
    [
        (True, {"code": "c", "state": "s"}, "does not name its issuer"),
        (True, {"code": "c", "state": "s", "iss": ISSUER + "/"}, "another authorization server"),
        (None, {"code": "c", "state": "s", "iss": "https://A.example"}, "another authorization server"),
        (None, {"code": "c", "state": "s", "iss": "https://a.example:443"}, "another authorization server"),
        (None, {"code": "c", "state": "s", "iss": ""}, "another authorization server"),
        (None, {"code": "c", "state": "t"}, "state of another"),
        (None, {"code": "c"}, "state of another"),
        (None, {"state": "s"}, "has no code"),
        (None, {"error": "access_denied", "error_description": "no\n!", "state": "s"}, r"access_denied, no\\n!"),
    ],
)
def test_what_is_not_from_there_is_not_used(says: bool | None, answer: dict[str, str], told: str) -> None:
    with pytest.raises(LoginFailed, match=told) as caught:
        read_callback(came(**answer), "s", server(says_issuer=says))
    assert caught.value.status == 401


def test_an_error_from_elsewhere_is_neither_acted_on_nor_shown() -> None:
    with pytest.raises(LoginFailed) as caught:
        read_callback(came(error="pay_me", state="s", iss="https://evil.example"), "s", server())
    assert "pay_me" not in str(caught.value)
    assert caught.value.reason == ""


def test_a_parameter_that_comes_twice_is_not_chosen_from() -> None:
    with pytest.raises(LoginFailed, match="repeated parameter"):
        read_callback(came(code="c", state="s") + "&code=d", "s", server())
