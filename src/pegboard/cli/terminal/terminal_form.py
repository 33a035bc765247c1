"""Asks the questions of a server on the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from pegboard.asking.questions import Accepted, Declined
from pegboard.call import Json
from pegboard.cli.terminal.output import ask_for, note
from pegboard.client.client_channel import Elicitation
from pegboard.protocol.json_values import as_object, objects_in, texts_in

_YES: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_LINE: Final = 65_536


def on_terminal() -> bool:
    """Whether a person can be asked: stdin and stderr are terminals, and the loop can wait for stdin."""
    return sys.platform != "win32" and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def fill_in(asked: Elicitation) -> Accepted[Any] | Declined:
    """Show a question and read its answer; the end of input declines."""
    note(asked.message)
    if asked.url is not None:
        note(f"  open {asked.url}")
        done = await _read("  Press Enter when you are done, or type n to decline: ")
        return Declined() if done is None or _YES.get(done.lower()) is False else Accepted(None)
    required = texts_in(asked.schema.get("required"))
    content: dict[str, Json] = {}
    for name, part in as_object(asked.schema.get("properties")).items():
        try:
            value = await _ask_field(name, as_object(part), required=name in required)
        except EOFError:
            return Declined()
        if value is not None:
            content[name] = value
    return Accepted(content)


async def _ask_field(name: str, schema: Mapping[str, Json], *, required: bool) -> Json:
    """The value of one field; None if it is optional and left empty."""
    choices, default = _choices(schema), schema.get("default")
    about = str(schema.get("description") or schema.get("title") or "")
    hint = "/".join(choices) or ("y/n" if schema.get("type") == "boolean" else str(schema.get("type") or "text"))
    shown = hint if default is None else f"{hint}, default {default}"
    optional = "" if required or default is not None else ", optional"
    while True:
        line = await _read(f"  {name}{f' ({about})' if about else ''} [{shown}{optional}]: ")
        if line is None:
            raise EOFError
        if not line and (default is not None or not required):
            return default
        value = _parse(line, schema, choices) if line else None
        if value is not None:
            return value
        note(f"  {name}: enter {' or '.join(choices) or hint}")


def _parse(line: str, schema: Mapping[str, Json], choices: Mapping[str, Json]) -> Json:
    """The value that a line stands for; None if it does not fit."""
    kind = schema.get("type")
    if kind == "array":
        parts = [part.strip() for part in line.split(",") if part.strip()]
        return [choices[part] for part in parts] if all(part in choices for part in parts) else None
    if choices:
        return choices.get(line)
    if kind == "boolean":
        return _YES.get(line.lower())
    try:
        return int(line) if kind == "integer" else float(line) if kind == "number" else line
    except ValueError:
        return None


def _choices(schema: Mapping[str, Json]) -> dict[str, Json]:
    """What can be typed, and the value it stands for."""
    inner = as_object(schema.get("items")) if schema.get("type") == "array" else schema
    options = [option.get("const") for word in ("oneOf", "anyOf") for option in objects_in(inner.get(word))]
    listed = inner.get("enum")
    return {str(value): value for value in [*options, *(listed if isinstance(listed, list) else [])]}


async def _read(prompt: str) -> str | None:
    """A line from the terminal; None at the end of input. A thread that reads could not be ended by Ctrl+C."""
    ask_for(prompt)
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()

    def ready() -> None:
        if not line.done():
            line.set_result(os.read(0, _LINE))

    loop.add_reader(0, ready)
    try:
        data = await line
    finally:
        loop.remove_reader(0)
    return data.decode(errors="replace").strip() if data else None
