"""`pegboard call TARGET TOOL key=value …`: call a tool and print its result."""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Mapping, Sequence

import msgspec

from pegboard.call import Json
from pegboard.cli.output import note, show, show_json, show_text
from pegboard.cli.target_argument import OK, TOOL_ERROR, TargetArgument, read_target, report_missing, run
from pegboard.errors import InvalidParams, SetupError
from pegboard.logs.printable import printable
from pegboard.protocol.content import is_note
from pegboard.tools.naming import suggest
from pegboard.tools.tool_result import PARSE_WARNINGS


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="pegboard call",
        description="Call a tool and print its result on stdout; repairs and the duration are printed on stderr.",
        epilog="examples:\n"
        "  pegboard call examples/hello.py add a=2 b=3\n"
        '  pegboard call http://127.0.0.1:7332/mcp add \'{"a": 2, "b": "3"}\'\n'
        "  pegboard call add a=2 b=3 -- python server.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
        began = time.perf_counter()
        try:
            result = await client.call(name, arguments, progress=_print_progress)
        except InvalidParams as refusal:
            # Tools may be unlisted: let the server decide.
            if name in tools:
                raise
            await report_missing(client)
            raise SetupError(_explain(pointed.name, name, refusal.message, tools)) from None
        elapsed = (time.perf_counter() - began) * 1000
    if pointed.chosen.json:
        show_json(result)
    else:
        print_content(result.content)
    for repair in result.meta.get(PARSE_WARNINGS, []):
        note(f"repaired  {repair['message']}")
    note(f"{elapsed:.1f} ms")
    return TOOL_ERROR if result.is_error else OK


def _explain(target: str, name: str, told: str, tools: Collection[str]) -> str:
    """The server's message for an unknown name, with a suggestion if it has none."""
    hint = ""
    if name in told and "did you mean" not in told.lower():
        near = suggest(name, tools)
        hint = f", did you mean {near[0]}?" if near else f"; it has {', '.join(list(tools)[:12]) or 'none'}"
    return printable(f"{target}: {told}{hint}")


def _print_progress(done: float, total: float | None, message: str | None) -> None:
    far = f"{done:g}" if total is None else f"{done:g}/{total:g}"
    note(f"progress  {far}" + (f"  {message}" if message else ""))


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
            raise SetupError(f"{word!r} is not KEY=VALUE; write {word}=… or pass all arguments as one JSON object")
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
