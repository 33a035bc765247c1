"""`pegboard call TARGET TOOL key=value …`: call a tool and print its result."""

from __future__ import annotations

import mimetypes
import re
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from pegboard.call import Json
from pegboard.cli.arguments.target_argument import OK, TOOL_ERROR, TargetArgument, read_target, report_missing, run
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.terminal.output import note, show, show_json, show_text
from pegboard.cli.terminal.progress_bar import ProgressBar
from pegboard.errors import InvalidParams, SetupError
from pegboard.logs.printable import printable
from pegboard.protocol.content import is_note
from pegboard.protocol.json_values import as_object
from pegboard.tools.naming import suggest
from pegboard.tools.tool_result import PARSE_WARNINGS

_FAILED: Final = re.compile(r".{1,200} failed, error id [0-9a-f]{8}")


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard call",
        description="Call a tool and print its result on stdout; repairs and the duration are printed on stderr.",
        examples=(
            "pegboard call examples/hello.py add a=2 b=3",
            'pegboard call http://127.0.0.1:7332/mcp add \'{"a": 2, "b": "3"}\'',
            "pegboard call add a=2 b=3 -- python server.py",
        ),
        codes="0 ok, 1 the tool returned an error, 2 wrong usage or set-up, 3 cannot connect",
        epilog="A board in a file is called in this process, by an anonymous caller: its auth does not apply, its rules do.",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="save images, audio and files of the result here; several are numbered"
    )
    arguments = {
        "tool": {"metavar": "TOOL"},
        "arguments": {"metavar": "KEY=VALUE", "nargs": "*", "help": "arguments, or one JSON object with all of them"},
    }
    return run("call", _call(read_target(parser, argv, arguments)))


async def _call(pointed: TargetArgument) -> int:
    name: str = pointed.chosen.tool
    async with pointed.client() as client:
        tools = {str(tool.get("name")): tool for tool in await client.list_tools()}
        schema = tools[name].get("inputSchema") if name in tools else None
        arguments = read_arguments(pointed.chosen.arguments, schema)
        began, progress = time.perf_counter(), ProgressBar()
        try:
            result = await client.call(name, arguments, progress=progress)
        except InvalidParams as refusal:
            # Tools may be unlisted: let the server decide.
            if name in tools:
                raise
            await report_missing(client)
            raise SetupError(_explain(pointed.name, name, refusal.message, tools)) from None
        finally:
            progress.clear()
        elapsed = (time.perf_counter() - began) * 1000
    if pointed.chosen.json:
        show_json(result)
    else:
        print_content(result.content)
    if pointed.chosen.output:
        save_content(result.content, Path(pointed.chosen.output))
    elif not pointed.chosen.json and any(data_of(block) is not None for block in result.content):
        note("save content that is not text with --output FILE")
    for repair in result.meta.get(PARSE_WARNINGS, []):
        note(f"repaired  {repair['message']}")
    if result.is_error and _FAILED.fullmatch(result.text):
        note("the log of the server has the reason; a board that is served with --debug shows it here")
    note(f"{elapsed:.1f} ms")
    return TOOL_ERROR if result.is_error else OK


def _explain(target: str, name: str, message: str, tools: Collection[str]) -> str:
    """The server's message for an unknown name, with a suggestion if it has none."""
    hint = ""
    if name in message and "did you mean" not in message.lower():
        near = suggest(name, tools)
        hint = f", did you mean {near[0]}?" if near else f"; it has {', '.join(list(tools)[:12]) or 'none'}"
    return printable(f"{target}: {message}{hint}")


def read_arguments(words: list[str], schema: object) -> Mapping[str, object]:
    """`key=value` pairs, where a value is JSON if it parses and the tool does not want text; or one JSON object."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            whole = msgspec.json.decode(words[0])
        except msgspec.DecodeError as error:
            raise SetupError(f"The arguments are not valid JSON: {error}") from None
        return dict(whole)
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    arguments: dict[str, object] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            pair = f"{next(iter(properties))}={word}" if properties and word not in properties else f"{word}=…"
            raise SetupError(f"{word!r} is not KEY=VALUE; write {pair} or pass all arguments as one JSON object")
        arguments[key] = text if properties.get(key, {}).get("type") == "string" else _value(text)
    return arguments


def _value(text: str) -> object:
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return value


def print_content(content: Sequence[Mapping[str, Json]]) -> None:
    """Text as it is, any other content by its type."""
    for block in content:
        if is_note(block):
            continue  # `_meta` has the same, and goes to stderr
        if block.get("type") == "text":
            show_text(str(block.get("text", "")))
        else:
            show(f"[{block.get('type')} {block.get('mimeType') or block.get('uri') or ''}]".replace(" ]", "]"))


def data_of(block: Mapping[str, Json]) -> bytes | None:
    """The bytes of an image, of audio or of a file; None for other content, and for notes to the model."""
    if is_note(block):
        return None
    inside = as_object(block.get("resource"))
    data, text = block.get("data", inside.get("blob")), inside.get("text")
    if isinstance(data, str):
        try:
            return b64decode(data, validate=True)
        except NotBase64:
            return None
    return text.encode() if isinstance(text, str) else None


def save_content(content: Sequence[Mapping[str, Json]], path: Path) -> None:
    """Write what is not text to a file; several to numbered files, into a folder under names of their type."""
    found = [(block, data) for block in content if (data := data_of(block)) is not None]
    if not found:
        note(f"nothing to save in {path}: the result has no image, audio or file")
    for number, (block, data) in enumerate(found, 1):
        target = path
        if path.is_dir():
            kind = block.get("mimeType") or as_object(block.get("resource")).get("mimeType")
            target = path / f"content-{number}{mimetypes.guess_extension(str(kind)) or '.bin'}"
        elif len(found) > 1:
            target = path.with_name(f"{path.stem}-{number}{path.suffix}")
        try:
            target.write_bytes(data)
        except OSError as problem:
            raise SetupError(f"--output {target} cannot be written: {problem.strerror}") from None
        note(f"saved {target}  ({len(data)} bytes)")
