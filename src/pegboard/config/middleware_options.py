"""Reads the options that a configuration gives a middleware, by the annotations of its constructor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from msgspec import UNSET

from pegboard import middleware
from pegboard.call import Json
from pegboard.config.annotated_types import kind_of, parameters_of
from pegboard.config.mistakes import ConfigReport, UnresolvedText, did_you_mean
from pegboard.config.source_file import KeyPath
from pegboard.config.value_types import AnyValue

MIDDLEWARE: Final = (
    "Audit", "Cache", "ConcurrencyLimit", "ErrorMessages", "HelperProcess", "History", "Logging", "Metrics", "RateLimit",
    "Retry", "Suggestions", "Timeout", "Timing", "TokenBudget", "TokenCount", "Tracing",
)  # fmt: skip
"""The built-in middleware that a configuration can name."""


def check_middleware_entries(
    values: Mapping[str, Any], place: KeyPath, notes: ConfigReport, locate: Callable[[str], Path]
) -> None:
    """Check the middleware of a file, toolbox or server, and read the options of built-in ones in place.

    `locate` resolves a path of the file.
    """
    for position, found in enumerate(values.get("middleware", ())):
        use, where = found.get("use"), (*place, "middleware", position)
        if use in MIDDLEWARE:
            made_by = getattr(middleware, use)
            options = read_options(made_by, found.get("options", {}), where, notes)
            paths = {name for name, (hint, _) in parameters_of(made_by)[0].items() if Path in get_args(hint)}
            found["options"] = {
                name: str(locate(value)) if name in paths and isinstance(value, str) else value
                for name, value in options.items()
            }
        elif use is not None:
            module, colon, name = use.partition(":")
            if not colon:
                notes.add_mistake(where, f"unknown middleware {use!r}", fix=did_you_mean(use, MIDDLEWARE))
            elif not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
                notes.add_mistake(where, got=use, expected="a class as package.module:Name")


def read_options(made_by: Any, options: Mapping[str, Json], place: KeyPath, notes: ConfigReport) -> Mapping[str, Any]:
    """The arguments for the constructor of a middleware; what does not fit is reported and left out."""
    use = made_by.__name__
    parameters, takes_any = parameters_of(made_by)
    kinds = {name: kind_of(hint) for name, (hint, _) in parameters.items()}
    known = [name for name, kind in kinds.items() if kind is not None]
    values: dict[str, Any] = {}
    for name, value in options.items():
        where = (*place, "options", name)
        kind = kinds.get(name, AnyValue() if takes_any else None)
        if isinstance(value, UnresolvedText):
            continue
        if kind is not None:
            read = kind.read(value, where, notes)
            if read is not UNSET:
                values[name] = read
        elif name in parameters:
            problem = f"the option {name!r} of {use} is a Python object, which a file cannot contain"
            notes.add_mistake(where, problem, fix="remove it, or name a class of your own as module:Name")
        else:
            fix = did_you_mean(name, known) if known else "remove it"
            notes.add_mistake(where, f"{use} has no option {name!r}", fix=fix)
    for name, (_, is_required) in parameters.items():
        if is_required and name not in options:
            notes.add_mistake(place, f"{use} needs the option {name!r}", fix="add it to 'options'")
    return values
