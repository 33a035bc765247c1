"""A proxy in front of the server that has authenticated the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from pegboard.auth.claims import is_id
from pegboard.auth.issuer import Issuer
from pegboard.auth.principal import Principal
from pegboard.auth.request_credentials import VerifiedIdentity, invalid_token
from pegboard.errors import SetupError

SCHEME = "Proxy"


class TrustedProxy(Struct, frozen=True):
    """A header by which a proxy names the caller; requests from other addresses cannot use it.

    addresses: the addresses of the proxy, such as 127.0.0.1; `unix` for a Unix socket.
    header: the header, such as Cf-Access-Jwt-Assertion, or the one with the subject of the client certificate.
    issuer: the issuer that signs the header, which is then a JWT; without it, its value is the id of the principal.
    prefix: put before the id of a principal that is not signed.
    """

    addresses: Sequence[str] | str
    header: str
    issuer: Issuer | None = None
    prefix: str = "proxy:"

    @property
    def field(self) -> bytes:
        """The header as requests have it."""
        return self.header.lower().encode("latin-1")

    def trusts(self, address: str) -> bool:
        """Whether a connection from this address is from the proxy."""
        known = (self.addresses,) if isinstance(self.addresses, str) else self.addresses
        return (address or "unix") in known

    def check(self) -> None:
        """Reject what cannot be safe."""
        if not self.addresses:
            raise SetupError("auth: a proxy needs the addresses that it connects from")
        if not self.header or self.field in (b"authorization", b"host", b"cookie"):
            raise SetupError(f"auth: {self.header!r} cannot be the header of a proxy")
        if self.issuer is not None:
            self.issuer.check()

    def sent(self, headers: Mapping[bytes, bytes], address: str) -> str | None:
        """The value of the header, if the proxy sent it."""
        value = headers.get(self.field)
        return None if not value or not self.trusts(address) else value.decode("utf-8", "replace")

    def identify(self, name: str) -> VerifiedIdentity:
        """The caller that an unsigned header names."""
        if not is_id(name):
            raise invalid_token("The proxy named no valid principal")
        return VerifiedIdentity(Principal(self.prefix + name, kind="proxy"))
