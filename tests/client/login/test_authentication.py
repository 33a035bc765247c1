"""How clients prove themselves at a token endpoint."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from pegboard.client.login.authentication import ASSERTION, Credentials, authenticate, choose_method
from pegboard.client.login.discovery import ServerMetadata
from pegboard.errors import MalformedMessage, SetupError


def server(methods: list[str] | None = None) -> ServerMetadata:
    return ServerMetadata("https://a.example", "https://a.example/token", token_endpoint_auth_methods_supported=methods)


@pytest.mark.parametrize(
    ("secret", "told", "taken", "method"),
    [
        (None, None, ["client_secret_basic"], "none"),
        ("s", None, None, "client_secret_basic"),
        ("s", None, ["client_secret_post"], "client_secret_post"),
        ("s", None, ["client_secret_post", "client_secret_basic"], "client_secret_basic"),
        ("s", "client_secret_post", ["client_secret_post", "client_secret_basic"], "client_secret_post"),
        ("s", "client_secret_post", None, "client_secret_post"),
        ("s", "client_secret_post", ["client_secret_basic"], "client_secret_basic"),
        ("s", "private_key_jwt", ["client_secret_post"], "client_secret_post"),
        ("s", None, ["none"], "none"),
    ],
)
def test_the_method_is_one_that_both_know(secret: str | None, told: str | None, taken: Any, method: str) -> None:
    assert choose_method(Credentials("c", secret, told), server(taken)) == method


def test_a_server_without_a_supported_authentication_method_is_reported() -> None:
    with pytest.raises(MalformedMessage, match="supports only the client authentication methods tls_client_auth"):
        choose_method(Credentials("c", "s"), server(["tls_client_auth"]))


def test_a_secret_is_sent_form_encoded_in_the_authorization_header() -> None:
    fields, lines = authenticate(Credentials("a:b", "s p%"), server(["client_secret_basic"]))
    assert fields == []
    assert lines == b"Authorization: Basic %b\r\n" % base64.b64encode(b"a%3Ab:s+p%25")


def test_a_secret_goes_in_the_form_where_that_is_wanted() -> None:
    told = authenticate(Credentials("c", "s"), server(["client_secret_post"]))
    assert told == ([("client_id", "c"), ("client_secret", "s")], b"")


@pytest.mark.parametrize(("kind", "argument", "algorithm"), [(ECKey, "P-256", "ES256"), (RSAKey, 2048, "PS256")])
def test_a_private_key_signs_for_one_issuer_and_a_minute(kind: Any, argument: Any, algorithm: str) -> None:
    key = kind.generate_key(argument)
    pem = key.as_pem(private=True).decode()
    fields, lines = authenticate(Credentials("c", private_key=pem, algorithm=algorithm), server(["private_key_jwt"]))
    form = dict(fields)
    signed = jwt.decode(form["client_assertion"], key, algorithms=[algorithm])
    assert (form["client_assertion_type"], lines) == (ASSERTION, b"")
    assert (signed.claims["iss"], signed.claims["sub"], signed.claims["aud"]) == ("c", "c", "https://a.example")
    assert 0 < signed.claims["exp"] - time.time() <= 60
    again = dict(authenticate(Credentials("c", private_key=pem, algorithm=algorithm), server())[0])["client_assertion"]
    assert jwt.decode(again, key, algorithms=[algorithm]).claims["jti"] != signed.claims["jti"]


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "HS256", "none"])
def test_an_invalid_private_key_is_reported_without_its_content(algorithm: str) -> None:
    with pytest.raises(SetupError) as caught:
        authenticate(Credentials("c", private_key="-----BEGIN s3cret-----", algorithm=algorithm), server())
    assert "s3cret" not in str(caught.value)


def test_nothing_secret_is_shown() -> None:
    assert repr(Credentials("c", "s3cret", private_key="s3cret")) == "Credentials('c')"
