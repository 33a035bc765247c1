"""`pegboard remove NAME`: remove a server from a configuration."""

from __future__ import annotations

from pegboard.cli.arguments.config_argument import open_config
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.file_change import write_change, write_change_as_json
from pegboard.config.editing.edits import Edit


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard remove",
        description="Remove a server from a configuration. The rest of the file stays as it is.",
        examples=("pegboard remove memory --from gateway.toml",),
    )
    parser.add_argument("name", metavar="NAME", help="the name of the server")
    parser.add_argument(
        "--from", dest="config", metavar="CONFIG", help="the configuration; default: the one of `pegboard up`"
    )
    parser.add_argument("--toolbox", metavar="NAME", help="the toolbox, if several have a server of that name")
    parser.add_argument("--json", action="store_true", help="print the file, the action and its servers as JSON")
    chosen = parser.parse_args(argv)
    config = open_config(chosen.config)
    place = config.find(chosen.name, chosen.toolbox)
    edit = Edit(place)
    if place[0] == "toolboxes" and len(config.servers(place[:-1])) == 1:
        # A toolbox without servers is not valid, so it goes with its last one.
        edit = Edit(("toolboxes",), {}) if len(config.servers(("toolboxes",))) == 1 else Edit(place[:2])
    text = config.change([edit])
    if chosen.json:
        write_change_as_json(config.file, text, "remove", [chosen.name])
    else:
        write_change(config.file, text)
    return 0
