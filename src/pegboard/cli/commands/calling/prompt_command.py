"""`pegboard prompt TARGET NAME key=value …`: print the messages of a prompt."""

from __future__ import annotations

from pegboard.call import Json
from pegboard.cli.arguments.target_argument import OK, TargetArgument, read_target, run
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.commands.calling.call_command import print_content
from pegboard.cli.terminal.output import show, show_json
from pegboard.errors import SetupError
from pegboard.logs.printable import printable
from pegboard.protocol.json_values import objects_in
from pegboard.tools.naming import suggest


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard prompt",
        description="Get a prompt and print its messages.",
        examples=("pegboard prompt examples/notes.py review code='x = 1'",),
        codes="0 ok, 2 wrong usage or set-up, 3 cannot connect",
    )
    arguments = {
        "prompt": {"metavar": "NAME"},
        "arguments": {"metavar": "KEY=VALUE", "nargs": "*", "help": "arguments, all of them text"},
    }
    return run("prompt", _prompt(read_target(parser, argv, arguments)))


async def _prompt(pointed: TargetArgument) -> int:
    name: str = pointed.chosen.prompt
    arguments = dict(_pair(word) for word in pointed.chosen.arguments)
    async with pointed.client() as client:
        names = [str(prompt.get("name")) for prompt in await client.list_prompts()]
        if name not in names:
            near = suggest(name, names)
            hint = f", did you mean {near[0]}?" if near else f"; it has {', '.join(names[:12]) or 'none'}"
            raise SetupError(printable(f"{pointed.name} has no prompt {name!r}{hint}"))
        messages = await client.prompt(name, arguments)
    if pointed.chosen.json:
        show_json(messages)
        return OK
    for message in messages:
        show(f"{message.get('role')}:")
        content: Json = message.get("content")
        print_content(objects_in(content if isinstance(content, list) else [content]))
    return OK


def _pair(word: str) -> tuple[str, str]:
    key, equals, text = word.partition("=")
    if not equals:
        raise SetupError(f"{word!r} is not KEY=VALUE; write {word}=…")
    return key, text
