"""Turns debug mode on where every caller is on this machine."""

from __future__ import annotations

import logging

from pegboard.errors import SetupError
from pegboard.server.http.guard import is_loopback
from pegboard.server.serving_options import ServingOptions
from pegboard.server.shared_store import ServedApp

_log = logging.getLogger("pegboard")


def set_up_debug(served: ServedApp, options: ServingOptions) -> None:
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
        reachable = options["uds"] is None and not is_loopback(options["host"])
        if reachable or options["trusted_proxy"]:
            raise SetupError(
                "debug mode would show exceptions to other machines: remove --debug and Board(debug=True), or serve a "
                "loopback address without --trusted-proxy"
            )
        mode.allow_network()
    _log.warning("debug mode: callers on this machine see exceptions and tracebacks; do not put a proxy in front")
