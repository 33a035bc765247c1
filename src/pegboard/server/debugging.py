"""Turns debug mode on where every caller is on this machine."""

from __future__ import annotations

import logging

from pegboard import server
from pegboard.errors import SetupError
from pegboard.server.serving_options import ServingOptions
from pegboard.server.shared_store import ServedApp

_log = logging.getLogger("pegboard")


def set_up_debug(served: ServedApp, options: ServingOptions, *, warn: bool = True) -> None:
    """Let local callers see exceptions, if that was asked for; raises SetupError if other machines could."""
    mode = served.debug_mode
    if mode is None:
        if options["debug"]:
            raise SetupError("--debug is for the tools of a board; a gateway has --log-level debug")
        return
    mode.on = mode.on or options["debug"]
    if not mode.on:
        return
    if options["transport"] == "http":
        if not may_debug(options):
            raise SetupError(
                "debug mode would show exceptions to other machines: remove --debug and Board(debug=True), or serve a "
                "loopback address without --trusted-proxy and --allow-host"
            )
        mode.allow_network()
    if warn:
        _log.warning("debug mode: callers on this machine see exceptions and tracebacks; do not put a proxy in front")


def may_debug(options: ServingOptions) -> bool:
    """Whether every caller is on this machine, and may see tracebacks: a name to accept as the Host is for a proxy."""
    local = options["uds"] is not None or server.is_loopback(options["host"])
    hosts = options["allow_host"]
    names = [hosts] if isinstance(hosts, str) else hosts
    return local and not options["trusted_proxy"] and all(map(server.is_loopback, names))
