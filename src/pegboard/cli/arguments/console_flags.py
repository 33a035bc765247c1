"""The flags of the console, and the lines that name the links to pages."""

from __future__ import annotations

import argparse
import logging
from typing import Final

from pegboard import console, middleware, server
from pegboard.errors import SetupError
from pegboard.server.hosting import Hosted
from pegboard.server.serving_options import ServingOptions

_log = logging.getLogger("pegboard")

# Each worker has its own connections to servers, its own sessions and its own open questions: a page would show and change
# those of the worker that its last request happened to reach.
_ONE_WORKER: Final = (
    "the console needs a single worker: use --workers 1, or `pegboard history --follow` for the calls of all workers"
)


def add_console_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--open", action="store_true", help="open the console in the browser")
    group = parser.add_argument_group("console")
    group.add_argument(
        "--no-console", action="store_false", dest="console", help="do not serve the console at /console"
    )
    group.add_argument(
        "--no-history", action="store_false", dest="history", help="do not keep calls in the store, only in memory"
    )


def add_console(
    served: Hosted, chosen: argparse.Namespace, options: ServingOptions, token: str | None = None
) -> console.Console | None:
    """The console of this launch: over HTTP, with one worker, on this machine or where people can sign in.

    The history is kept without a console, too, if there is a store, and then there is a status for `pegboard status`. `token` is the one in the link, if the launch has
    several processes.
    """
    if chosen.console and options["workers"] > 1 and options["transport"] != "stdio":
        if chosen.open:
            raise SetupError(f"--open: {_ONE_WORKER}")
        _log.info("%s", _ONE_WORKER)
    local = options["transport"] != "stdio" and options["uds"] is None and server.is_loopback(options["host"])
    is_shown = (
        chosen.console
        and options["transport"] != "stdio"
        and options["workers"] == 1
        and (local or served.auth is not None)
    )
    if not is_shown and (not chosen.history or options["store"] == "memory"):
        return None
    subject = console.subject_of(served, middleware.History(store=chosen.history))
    console.StatusDocument(subject)
    return console.Console(subject, link=local, token=token) if is_shown else None


def announce_approvals(served: Hosted) -> list[str]:
    """The line with the link to the approvals, if some calls need one."""
    link = served.approvals_link()
    return [f"  approve  {link}"] if link else []


def announce_console(shown: console.Console | None, chosen: argparse.Namespace, url: str) -> list[str]:
    """The line with the link; with `--open`, also opens it."""
    if shown is None:
        return []
    if chosen.open and url.startswith("http"):
        shown.open_in_browser(url)
    return [f"  console  {shown.link(url)}"]
