"""`pegboard dev [TARGET]`: serve a board or a configuration while it is written, and load it again after each edit."""

from __future__ import annotations

from pegboard.cli.arguments.console_flags import add_console_flags
from pegboard.cli.arguments.serving_flags import add_flags, read_options
from pegboard.cli.arguments.target_argument import find_target
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.commands.serving.run_command import serve_reloading
from pegboard.cli.commands.serving.up_command import serve_gateway
from pegboard.gateway.gateway import Gateway
from pegboard.logs.log_lines import set_up_logging
from pegboard.server.debugging import may_debug


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard dev",
        usage="pegboard dev [options] [TARGET]",
        description="Serve a board over HTTP, with its console, and load it again when one of its files is edited. Callers "
        "on this machine see the tracebacks of tools that fail. With a configuration, serve it as `pegboard up --reload` does.",
        examples=("pegboard new shop && cd shop && pegboard dev", "pegboard dev tools.py --open"),
        epilog="A file with a mistake is reported with its line, and the version before it is served until it is fixed. Calls that run when a file is edited finish in the version that they began in.",
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        help="a board as for `pegboard run`, or a configuration; default: what this folder has",
    )
    # Each version runs in one new process, which takes over the address of the one before.
    add_flags(parser, without=("stdio", "workers"))
    add_console_flags(parser)
    chosen = parser.parse_args(argv)
    target = chosen.target or find_target()
    if target.endswith((".json", ".toml")):
        options = read_options(chosen, transport="http", store="")
        set_up_logging(options["log_level"], options["log_format"])
        serve_gateway(Gateway(target, watch=True), target, chosen, options, restart=True)
        return 0
    options = read_options(chosen, transport="http")
    set_up_logging(options["log_level"], options["log_format"])
    options["debug"] = options["debug"] or may_debug(options)
    serve_reloading(target, chosen, options)
    return 0
