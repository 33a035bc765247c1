"""`pegboard completion bash|zsh|fish`: print the completion script of a shell."""

from __future__ import annotations

from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.completion.completion_scripts import SHELLS, completion_script
from pegboard.cli.terminal.output import show_json, show_text


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard completion",
        description="Print the script that lets a shell complete verbs, flags, their values and files.",
        examples=(
            'eval "$(pegboard completion bash)"          # in ~/.bashrc',
            "source <(pegboard completion zsh)           # in ~/.zshrc, after compinit",
            "pegboard completion fish | source           # in ~/.config/fish/config.fish",
        ),
    )
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=", ".join(SHELLS))
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(argv)
    script = completion_script(chosen.shell)
    if chosen.json:
        show_json({"shell": chosen.shell, "script": script})
    else:
        show_text(script.rstrip("\n"))
    return 0
