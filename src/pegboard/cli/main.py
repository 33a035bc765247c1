"""Finds the verb and runs it; a verb's module loads on demand."""

from __future__ import annotations

import argparse
import gc
import sys
from importlib import import_module
from typing import NoReturn

from pegboard import __version__
from pegboard.errors import PegboardError
from pegboard.logs.log_lines import guard_last_resort, report_setup_error

VERBS = {
    "demo": "serve a gateway with three sample servers",
    "run": "serve a board, over HTTP or stdio",
    "up": "serve many servers as one, from a configuration file",
    "keys": "add, list and revoke the API keys of a server",
    "approvals": "list calls that wait for an approval, and decide them",
    "login": "log in to a server of a configuration",
    "connections": "list and remove the connections of users to servers",
    "lock": "pin tool definitions; review and accept changes",
    "audit": "check an audit log, and search it",
    "history": "search the latest calls of a server",
    "lint": "check rules; show what a caller may see and use",
    "list": "list the tools of a file or a server",
    "call": "call a tool of a file or a server",
    "read": "read a resource",
    "prompt": "print the messages of a prompt",
    "inspect": "show a server's name, revision and everything it offers",
}

OK, TOOL_ERROR, USAGE, CANNOT_CONNECT = 0, 1, 2, 3

_EPILOG = """\
          exit codes: 0 ok, 1 a tool returned an error, 2 wrong usage or set-up, 3 cannot connect
          Run `pegboard VERB --help` for the options of a verb."""


def main(argv: list[str] | None = None) -> NoReturn:
    """The `pegboard` command."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="pegboard",
        description="MCP servers in Python: serve tools, call servers, and combine many servers behind one endpoint.",
        epilog="verbs:\n" + "\n".join(f"  {verb:<11} {text}" for verb, text in VERBS.items()) + "\n\n" + _EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="pegboard [-h] [--version] VERB …",
    )
    parser.add_argument("--version", action="version", version=f"pegboard {__version__}")
    parser.add_argument("verb", choices=VERBS, metavar="VERB", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments[:1] or ["--help"])
    guard_last_resort()
    # Modules are not garbage: a tenth of the start would go into searching them, again and again.
    gc.disable()
    verb = import_module(f"pegboard.cli.commands.{chosen.verb}_command")
    gc.freeze()
    gc.enable()
    try:
        sys.exit(verb.main(arguments[1:]))
    except PegboardError as error:
        report_setup_error(f"pegboard {chosen.verb}: {error}")
        sys.exit(USAGE)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(OK)
