"""Signs a person in at an issuer with a browser: OpenID Connect, authorization code with PKCE."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from pegboard.auth.claims import check_times, read_principal, read_words
from pegboard.auth.issuer import Issuer, IssuerConnection, SignInClient
from pegboard.auth.issuer_keys import IssuerKeys
from pegboard.auth.request_credentials import AuthRefusal, VerifiedIdentity, invalid_token, unavailable
from pegboard.auth.signatures import BadJwt, check_header, split_jwt, verify_signature
from pegboard.errors import ServerFault
from pegboard.log_allowance import LogAllowance

_log = logging.getLogger("pegboard.auth")

_TYPES: Final = frozenset({None, "jwt", "application/jwt"})
_CODE_CHARACTERS: Final = 4096
METADATA_SECONDS: Final = 300.0
RETRY_SECONDS: Final = 5.0
"""How long an issuer that could not be reached is not asked again: anybody may open the page."""


class LoginAttempt(Struct, frozen=True, array_like=True):
    """What has to be remembered between the redirect to the issuer and the way back; `verifier` is a secret."""

    state: str
    nonce: str
    verifier: str

    def __repr__(self) -> str:
        return "LoginAttempt(…)"


class OpenIdLogin:
    """Signs people in at one issuer."""

    def __init__(
        self,
        issuer: Issuer,
        client: SignInClient,
        connection: IssuerConnection,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.issuer = issuer
        self._client = client
        self._connection = connection
        self._clock = clock
        # Everybody can send a redirect that fails.
        self._allowance = LogAllowance(_log, f"sign-ins at {issuer.issuer}")
        self.keys = IssuerKeys(issuer.issuer, issuer.jwks_uri, connection)
        self._metadata: Mapping[str, Any] | None = None
        self._ask_at = 0.0

    async def begin(self, redirect_uri: str, scopes: Collection[str]) -> tuple[str, LoginAttempt]:
        """The URL to send the browser to, and what to remember until it returns."""
        endpoint = (await self._discover("authorization_endpoint"))["authorization_endpoint"]
        attempt = LoginAttempt(*(secrets.token_urlsafe(size) for size in (24, 24, 48)))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        parameters = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(["openid", *sorted({*self._client.scopes, *scopes} - {"openid"})]),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(parameters)}", attempt

    async def finish(self, attempt: LoginAttempt, redirect_uri: str, parameters: Mapping[str, str]) -> VerifiedIdentity:
        """Exchange the code of the redirect for the identity of the person; AuthRefusal if it is not accepted."""
        if not hmac.compare_digest(parameters.get("state", "").encode(), attempt.state.encode()):
            raise invalid_token("This answer belongs to another sign-in")
        # RFC 9207: "if the value does not match … clients MUST reject the authorization response"
        if parameters.get("iss", self.issuer.issuer) != self.issuer.issuer:
            raise invalid_token("This answer is of another issuer")
        if "error" in parameters:
            self._allowance.log(
                logging.WARNING, "%s refused a sign-in: %s", self.issuer.issuer, ascii(parameters["error"][:100])
            )
            raise invalid_token("The issuer refused the sign-in")
        code = parameters.get("code", "")
        if not 0 < len(code) <= _CODE_CHARACTERS:
            raise invalid_token("This answer has no code")
        answer = await self._exchange(code, attempt, redirect_uri)
        token = answer.get("id_token")
        if not isinstance(token, str):
            self._allowance.log(
                logging.ERROR, "%s: the token response has no id_token; is it an OpenID provider?", self.issuer.issuer
            )
            raise invalid_token("The issuer sent no ID token")
        claims = await self._read_id_token(token, attempt)
        principal = read_principal(claims, self.issuer, "Bearer")
        # RFC 6749, 5.1: scope is "OPTIONAL, if identical to the scope requested by the client".
        granted = answer.get("scope", " ".join(self._client.scopes))
        return VerifiedIdentity(replace(principal, scopes=principal.scopes | read_words(granted) - {"openid"}))

    async def _exchange(self, code: str, attempt: LoginAttempt, redirect_uri: str) -> Mapping[str, Any]:
        metadata = await self._discover("token_endpoint")
        form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", attempt.verifier),
        ]
        name, secret = self._client.client_id, self._client.client_secret
        methods = metadata.get("token_endpoint_auth_methods_supported") or ("client_secret_basic",)
        if not secret or ("client_secret_basic" not in methods and "client_secret_post" in methods):
            form += [("client_id", name), *([("client_secret", secret)] if secret else [])]
            name = secret = ""
        try:
            return await self._connection.post(metadata["token_endpoint"], form, name, secret)
        except ServerFault as fault:
            self._allowance.log(logging.ERROR, "a sign-in failed: %s", fault)
            raise invalid_token("The issuer did not accept the sign-in; try again") from None

    async def _read_id_token(self, token: str, attempt: LoginAttempt) -> Mapping[str, Any]:
        """The claims of an ID token, verified (OpenID Connect Core, 3.1.3.7)."""
        try:
            header, claims = split_jwt(token)
            algorithm = check_header(header, _TYPES)
        except BadJwt as problem:
            raise invalid_token(str(problem)) from None
        key_id = header.get("kid")
        keys = self.keys.find(key_id, algorithm)
        if keys is None:
            keys = await self.keys.fetch(key_id, algorithm)
        if not any(verify_signature(token, key, algorithm) for key in keys):
            raise invalid_token("The signature of the ID token is wrong")
        audience, client = claims.get("aud"), self._client.client_id
        named = audience if isinstance(audience, list) else [audience]
        if claims.get("iss") != self.issuer.issuer or client not in named or claims.get("azp", client) != client:
            raise invalid_token("The ID token is for another client")
        if check_times(claims, self.issuer.leeway, "Bearer", self._clock()) is None:
            raise invalid_token("The ID token has no expiry (exp)")
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), attempt.nonce.encode()):
            raise invalid_token("The ID token belongs to another sign-in")
        return claims

    async def _discover(self, wanted: str) -> Mapping[str, Any]:
        if time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + RETRY_SECONDS
            try:
                self._metadata = await self._connection.discover()
                self._ask_at = time.monotonic() + METADATA_SECONDS
            except ServerFault as fault:
                _log.error("signing in at %s is not possible: %s", self.issuer.issuer, fault)
                self._metadata = None
        if self._metadata is None:
            raise unavailable("The issuer cannot be reached now; try again later")
        if not isinstance(self._metadata.get(wanted), str):
            self._allowance.log(
                logging.ERROR, "signing in at %s is not possible: its metadata name no %s", self.issuer.issuer, wanted
            )
            raise AuthRefusal("The issuer has no page to sign in", status=502)
        return self._metadata
