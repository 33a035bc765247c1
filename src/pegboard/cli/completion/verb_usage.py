"""The parser of each verb, for completion scripts and the reference: taken at the moment when the verb would parse."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Final, NoReturn

from msgspec import Struct

from pegboard.cli.verbs import module_of

_FILES: Final = ("FILE", "PATH", "CONFIG", "TARGET", "TARGET[:BOARD]", "FOLDER")


class _ParserMade(Exception):
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


class Flag(Struct, frozen=True):
    """A flag of a verb: its spellings, its help, the values to choose from, and whether it takes a value at all."""

    names: Sequence[str]
    help: str
    choices: Sequence[str] = ()
    takes_value: bool = False


class VerbUsage(Struct, frozen=True):
    """What can be typed after a verb: flags, actions such as `add` of `keys`, and files."""

    flags: Sequence[Flag]
    actions: Mapping[str, str]
    choices: Sequence[str] = ()
    takes_files: bool = True


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb."""
    module = import_module(module_of(verb))
    with _parsing_ends():
        try:
            module.main([])
        except _ParserMade as made:
            return made.parser
    raise RuntimeError(f"pegboard {verb} does not parse its arguments")


@contextmanager
def _parsing_ends() -> Iterator[None]:
    def end(parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        raise _ParserMade(parser)

    before = argparse.ArgumentParser.parse_known_args
    argparse.ArgumentParser.parse_known_args = end  # type: ignore[method-assign, assignment]  # for one call
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_known_args = before  # type: ignore[method-assign]  # the original


def usage_of(verb: str) -> VerbUsage:
    """What can be typed after a verb."""
    parser = parser_of(verb)
    flags = {flag.names: flag for flag in _flags(parser)}
    actions: dict[str, str] = {}
    choices: list[str] = []
    takes_files = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            actions |= {pseudo.dest: pseudo.help or "" for pseudo in action._choices_actions}
            for inner in action.choices.values():
                flags |= {flag.names: flag for flag in _flags(inner)}
        elif not action.option_strings:
            choices += [str(choice) for choice in action.choices or () if choice]
            takes_files = takes_files or action.metavar in _FILES
    return VerbUsage(tuple(flags.values()), actions, choices, takes_files)


def _flags(parser: argparse.ArgumentParser) -> Iterator[Flag]:
    for action in parser._actions:
        if action.option_strings:
            text = (action.help or "").replace("%%", "%")
            choices = tuple(str(choice) for choice in action.choices or () if choice)
            yield Flag(tuple(action.option_strings), text, choices, action.nargs != 0)
