"""The table of verbs: what each does, and the module that has it."""

from __future__ import annotations

from typing import Final

GROUPS: Final = {
    "serving": {
        "demo": "serve a gateway with three sample servers",
        "dev": "serve a board while you write it: reloads on save",
        "run": "serve a board, over HTTP or stdio",
        "up": "serve many servers as one, from a configuration file",
    },
    "calling": {
        "list": "list the tools of a file or a server",
        "call": "call a tool of a file or a server",
        "read": "read a resource",
        "prompt": "print the messages of a prompt",
        "inspect": "show a server's name, revision and everything it offers",
        "bench": "call a tool many times, and measure",
    },
    "setup": {
        "new": "make a project with a board, a test and a configuration",
        "check": "report all mistakes of configurations and boards",
        "doctor": "check what this machine has for Pegboard",
        "completion": "print the completion script of a shell",
        "lint": "check rules; show what a caller may see and use",
    },
    "clients": {
        "connect": "print or write the entry of a server for a client: Claude, Cursor, VS Code, Codex, …",
        "discover": "list the servers in the files of all clients on this machine",
        "import": "put the servers of clients' files into one configuration",
        "add": "add a server to a configuration",
        "remove": "remove a server from a configuration",
        "export": "write tools for a model's API, or a server for a registry or as a bundle",
    },
    "operating": {
        "status": "show the state of a running server",
        "keys": "add, list and revoke the API keys of a server",
        "approvals": "list calls that wait for an approval, and decide them",
        "login": "log in to a server of a configuration",
        "connections": "list and remove the connections of users to servers",
        "lock": "pin tool definitions; review and accept changes",
        "audit": "check an audit log, and search it",
        "history": "search the latest calls of a server",
    },
}
"""The verbs by the folder of `cli/commands/` that has their modules."""

TITLES: Final = {
    "serving": "serve",
    "calling": "use a server",
    "setup": "make and check",
    "clients": "connect clients",
    "operating": "operate",
}

OTHER_NAMES: Final = {
    "serve": "pegboard run",
    "start": "pegboard run",
    "init": "pegboard new",
    "install": "pegboard connect",
    "inspector": "pegboard inspect` or, in a browser, `pegboard dev --open",
}
"""What other tools call a verb, and the command that does it here."""

VERBS: Final = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}


def module_of(verb: str) -> str:
    """The name of the module of a verb."""
    folder = next(folder for folder, verbs in GROUPS.items() if verb in verbs)
    return f"pegboard.cli.commands.{folder}.{verb}_command"


def render_verbs() -> str:
    """The verbs for `pegboard --help`, each group with its title."""
    width = max(map(len, VERBS))
    return "\n\n".join(
        f"{TITLES[folder]}:\n" + "\n".join(f"  {verb:<{width}} {text}" for verb, text in verbs.items())
        for folder, verbs in GROUPS.items()
    )
