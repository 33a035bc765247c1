"""Finds the authorization server of a server: challenges, metadata, and where they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from pegboard.client.http.address import Address, read_address
from pegboard.client.login.login_http import LoginClient
from pegboard.errors import MalformedMessage, SetupError

_LONGEST = 8192
_BETWEEN = re.compile(r"[\s,]*+")
_PIECE = re.compile(
    r"""(?P<name>[!\#$%&'*+.^_`|~0-9A-Za-z-]++) \s*+=\s*+ (?: "(?P<quoted>(?:[^"\\]|\\.)*+)" | (?P<plain>[^\s,"]++) )
      | (?P<word>[^\s,"]++)""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")

_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"

T = TypeVar("T", bound=Struct)


class ResourceMetadata(Struct, frozen=True):
    """The metadata of a protected server (RFC 9728)."""

    resource: str
    authorization_servers: list[str] | None = None
    scopes_supported: list[str] | None = None


class ServerMetadata(Struct, frozen=True):
    """The metadata of an authorization server (RFC 8414, OpenID Connect Discovery)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    client_id_metadata_document_supported: bool | None = None
    authorization_response_iss_parameter_supported: bool | None = None


class ProtectedResource(Struct, frozen=True):
    """A server and the issuer of its tokens; `resource` is its own identifier, byte for byte."""

    resource: str
    scopes: list[str] | None
    server: ServerMetadata


def resource_locations(server: Address) -> list[str]:
    """The default URLs of a server's metadata: below its path, then at the root."""
    root = f"{server.scheme}://{server.authority}{_RESOURCE}"
    return [root] if server.target == "/" else [root + server.target, root]


def server_locations(issuer: str) -> list[str]:
    """The URLs of an authorization server's metadata, in the order in which they are tried."""
    address = read_address(issuer)
    root = f"{address.scheme}://{address.authority}"
    # "any terminating "/" MUST be removed" (RFC 8414, 3.1)
    path = urlsplit(issuer).path.rstrip("/")
    if not path:
        return [root + _SERVER, root + _OPENID]
    return [root + _SERVER + path, root + _OPENID + path, root + path + _OPENID]


def read_resource(document: Mapping[str, Any], server: Address, source: str) -> ResourceMetadata:
    """Check a server's metadata; rejects those of another server."""
    read = _convert(document, ResourceMetadata, source)
    if not covers(read.resource, server):
        raise MalformedMessage(f"{source}: this is the metadata of {read.resource[:200]!r}, not of {server}")
    return read


def read_server(document: Mapping[str, Any], issuer: str, source: str) -> ServerMetadata:
    """Check the metadata of an authorization server.

    "the `issuer` value in the document MUST be identical to the issuer identifier used to construct the well-known URL"
    """
    read = _convert(document, ServerMetadata, source)
    if read.issuer != issuer:
        raise MalformedMessage(
            f"{source}: this is the metadata of {read.issuer[:200]!r}, which is not exactly {issuer!r}"
        )
    return read


def covers(resource: str, server: Address) -> bool:
    """Whether a resource is this server, or a parent path of it."""
    try:
        named = read_address(resource)
    except SetupError:
        return False
    if "#" in resource or named.origin != server.origin:
        return False
    if "?" in named.target:
        return named.target == server.target
    here, there = server.target.partition("?")[0], named.target.rstrip("/")
    return here.rstrip("/") == there or here.startswith(there + "/")


def canonical(server: Address) -> str:
    """The URI of a server that does not state one; "without the trailing slash"."""
    return str(server).removesuffix("/") if server.target == "/" else str(server)


def _convert(document: Mapping[str, Any], kind: type[T], source: str) -> T:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as problem:
        raise MalformedMessage(f"{source}: {problem}") from None


class Challenge(Struct, frozen=True):
    """One scheme and its parameters."""

    scheme: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def error(self) -> str:
        return self.parameters.get("error", "")

    @property
    def metadata_url(self) -> str:
        return self.parameters.get("resource_metadata", "")

    @property
    def scopes(self) -> list[str]:
        return self.parameters.get("scope", "").split()


def read_challenges(text: str) -> list[Challenge]:
    """All challenges of a field, or of several joined ones; invalid ones are skipped."""
    found: list[tuple[str, dict[str, str]]] = []
    text = text[:_LONGEST]
    place = 0
    alone = False
    while place < len(text):
        # Skipped before the match, so that a long run of them is not tried from each position.
        between = _BETWEEN.match(text, place)
        place = between.end() if between else place
        piece = _PIECE.match(text, place)
        if piece is None:
            place += 1
            continue
        place = piece.end()
        if piece["word"] is not None:
            # A word right after a scheme is its token68; any other starts a challenge.
            if not alone or (between and "," in between[0]):
                found.append((piece["word"].lower(), {}))
                alone = True
            else:
                alone = False
            continue
        alone = False
        if found:
            quoted = piece["quoted"]
            value = piece["plain"] if quoted is None else _ESCAPED.sub(r"\1", quoted)
            found[-1][1].setdefault(piece["name"].lower(), value)
    return [Challenge(scheme, parameters) for scheme, parameters in found]


def read_bearer(text: str) -> Challenge:
    """The challenge for a bearer token; an empty one if there is none."""
    return next((challenge for challenge in read_challenges(text) if challenge.scheme == "bearer"), Challenge())


async def discover(
    login_client: LoginClient,
    server: Address,
    challenge: Challenge,
    *,
    issuer: str | None = None,
    known: Sequence[str] = (),
) -> ProtectedResource:
    """The site of a server. `issuer` is the only authorization server to use, `known` are preferred ones."""
    resource = await _find_resource(login_client, server, challenge)
    if resource is None:
        # Revision 2025-03-26 has no such document: there, the server's own origin issues the tokens.
        origin = f"{server.scheme}://{server.authority}"
        resource = ResourceMetadata(canonical(server), [origin])
    listed = resource.authorization_servers or []
    if not listed:
        raise MalformedMessage(f"{server}: its metadata name no authorization server")
    if issuer is not None and issuer not in listed:
        raise MalformedMessage(
            f"{server}: its tokens are issued by {', '.join(listed)[:200]}, and the given credentials are for "
            f"{issuer}; they are not sent elsewhere"
        )
    chosen = issuer or next((candidate for candidate in known if candidate in listed), listed[0])
    return ProtectedResource(resource.resource, resource.scopes_supported, await find_server(login_client, chosen))


async def _find_resource(login_client: LoginClient, server: Address, challenge: Challenge) -> ResourceMetadata | None:
    if challenge.metadata_url:
        source = challenge.metadata_url
        reply = await login_client.get(source)
        if reply.status != 200 or reply.document is None:
            raise MalformedMessage(
                f"{source}: {server} names this URL for its metadata, which returns {reply.status} and no metadata"
            )
        return read_resource(reply.document, server, source)
    for source in resource_locations(server):
        reply = await login_client.get(source)
        # A site with a catch-all page returns 200 here too.
        if reply.status == 200 and reply.document is not None and "resource" in reply.document:
            return read_resource(reply.document, server, source)
    return None


async def find_server(login_client: LoginClient, issuer: str) -> ServerMetadata:
    """The metadata of an authorization server, from the first of its well-known URLs that has them."""
    login_client.check_address(issuer)
    for source in server_locations(issuer):
        reply = await login_client.get(source)
        if reply.status == 200 and reply.document is not None and "issuer" in reply.document:
            return read_server(reply.document, issuer, source)
    raise MalformedMessage(f"{issuer} has no authorization server metadata at any well-known URL")
