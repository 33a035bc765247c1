"""A change to a configuration file: shown as a diff, and written with a backup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pegboard.call import Json
from pegboard.cli.terminal.output import note, show_json, show_text
from pegboard.config.editing.edits import parse_text
from pegboard.config.editing.text_file import TextFile
from pegboard.config.foreign.known_clients import REFERENCE
from pegboard.config.mistakes import MIN_SECRET_LENGTH, redact
from pegboard.logs.printable import printable_lines
from pegboard.middleware.observability.masking import MASK, is_secret, mask_text, secret_arguments

# Without its end, it is the rest of the line: every other quotation mark would be tried as its beginning.
_LITERAL: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?')
_PRIVATE: Final = frozenset({"env", "environment", "headers", "http_headers"})


def write_change(file: TextFile, text: str) -> bool:
    """Print the diff and write the file; False if nothing changes."""
    if text == file.text and file.data is not None:
        note(f"{file.path} is up to date, nothing to write")
        return False
    show_diff(file, text)
    backup = file.write(text)
    note(f"wrote {file.path}" + ("" if backup is None else f"; the old file is {backup}"))
    return True


def write_change_as_json(file: TextFile, text: str, action: str, servers: Sequence[str]) -> None:
    """Write the file if something changes, and print as JSON which servers an action changed."""
    changes = text != file.text or file.data is None
    backup = file.write(text) if changes else None
    show_change_as_json(file, action, servers, written=changes, backup=backup)


def show_change_as_json(
    file: TextFile, action: str, servers: Sequence[str], *, written: bool, backup: Path | None = None
) -> None:
    """Print as JSON which servers an action changes, and whether the file was written."""
    shown = {"file": str(file.path), "action": action, "servers": servers, "written": written}
    show_json(shown | ({"backup": str(backup)} if backup is not None else {}))


def show_diff(file: TextFile, text: str) -> None:
    """Print the diff without secrets, those of other entries included."""
    old = {line.rstrip(",") for line in file.text.splitlines()}
    secrets = {secret for one in (file.text, text) for secret in _secrets(parse_text(one, file.path))}
    for line in file.diff(text):
        is_new = line.startswith("+") and line[1:].rstrip(",") not in old
        masked = _LITERAL.sub(lambda found: _mask_literal(found[0], secrets), line)
        show_text(printable_lines(redact(masked if is_new else mask_text(masked), secrets)))


def _mask_literal(literal: str, secrets: set[str]) -> str:
    """A text in double quotes without its secrets, which it may spell with escapes."""
    try:
        value = json.loads(literal, strict=False)
    except ValueError:
        # An escape that only TOML has.
        return f'"{MASK}"' if "\\" in literal else literal
    shown = redact(value if REFERENCE.search(value) else mask_text(value), secrets)
    return literal if shown == value else json.dumps(shown, ensure_ascii=False)


def _secrets(value: Json, key: str = "", *, all_of: bool = False) -> Iterator[str]:
    """The texts of a file that may be secrets."""
    match value:
        case dict():
            for name, item in value.items():
                yield from _secrets(item, name, all_of=key in _PRIVATE)
        case list():
            words = [item for item in value if isinstance(item, str)]
            yield from (secret for _, secret in secret_arguments(words) if len(secret) >= MIN_SECRET_LENGTH)
            for item in value:
                yield from _secrets(item)
        case str() if (all_of or is_secret(key)) and len(value) >= MIN_SECRET_LENGTH and not REFERENCE.search(value):
            yield value
            # A text of several lines is shown line by line.
            yield from (line for line in value.splitlines() if len(line) >= MIN_SECRET_LENGTH)
