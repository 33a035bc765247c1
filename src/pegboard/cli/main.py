"""Finds the verb and runs it; a verb's module loads on demand."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import NoReturn

from pegboard import __version__
from pegboard.errors import PegboardError
from pegboard.logs import guard_last_resort
from pegboard.printable import printable_lines

VERBS = {
    "demo": "serve a gateway over three small servers to play with",
    "run": "serve the board in a Python file, over HTTP or stdio",
    "up": "serve many servers as one, by a configuration file",
    "login": "log in to a server of a configuration",
    "lock": "pin what servers say of their tools; show and accept changes",
    "list": "list the tools of a file or a server",
    "call": "call a tool of a file or a server",
    "read": "read a resource",
    "prompt": "fill in a prompt",
    "inspect": "show what a server says of itself and offers",
}

OK, TOOL_ERROR, USAGE, CANNOT_CONNECT = 0, 1, 2, 3

_EPILOG = """\
exit codes: 0 ok, 1 a tool answered with an error, 2 wrong usage or set-up, 3 cannot connect
`pegboard VERB --help` says more about each verb."""


def main(argv: list[str] | None = None) -> NoReturn:
    """The `pegboard` command."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="pegboard",
        description="One board for every tool an agent may use.",
        epilog="verbs:\n" + "\n".join(f"  {verb:<8} {text}" for verb, text in VERBS.items()) + "\n\n" + _EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="pegboard [-h] [--version] VERB …",
    )
    parser.add_argument("--version", action="version", version=f"pegboard {__version__}")
    parser.add_argument("verb", choices=VERBS, metavar="VERB", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments[:1] or ["--help"])
    guard_last_resort()
    verb = import_module(f"pegboard.cli.{chosen.verb}")
    try:
        sys.exit(verb.main(arguments[1:]))
    except PegboardError as error:
        sys.stderr.write(printable_lines(f"pegboard {chosen.verb}: {error}") + "\n")
        sys.exit(USAGE)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(OK)
