"""The `auth` key of a configuration: which credentials callers need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from pegboard.auth.auth import Auth
from pegboard.auth.issuer import Introspection, Issuer, SignInClient
from pegboard.auth.trusted_proxy import TrustedProxy
from pegboard.config.annotated_types import object_of
from pegboard.config.value_types import ListValue, MapValue, NumberValue, TextValue

_TEXT: Final = TextValue()
_TEXTS: Final = ListValue(_TEXT, single=_TEXT)

_SECONDS: Final = NumberValue()

ISSUER: Final = object_of(
    "an issuer",
    Issuer,
    {
        "audience": _TEXTS,
        "leeway": _SECONDS,
        "introspection": object_of("introspection", Introspection, {"seconds": _SECONDS}),
        "sign_in": object_of("signIn", SignInClient, {"scopes": _TEXTS}, short="clientId"),
    },
    short="issuer",
)
_PROXY: Final = object_of("a proxy", TrustedProxy, {"addresses": _TEXTS, "issuer": ISSUER})


class InboundAuthConfig(Struct, frozen=True, kw_only=True):
    """Which credentials callers need.

    public_url: the URL of this gateway as clients see it
    keys: accept API keys, which `pegboard keys` adds
    scopes: the scopes that clients should request at their first login
    implies: for a broad scope, the narrower ones it includes
    issuers: the authorization servers whose tokens are accepted
    proxy: a proxy in front, which has authenticated the caller
    """

    public_url: str | None = None
    keys: bool = False
    scopes: tuple[str, ...] = ()
    implies: Mapping[str, tuple[str, ...]] = {}
    issuers: tuple[Issuer, ...] = ()
    proxy: TrustedProxy | None = None

    def make(self) -> Auth:
        """The Auth that it describes; SetupError if that cannot work."""
        return Auth(**asdict(self))


AUTH: Final = object_of(
    "auth",
    InboundAuthConfig,
    {
        "scopes": _TEXTS,
        "implies": MapValue(_TEXTS, "an object of lists of scopes"),
        "issuers": ListValue(ISSUER),
        "proxy": _PROXY,
    },
)
