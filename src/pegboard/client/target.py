"""What a client can be pointed at: a board, a URL, a command, or an entry of a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pegboard.call import Channel
from pegboard.client.admission import Auth
from pegboard.client.direct import DirectLink, Served
from pegboard.client.entry import read_entry
from pegboard.client.http import HttpLink
from pegboard.client.link import Identity, Link
from pegboard.client.stdio import RESTARTS, StdioLink
from pegboard.client.web import CONNECTIONS
from pegboard.client.websocket import SocketLink
from pegboard.errors import SetupError
from pegboard.protocol.versions import REVISIONS

Target: TypeAlias = Served | str | Sequence[str] | Mapping[str, Any]


class Options(Struct, frozen=True, kw_only=True):
    """How a server is reached; an entry's own words go before these."""

    headers: Mapping[str, str] | None = None
    env: Mapping[str, str] | None = None
    cwd: str | Path | None = None
    version: str | None = None
    ca: str | Path | None = None
    connect_timeout: float = 10.0
    connections: int = CONNECTIONS
    auth: Auth | None = None
    restarts: int | None = RESTARTS
    rounds: bool = False


def open_link(target: Target, identity: Identity, lobby: Channel, options: Options) -> Link:
    """The link to a target; nothing is connected or started yet."""
    if options.version is not None and options.version not in REVISIONS:
        raise SetupError(f"There is no revision {options.version!r}; known are {', '.join(REVISIONS)}")
    if options.rounds and isinstance(target, str | Mapping | Sequence):
        raise SetupError("rounds=True is for a board in this process; elsewhere the revision that is spoken decides")
    match target:
        case str():
            return _to_url(target, identity, lobby, options)
        case Mapping():
            return _to_entry(target, identity, lobby, options)
        case Sequence():
            return _to_command(list(target), identity, lobby, options)
        case _ if not hasattr(target, "handler"):
            kinds = "a board, a URL, a command as a list of words, or an entry of a configuration"
            raise SetupError(f"{type(target).__name__} is nothing to connect to; give {kinds}")
        case _:
            return DirectLink(target, identity, rounds=options.rounds)


def _to_url(url: str, identity: Identity, lobby: Channel, options: Options) -> Link:
    if not url.startswith(("http://", "https://", "ws://", "wss://")):
        raise SetupError(f"{url!r} is no URL; a command is given as a list of words, as in ['python', 'server.py']")
    if options.auth is not None and any(name.lower() == "authorization" for name in options.headers or ()):
        raise SetupError(f"{url}: has both auth and a header Authorization; give one of them")
    if url.startswith("ws"):
        return _to_socket(url, identity, lobby, options)
    return HttpLink(
        url,
        identity,
        lobby,
        headers=options.headers,
        version=options.version,
        ca=options.ca,
        connect_timeout=options.connect_timeout,
        connections=options.connections,
        auth=options.auth,
    )


def _to_socket(url: str, identity: Identity, lobby: Channel, options: Options) -> Link:
    return SocketLink(
        url,
        identity,
        lobby,
        headers=options.headers,
        version=options.version,
        ca=options.ca,
        connect_timeout=options.connect_timeout,
        auth=options.auth,
    )


def _to_command(words: list[str], identity: Identity, lobby: Channel, options: Options) -> Link:
    if not words or not words[0] or any("\0" in word for word in words):
        raise SetupError("A command is a list of words, the first of which is a program")
    return StdioLink(
        words,
        identity,
        lobby,
        env=options.env,
        cwd=options.cwd,
        version=options.version,
        connect_timeout=options.connect_timeout,
        restarts=options.restarts,
    )


def _to_entry(entry: Mapping[str, Any], identity: Identity, lobby: Channel, options: Options) -> Link:
    read = read_entry(entry)
    options = replace(
        options,
        headers={**(options.headers or {}), **read.headers},
        env={**(options.env or {}), **read.env},
        cwd=read.cwd or options.cwd,
        connect_timeout=read.connect_timeout or options.connect_timeout,
    )
    if read.url:
        return _to_url(read.url, identity, lobby, options)
    return _to_command(list(read.command), identity, lobby, options)
