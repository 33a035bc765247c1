"""The flags of the serving verbs, derived from the table of serving options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection
from typing import Any, Unpack, cast

from pegboard.server.serving_options import COMMON, GROUPS, OPTIONS, ServingOption, ServingOptions, resolve_options


def add_flags(parser: argparse.ArgumentParser, *, store: str = "memory", without: Collection[str] = ()) -> None:
    """Add a flag for each option; `store` describes the verb's default store, `without` is what the verb cannot do."""
    transport = parser.add_mutually_exclusive_group()
    for name, text in (("http", "serve HTTP"), ("stdio", "serve stdin and stdout")):
        if name not in without:
            transport.add_argument(
                f"--{name}", action="store_const", dest="transport", const=name, default=argparse.SUPPRESS, help=text
            )
    # Those without a group stay on the first screen.
    groups: dict[str, argparse._ActionsContainer] = {
        COMMON: parser,
        **{title: parser.add_argument_group(title) for title in GROUPS},
    }
    for option in OPTIONS.values():
        if option.name not in ("transport", *without):
            default = store if option.name == "store" else option.help.default
            groups[option.help.group].add_argument(
                option.flag, dest=option.name, default=argparse.SUPPRESS, **_details(option, default)
            )


def _details(option: ServingOption, default: object) -> dict[str, Any]:
    text = option.help.text
    if option.kind == "switch":
        return (
            {"action": "store_false", "help": f"do not {text}"} if default else {"action": "store_true", "help": text}
        )
    details = {"help": f"{text} ({default})" if default else text, "metavar": option.help.placeholder}
    match option.kind:
        case "choice":
            return {**details, "choices": option.choices}
        case "number":
            return {**details, "type": int}
        case "seconds":
            return {**details, "type": float}
        case "list":
            return {**details, "action": "append"}
    return details


def read_options(chosen: argparse.Namespace, **defaults: Unpack[ServingOptions]) -> ServingOptions:
    """The options that the flags and the environment set."""
    given = {name: value for name, value in vars(chosen).items() if name in OPTIONS}
    return resolve_options(cast(ServingOptions, given), os.environ, **defaults)
