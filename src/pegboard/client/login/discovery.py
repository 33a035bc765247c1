"""Finds the authorization server of a server."""

from __future__ import annotations

from collections.abc import Sequence

from pegboard.client.http.address import Address
from pegboard.client.login.challenge import Challenge
from pegboard.client.login.login_http import LoginClient
from pegboard.client.login.metadata import (
    ProtectedResource,
    ResourceMetadata,
    ServerMetadata,
    canonical,
    read_resource,
    read_server,
    resource_locations,
    server_locations,
)
from pegboard.errors import MalformedMessage


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
