"""Parses and checks the metadata of protected resources and authorization servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from pegboard.client.http.address import Address, read_address
from pegboard.errors import MalformedMessage, SetupError

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
