"""The `auth` key of a configuration: which credentials callers need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from pegboard.auth.auth import Auth
from pegboard.auth.issuer import Issuer
from pegboard.auth.trusted_proxy import TrustedProxy
from pegboard.config.value_types import (
    BooleanValue,
    ListValue,
    MapValue,
    NumberValue,
    ObjectField,
    ObjectValue,
    TextValue,
)

_TEXT: Final = TextValue()
_TEXTS: Final = ListValue(_TEXT, single=_TEXT)

_INTROSPECTION: Final = ObjectValue(
    "introspection",
    {
        "clientId": ObjectField("client_id", _TEXT, "the name of the gateway at the issuer"),
        "clientSecret": ObjectField("client_secret", _TEXT, "its secret, as ${VARIABLE}"),
        "url": ObjectField("url", _TEXT, "the introspection endpoint; default: the one in the issuer's metadata"),
        "seconds": ObjectField("seconds", NumberValue(), "how long an answer is used: 30"),
    },
    required={"clientId": "introspection needs a 'clientId'", "clientSecret": "introspection needs a 'clientSecret'"},
)
_SIGN_IN: Final = ObjectValue(
    "signIn",
    {
        "clientId": ObjectField("client_id", _TEXT, "the name of the gateway at the issuer"),
        "clientSecret": ObjectField("client_secret", _TEXT, "its secret, as ${VARIABLE}; none for a public client"),
        "scopes": ObjectField("scopes", _TEXTS, "the scopes to request, besides openid"),
    },
    required={"clientId": "signIn needs a 'clientId'"},
    short="clientId",
)
_ISSUER: Final = ObjectValue(
    "an issuer",
    {
        "issuer": ObjectField("issuer", _TEXT, "its URL, exactly as its tokens name it"),
        "audience": ObjectField(
            "audience", _TEXTS, "the audiences that its tokens may have; default: the URL of the endpoint"
        ),
        "jwksUri": ObjectField("jwks_uri", _TEXT, "the URL of its keys; default: the one in its metadata"),
        "principal": ObjectField("principal", _TEXT, "the claim that identifies a caller: sub"),
        "scopes": ObjectField("scopes", _TEXT, "the claim with the scopes: scope"),
        "roles": ObjectField("roles", _TEXT, "the claim with the roles, such as realm_access.roles"),
        "prefix": ObjectField(
            "prefix", _TEXT, "put before the ids of its principals; several issuers need different ones"
        ),
        "leeway": ObjectField("leeway", NumberValue(), "seconds that its clock may differ: 30"),
        "introspection": ObjectField("introspection", _INTROSPECTION, "ask the issuer about each token"),
        "signIn": ObjectField("sign_in", _SIGN_IN, "let people sign in at it with a browser, for the console"),
    },
    required={"issuer": "an issuer has no 'issuer'"},
    short="issuer",
)
_PROXY: Final = ObjectValue(
    "a proxy",
    {
        "addresses": ObjectField("addresses", _TEXTS, "the addresses that it connects from, or unix"),
        "header": ObjectField("header", _TEXT, "the header that names the caller"),
        "issuer": ObjectField("issuer", _ISSUER, "the issuer that signs the header, which is then a JWT"),
        "prefix": ObjectField("prefix", _TEXT, "put before an id that is not signed: proxy:"),
    },
    required={"addresses": "a proxy has no 'addresses'", "header": "a proxy has no 'header'"},
)
AUTH: Final = ObjectValue(
    "auth",
    {
        "publicUrl": ObjectField("public_url", _TEXT, "the URL of this gateway as clients see it"),
        "keys": ObjectField("keys", BooleanValue(), "accept API keys, which `pegboard keys` adds"),
        "scopes": ObjectField("scopes", _TEXTS, "the scopes that clients should request at their first login"),
        "implies": ObjectField(
            "implies",
            MapValue(_TEXTS, "an object of lists of scopes"),
            "for a broad scope, the narrower ones it includes",
        ),
        "issuers": ObjectField("issuers", ListValue(_ISSUER), "the authorization servers whose tokens are accepted"),
        "proxy": ObjectField("proxy", _PROXY, "a proxy in front, which has authenticated the caller"),
    },
)


class InboundAuthConfig(Struct, frozen=True, kw_only=True):
    """Which credentials callers need."""

    public_url: str | None = None
    keys: bool = False
    scopes: tuple[str, ...] = ()
    implies: Mapping[str, tuple[str, ...]] = {}
    issuers: tuple[Issuer, ...] = ()
    proxy: TrustedProxy | None = None

    def make(self) -> Auth:
        """The Auth that it describes; SetupError if that cannot work."""
        return Auth(**asdict(self))
