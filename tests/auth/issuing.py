"""An issuer of tokens on a port of its own: metadata, a key set that can rotate, introspection."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
import uuid
import warnings
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from tests.client.fakes import Asked, faking, reply

PUBLIC_URL = "https://tools.example"
RESOURCE = f"{PUBLIC_URL}/mcp"


class SigningKeys:
    """Keys of every kind that is accepted, made once: RSA keys are slow to make."""

    rsa = RSAKey.generate_key(2048, {"kid": "rsa"}, private=True)
    ec = ECKey.generate_key("P-256", {"kid": "ec"}, private=True)
    okp = OKPKey.generate_key("Ed25519", {"kid": "okp"}, private=True)
    stranger = ECKey.generate_key("P-256", {"kid": "ec"}, private=True)


class TestIssuer:
    """Signs tokens; `asked` counts the requests for each path, `down` lets all of them fail."""

    __test__ = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[Any] = [SigningKeys.rsa, SigningKeys.ec, SigningKeys.okp]
        self.asked: Counter[str] = Counter()
        self.down = False
        self.opaque: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, Any]] = {}
        self.id_claims: dict[str, Any] = {}

    def consent(self, url: str) -> str:
        """The person agrees on the page of the issuer: the address that the browser is sent back to."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        code = uuid.uuid4().hex
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?code={code}&state={asked['state']}&iss={quote(self.url, safe='')}"

    def _exchange(self, form: dict[str, list[str]]) -> dict[str, Any] | None:
        """The response to a code, which is accepted once, from the client that proves to have asked for it."""
        asked = self.codes.pop(form["code"][0], None)
        digest = encode(hashlib.sha256(form["code_verifier"][0].encode()).digest())
        if asked is None or digest != asked["code_challenge"] or form["redirect_uri"] != [asked["redirect_uri"]]:
            return None
        claims = {"aud": asked["client_id"], "nonce": asked["nonce"], "scope": None, **self.id_claims}
        token = self.sign(header={"typ": "JWT"}, **claims)
        return {"access_token": "opaque", "token_type": "Bearer", "id_token": token, "scope": asked["scope"]}

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": "ann",
            "aud": RESOURCE,
            "exp": now + 600,
            "iat": now,
            "client_id": "cli",
            "jti": uuid.uuid4().hex,
            "scope": "notes.read",
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def sign(self, key: Any = SigningKeys.ec, header: dict[str, Any] | None = None, **changes: Any) -> str:
        return sign(self.claims(**changes), key, header)

    def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        path = urlsplit(asked.target).path
        self.asked[path] += 1
        if self.down:
            reply(writer, b"", "503 Service Unavailable")
        elif path == "/.well-known/oauth-authorization-server":
            reply(
                writer,
                {
                    "issuer": self.url,
                    "jwks_uri": f"{self.url}/keys",
                    "introspection_endpoint": f"{self.url}/introspect",
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                },
            )
        elif path == "/keys":
            reply(writer, {"keys": [key.as_dict(private=False) for key in self.keys]})
        elif path == "/authorize":
            # The person agrees at once.
            location = self.consent(asked.target)
            writer.write(f"HTTP/1.1 303 See Other\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        elif path == "/token":
            answer = self._exchange(parse_qs(asked.body.decode()))
            reply(writer, answer or {"error": "invalid_grant"}, "200 OK" if answer else "400 Bad Request")
        elif path == "/introspect":
            basic = base64.b64encode(b"gateway:s3cret").decode()
            if asked.headers.get("authorization") != f"Basic {basic}":
                reply(writer, {"error": "invalid_client"}, "401 Unauthorized")
                return
            token = parse_qs(asked.body.decode())["token"][0]
            reply(writer, self.opaque.get(token, {"active": False}))
        else:
            reply(writer, b"", "404 Not Found")


def sign(claims: dict[str, Any], key: Any, header: dict[str, Any] | None = None) -> str:
    algorithm = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[key.key_type]
    full = {"alg": algorithm, "kid": key.kid, "typ": "at+jwt", **(header or {})}
    full = {name: value for name, value in full.items() if value is not None}
    with warnings.catch_warnings():
        # joserfc warns of EdDSA, the older name of Ed25519, which most issuers use.
        warnings.simplefilter("ignore")
        return jws.serialize_compact(full, json.dumps(claims).encode(), key, algorithms=[full["alg"]])


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    return ".".join(encode(part) for part in (json.dumps(header).encode(), json.dumps(claims).encode(), signature))


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def prove(
    token: str,
    method: str = "POST",
    url: str = RESOURCE,
    key: Any = SigningKeys.okp,
    header: dict[str, Any] | None = None,
    **changes: Any,
) -> str:
    """A DPoP proof."""
    claims = {
        "htm": method,
        "htu": url,
        "iat": int(time.time()),
        "jti": uuid.uuid4().hex,
        "ath": encode(hashlib.sha256(token.encode()).digest()),
        **changes,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    return sign(claims, key, {"typ": "dpop+jwt", "kid": None, "jwk": key.as_dict(private=False), **(header or {})})


@asynccontextmanager
async def issuing() -> AsyncIterator[TestIssuer]:
    issuer = TestIssuer("")
    async with faking(issuer.answer) as fake:
        issuer.url = f"http://127.0.0.1:{fake.port}"
        yield issuer
