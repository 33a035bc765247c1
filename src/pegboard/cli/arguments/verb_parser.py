"""The parser of a verb: its help ends with examples and exit codes."""

from __future__ import annotations

import argparse
import difflib
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

CODES: Final = "0 ok, 2 wrong usage or set-up"

_WIDEST: Final = 120
_SIMILAR: Final = 0.75
# What other tools call a flag, and those that do it here.
_OTHER_NAMES: Final = {"transport": ("http", "stdio")}


class SuggestingParser(argparse.ArgumentParser):
    """An ArgumentParser that suggests the closest choice or flag, and reports a mistake without all flags of the verb.

    A flag has to be written in full: an abbreviation would change its meaning when a release adds a flag.
    """

    def __init__(self, prog: str | None = None, **options: Any) -> None:
        super().__init__(prog, allow_abbrev=False, **options)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        near = difflib.get_close_matches(str(value), map(str, action.choices or ()), 1)
        if near and value not in (action.choices or ()):
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}, did you mean {near[0]!r}?")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].split()
        for word in unknown:
            # Without the dashes, which would make any two short flags similar.
            names = {flag.lstrip("-"): flag for flag in _flags(self)}
            given = word.partition("=")[0].lstrip("-")
            near = [name for name in _OTHER_NAMES.get(given, ()) if name in names]
            near = near or [name for name in names if len(given) > 1 and name.startswith(given)][:1]
            near = near or difflib.get_close_matches(given, names, 1, _SIMILAR)
            if word.startswith("--") and near:
                message += f", did you mean {' or '.join(repr(names[name]) for name in near)}?"
                break
        self.exit(2, f"{self.prog}: {message}\nRun `{self.prog} --help` for its arguments.\n")


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The flags of a parser and of its actions."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _flags(one)


class VerbParser(SuggestingParser):
    """A parser whose help shows `examples`, one on each line, and what the exit codes mean.

    `epilog` is a paragraph before the examples.
    """

    def __init__(
        self,
        prog: str | None = None,
        *,
        description: str | None = None,
        examples: Sequence[str] = (),
        codes: str = CODES,
        epilog: str | None = None,
        **options: Any,
    ) -> None:
        width = min(shutil.get_terminal_size().columns, _WIDEST) - 2
        parts = [textwrap.fill(epilog, width)] if epilog else []
        if examples:
            parts.append("\n  ".join(["examples:" if len(examples) > 1 else "example:", *examples]))
            parts.append(textwrap.fill(f"exit codes: {codes}", width))
        # Keeps the lines of the examples.
        options["formatter_class"] = argparse.RawDescriptionHelpFormatter
        about = textwrap.fill(description, width) if description else None
        super().__init__(prog, description=about, epilog="\n\n".join(parts), **options)
