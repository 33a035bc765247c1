"""`pegboard read TARGET URI`: print a resource."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Mapping

from pegboard.call import Json
from pegboard.cli.arguments.target_argument import OK, TargetArgument, read_target, run
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.terminal.output import note, show, show_json, show_text


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard read",
        description="Print a resource: text and bytes unchanged; on a terminal, control characters are escaped.",
        examples=("pegboard read http://127.0.0.1:7332/mcp notes://today",),
        codes="0 ok, 2 wrong usage or set-up, 3 cannot connect",
    )
    return run("read", _read(read_target(parser, argv, {"uri": {"metavar": "URI"}})))


async def _read(pointed: TargetArgument) -> int:
    async with pointed.client() as client:
        contents = await client.read(pointed.chosen.uri)
    if pointed.chosen.json:
        show_json(contents)
        return OK
    for part in contents:
        _print(part)
    return OK


def _print(part: Mapping[str, Json]) -> None:
    if "blob" not in part:
        show_text(str(part.get("text", "")))
        return
    data = _decode(part["blob"])
    if data is None:
        note(f"pegboard read: {part.get('uri')} is not valid Base64")
        return
    if sys.stdout.isatty():
        show(f"[{part.get('mimeType') or 'bytes'}, {len(data)} bytes: redirect stdout to a file to save them]")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _decode(blob: Json) -> bytes | None:
    try:
        return base64.b64decode(blob, validate=True) if isinstance(blob, str) else None
    except (binascii.Error, ValueError):
        return None
