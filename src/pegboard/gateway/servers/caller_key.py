"""Which callers share a connection to a server, and what a connection carries of its caller."""

from __future__ import annotations

from msgspec import Struct

from pegboard.call import Caller
from pegboard.config.gateway_config import ServerConfig
from pegboard.config.principal_headers import expand_headers
from pegboard.errors import AccessDenied


class CallerKey(Struct, frozen=True):
    """The callers with the same key share a connection.

    principal: the id of the caller.
    issuer: the issuer of that id, where requests carry something of the caller.
    session: its legacy session, where each session has a connection.
    token: its own token, where that is exchanged for one of the server.
    headers: the headers that refer to the caller.
    """

    principal: str
    issuer: str = ""
    session: str = ""
    token: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"CallerKey({self.principal!r})"


def key_of(caller: Caller, config: ServerConfig) -> CallerKey:
    """The key of a caller; AccessDenied if its requests must carry something that it does not have."""
    principal = caller.principal
    session = caller.session if config.share == "session" else ""
    if not config.is_personal:
        return CallerKey(principal.id, session=session)
    if not principal:
        raise AccessDenied(f"The server {config.name!r} acts for each user, and this caller is not authenticated")
    token = ""
    if config.exchanges:
        if caller.credentials is None:
            raise AccessDenied(
                f"The server {config.name!r} takes a token of its user's issuer, and this caller has none: it must log "
                "in at an issuer, in place of an API key"
            )
        token = caller.credentials.token
    headers = expand_headers(config.principal_headers, principal, config.name) if config.principal_headers else ()
    return CallerKey(principal.id, principal.issuer, session, token, headers)
