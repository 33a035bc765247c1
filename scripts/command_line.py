"""Writes docs/command-line.md from the parsers of the verbs.

`.venv/bin/python scripts/command_line.py`
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from pegboard.cli.completion.verb_usage import parser_of
from pegboard.cli.verbs import GROUPS, TITLES
from pegboard.server.serving_options import OPTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "command-line.md"
SERVING = {option.flag for option in OPTIONS.values() if option.name != "transport"} | {"--http", "--stdio"}

HEAD = """\
# Command line

Every verb of `pegboard`, as `pegboard VERB --help` describes it. `scripts/command_line.py` writes this page.

- **stdout** has the result, stderr everything else. `--json` prints the result as JSON; the verbs that serve have `--log-format json` instead. Without `--json`, those that edit a file show a diff.
- **Exit codes**: 0 ok, 1 a tool returned an error or a check found something, 2 wrong usage or set-up, 3 cannot connect, 130 interrupted with Ctrl+C. Each verb says what they mean for it.
- **Completion** of verbs, flags, their values and files: `eval "$(pegboard completion bash)"`, also for zsh and fish.
- **Colour** is not used, so there is nothing that `NO_COLOR` would have to turn off; progress is drawn on a terminal alone, and tables fit its width.
- **Systems**: Linux and macOS. On Windows, everything works that does not fork processes or bind Unix sockets: `dev`, `--reload`, `--workers` and `--uds`
  say so and stop, and [confinement](confinement.md) is for Linux alone. `pegboard doctor` says what a machine has.
"""


def main() -> None:
    PAGE.write_text(render())


def render() -> str:
    parts = [HEAD]
    for folder, verbs in GROUPS.items():
        parts.append(f"## {TITLES[folder].capitalize()}\n")
        parts += ["\n".join(section(verb, text)) for verb, text in verbs.items()]
    return "\n".join(parts)


def section(verb: str, text: str) -> Iterator[str]:
    parser = parser_of(verb)
    yield f"### {verb}"
    yield " ".join((parser.description or text).split())
    yield ""
    paragraph, examples, codes = "", "", ""
    for part in (parser.epilog or "").split("\n\n"):
        if part.startswith("example"):
            examples = "\n".join(f"$ {line.strip()}" for line in part.splitlines()[1:])
        elif part.startswith("exit codes"):
            codes = " ".join(part.split())
        else:
            paragraph = " ".join(part.split())
    yield f"```console\n{examples}\n```"
    if paragraph:
        yield f"{paragraph}\n"
    shared = SERVING if verb in GROUPS["serving"] else set()
    rows = list(flags(parser, shared))
    if rows:
        yield from ("| argument | meaning |", "|---|---|", *rows, "")
    if shared:
        own = {name for action in parser._actions for name in action.option_strings}
        missing = " and ".join(f"`{name}`" for name in sorted(shared - own))
        but = f" except {missing}" if missing else ""
        yield f"It also takes the [flags for serving](serving.md#command-line){but}.\n"
    yield f"{codes[:1].upper()}{codes[1:]}.\n"


def flags(parser: argparse.ArgumentParser, shared: set[str], action_name: str = "") -> Iterator[str]:
    """The rows of a parser's arguments, without the flags that verbs share."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for pseudo in action._choices_actions:
                yield f"| `{pseudo.dest}` | {pseudo.help} |"
                yield from flags(action.choices[pseudo.dest], shared, pseudo.dest)
        elif not shared & set(action.option_strings) and action.dest != "help":
            value = f" {action.metavar or action.dest.upper()}" if action.option_strings and action.nargs != 0 else ""
            if action.choices and not action.metavar:
                value = f" {'|'.join(map(str, action.choices))}" if action.option_strings else ""
            name = ", ".join(action.option_strings) or action.metavar or action.dest
            shown = f"{action_name} {name}{value}".strip().replace("|", "\\|")
            yield f"| `{shown}` | {(action.help or '').replace('%%', '%').replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    main()
