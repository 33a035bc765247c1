"""The flags of the console, and the lines that name the links to pages."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from pegboard.console.console import Console
from pegboard.console.console_subject import ConsoleSubject
from pegboard.server.hosting import Hosted
from pegboard.server.http.guard import is_loopback
from pegboard.server.serving_options import ServingOptions


def add_console_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("console")
    group.add_argument(
        "--no-console", action="store_false", dest="console", help="do not serve the console at /console"
    )
    group.add_argument("--open", action="store_true", help="open the console in the browser")


def add_console(
    served: Hosted, make_subject: Callable[[], ConsoleSubject], chosen: argparse.Namespace, options: ServingOptions
) -> Console | None:
    """The console of this launch: over HTTP, with one worker, on this machine or where people can sign in."""
    local = options["uds"] is None and is_loopback(options["host"])
    if not chosen.console or options["transport"] == "stdio" or options["workers"] > 1:
        return None
    return Console(make_subject(), link=local) if local or served.auth is not None else None


def announce_approvals(served: Hosted) -> list[str]:
    """The line with the link to the approvals, if some calls need one."""
    link = served.approvals_link()
    return [f"  approve  {link}"] if link else []


def announce_console(console: Console | None, chosen: argparse.Namespace, url: str) -> list[str]:
    """The line with the link; with `--open`, also opens it."""
    if console is None:
        return []
    if chosen.open and url.startswith("http"):
        console.open_in_browser(url)
    return [f"  console  {console.link(url)}"]
