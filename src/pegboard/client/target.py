"""What a client can connect to: a board, a URL, a command or a configuration entry."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from msgspec.structs import replace

from pegboard import config as configuration
from pegboard.call import Channel
from pegboard.client import transports
from pegboard.client.links.in_process import InProcessLink, InProcessServer, LineServer, MemoryLink
from pegboard.client.links.link import Identity, LinkOptions, ServerLink
from pegboard.errors import SetupError
from pegboard.protocol.revisions import REVISIONS


@runtime_checkable
class LinkFactory(Protocol):
    """A target that makes its own link, such as a test double of a server."""

    def link(self, identity: Identity, unattributed: Channel, options: LinkOptions) -> ServerLink: ...


Target: TypeAlias = InProcessServer | LinkFactory | str | Sequence[str] | Mapping[str, Any]


def open_link(target: Target, identity: Identity, unattributed: Channel, options: LinkOptions) -> ServerLink:
    """The link to a target; nothing is connected or started yet."""
    if options.version is not None and options.version not in REVISIONS:
        raise SetupError(f"Unknown revision {options.version!r}; use one of {', '.join(REVISIONS)}")
    if options.rounds and isinstance(target, str | Mapping | Sequence):
        raise SetupError("rounds=True is only for a board in this process; elsewhere the negotiated revision decides")
    match target:
        case str():
            return _link_to_url(target, identity, unattributed, options)
        case Mapping():
            return _link_to_entry(target, identity, unattributed, options)
        case Sequence():
            return _link_to_command(list(target), identity, unattributed, options)
        case LinkFactory():
            return target.link(identity, unattributed, options)
        case _ if not hasattr(target, "handler"):
            kinds = "a board, a URL, a command as a list of words, a configuration entry, or Gateway(path) for a configuration"
            raise SetupError(f"{type(target).__name__} is not a valid target; pass {kinds}")
        case _ if options.version is None or not REVISIONS[options.version].has_sessions:
            return InProcessLink(target, identity, rounds=options.rounds)
        case _:
            if options.rounds or not hasattr(target, "open_line"):
                raise SetupError(f"version={options.version!r} needs a board or gateway, and no rounds=True")
            return MemoryLink(cast(LineServer, target), identity, unattributed, options)


def _link_to_url(url: str, identity: Identity, unattributed: Channel, options: LinkOptions) -> ServerLink:
    if not url.startswith(("http://", "https://", "ws://", "wss://")):
        other = (
            f"Gateway({url!r})" if url.endswith((".json", ".toml")) else "a command as a list: ['python', 'server.py']"
        )
        raise SetupError(f"{url!r} is not a URL; pass {other}")
    if options.auth is not None and any(name.lower() == "authorization" for name in options.headers or ()):
        raise SetupError(f"{url}: has both auth and a header Authorization; use one of them")
    kind = transports.WebSocketLink if url.startswith("ws") else transports.HttpLink
    return kind(url, identity, unattributed, options)


def _link_to_command(words: list[str], identity: Identity, unattributed: Channel, options: LinkOptions) -> ServerLink:
    if not words or not words[0] or any("\0" in word for word in words):
        raise SetupError("A command must be a list of words, starting with a program")
    return transports.StdioLink(words, identity, unattributed, options)


def _link_to_entry(
    entry: Mapping[str, Any], identity: Identity, unattributed: Channel, options: LinkOptions
) -> ServerLink:
    folder = Path(options.cwd or ".").absolute()
    config = configuration.read_server_entry(
        entry, folder, {"version": options.version, "connect_timeout": options.connect_timeout}
    )
    if config.kind == "board":
        raise SetupError("An entry with a 'board' is for a gateway; pass the board itself to the client")
    options = replace(
        options,
        headers={**(options.headers or {}), **config.headers},
        env={**(options.env or {}), **config.child_env(os.environ)},
        cwd=config.cwd,
        confine=config.confine,
        resources=config.resources,
        version=config.version,
        connect_timeout=config.connect_timeout,
    )
    if config.kind == "stdio":
        return _link_to_command(list(config.command), identity, unattributed, options)
    return _link_to_url(config.url, identity, unattributed, options)
