"""Finds the verb and runs it; a verb's module loads on demand."""

from __future__ import annotations

import argparse
import gc
import sys
from importlib import import_module
from typing import NoReturn

from pegboard import __version__
from pegboard.cli.arguments.verb_parser import SuggestingParser
from pegboard.cli.verbs import OTHER_NAMES, VERBS, module_of, render_verbs
from pegboard.errors import PegboardError
from pegboard.logs.log_lines import guard_last_resort, report_setup_error

OK, TOOL_ERROR, USAGE, CANNOT_CONNECT = 0, 1, 2, 3

_EPILOG = """\
exit codes: 0 ok, 1 a tool returned an error, 2 wrong usage or set-up, 3 cannot connect
Run `pegboard VERB --help` for the options of a verb."""


def main(argv: list[str] | None = None) -> NoReturn:
    """The `pegboard` command."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = SuggestingParser(
        prog="pegboard",
        description="MCP servers in Python: serve tools, call servers, and combine many servers behind one endpoint.",
        epilog=f"{render_verbs()}\n\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="pegboard [-h] [--version] VERB …",
    )
    parser.add_argument("--version", action="version", version=f"pegboard {__version__}")
    parser.add_argument("verb", choices=VERBS, metavar="VERB", help=argparse.SUPPRESS)
    if arguments and arguments[0] in OTHER_NAMES:
        report_setup_error(f"pegboard {arguments[0]}: use `{OTHER_NAMES[arguments[0]]}`")
        sys.exit(USAGE)
    chosen = parser.parse_args(arguments[:1] or ["--help"])
    guard_last_resort()
    # Modules are not garbage: a tenth of the start would go into searching them, again and again.
    gc.disable()
    verb = import_module(module_of(chosen.verb))
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
