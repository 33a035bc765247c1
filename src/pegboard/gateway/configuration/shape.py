"""The keys of our own configuration, and what each of them may hold: read by the reader, and by editors as a JSON Schema."""

from __future__ import annotations

from typing import Final

from pegboard.call import Json
from pegboard.gateway.configuration.kinds import (
    Anything,
    Choice,
    Field,
    Fields,
    Flag,
    ListOf,
    MapOf,
    Number,
    Text,
    Whole,
    Words,
)
from pegboard.gateway.names import SMALLEST_BUDGET
from pegboard.protocol.versions import REVISIONS
from pegboard.tools.naming import LONGEST


def _one_of(*words: str) -> Choice:
    return Choice({word: word for word in words})


_TEXT: Final = Text()
_TEXTS: Final = ListOf(_TEXT)
_SECONDS: Final = Number()
_OBJECT: Final = MapOf(Anything())
_MODE: Final = _one_of("all", "dynamic", "proxy", "auto")
_STRICTNESS: Final = _one_of("lenient", "strict")
_TRANSPORT: Final = Choice(
    {
        "stdio": "stdio",
        "local": "stdio",
        "http": "http",
        "streamable-http": "http",
        "streamableHttp": "http",
        "streamable_http": "http",
        "sse": "sse",
        "websocket": "websocket",
        "ws": "websocket",
    }
)

_MIDDLEWARE: Final = ListOf(
    Fields(
        "a middleware",
        {
            "use": Field("use", _TEXT, "a class of pegboard.middleware, or any other as module:Name"),
            "order": Field("order", Number("a number", None), "lower ones are outside of higher ones"),
            "options": Field("options", _OBJECT, "what it is made with"),
        },
        required={"use": "a middleware has no 'use'"},
        short="use",
    ),
    expected="a list of middleware",
)

_ARGUMENT: Final = Fields(
    "an argument",
    {
        "name": Field("name", _TEXT, "the name it is shown under"),
        "description": Field("description", _TEXT, "what is said of it instead of the server's own words"),
        "hidden": Field("hidden", Flag(), "not shown to callers"),
        "value": Field("value", Anything(), "hidden from callers and always sent"),
        "default": Field("default", Anything(), "sent where a caller leaves it out"),
    },
)

_TOOL: Final = Fields(
    "a tool",
    {
        "name": Field("name", _TEXT, "the name it is shown under"),
        "title": Field("title", _TEXT, "the title it is shown under"),
        "description": Field("description", _TEXT, "what is said of it instead of the server's own words"),
        "enabled": Field("enabled", Flag(), "false: not shown, cannot be called"),
        "inputSchema": Field(
            "input_schema", _OBJECT, "the schema its arguments are checked against, instead of its own"
        ),
        "annotations": Field("annotations", _OBJECT, "hints such as readOnlyHint, put over the server's own"),
        "tags": Field("tags", _TEXTS, "put to those of the server"),
        "category": Field("category", _TEXT, "what middleware and budgets know it by"),
        "timeout": Field("timeout", _SECONDS, "seconds without news, instead of the server's"),
        "arguments": Field("arguments", MapOf(_ARGUMENT), "its arguments, by the server's names for them"),
    },
)

_AUTH: Final = Fields(
    "auth",
    {
        "kind": Field(
            "kind",
            Choice(
                {
                    "oauth": "oauth",
                    "client_credentials": "client_credentials",
                    "clientCredentials": "client_credentials",
                    "none": "none",
                }
            ),
            "oauth: a person logs in; client_credentials: the gateway speaks for itself; none: never log in",
        ),
        "clientId": Field("client_id", _TEXT, "where the gateway is registered with the authorization server"),
        "clientSecret": Field("client_secret", _TEXT, "its secret, as ${VARIABLE}"),
        "privateKey": Field("private_key", _TEXT, "a PEM, or the file with one"),
        "clientMetadataUrl": Field("client_metadata_url", _TEXT, "the document that describes the gateway as a client"),
        "issuer": Field("issuer", _TEXT, "the only authorization server that the credentials are for"),
        "scopes": Field("scopes", _TEXTS, "asked for besides what the server asks for"),
        "redirectPort": Field("redirect_port", Whole(1, 65535), "the loopback port that a browser comes back to"),
    },
    short="kind",
)

SERVER: Final = Fields(
    "a server",
    {
        "command": Field("command", Words(), "the program that starts the server; the words after it may follow here or in args"),
        "args": Field(
            "args",
            ListOf(Text(least=0), problem="Server '{server}' in toolbox '{toolbox}': 'args' must be an array"),
            "the words after the program",
        ),
        "env": Field(
            "env",
            MapOf(
                Text("a string", 0),
                "an object of strings",
                "Server '{server}' in toolbox '{toolbox}': 'env' must be an object",
            ),
            "variables of its environment",
        ),
        "envFile": Field("env_file", _TEXT, "a file of NAME=value lines; env goes before it"),
        "inherit": Field("inherit", _TEXTS, "names of variables it gets from the gateway's own environment"),
        "cwd": Field("cwd", _TEXT, "the folder it starts in; that of this file if absent"),
        "url": Field("url", _TEXT, "where the server is: http, https, ws or wss"),
        "headers": Field("headers", MapOf(Text(least=0), "an object of strings"), "sent with each request to it"),
        "board": Field("board", _TEXT, "a Python file with a board, served in this process: tools.py or tools.py:board"),
        "transport": Field("transport", _TRANSPORT, "how it is spoken to, where command or url do not say it"),
        "type": Field("type", _TRANSPORT, "the same as transport"),
        "version": Field("version", _one_of(*REVISIONS), "the only revision of the protocol to speak with it"),
        "timeout": Field("timeout", _SECONDS, "seconds that a request may be without news: 60"),
        "connectTimeout": Field("connect_timeout", _SECONDS, "seconds to connect: 10"),
        "maxTimeout": Field("max_timeout", _SECONDS, "seconds that a request may take in all: 600"),
        "idleTimeout": Field("idle_seconds", _SECONDS, "seconds without a request after which it is stopped: never"),
        "share": Field(
            "share", _one_of("all", "principal", "session"), "who shares a connection: all callers, one principal, one session"
        ),
        "lazy": Field("lazy", Flag(), "true: connected when it is first needed"),
        "enabled": Field("enabled", Flag(), "false: kept in the file, not used"),
        "disabled": Field("disabled", Flag(), "the opposite of enabled"),
        "concurrency": Field("concurrency", Whole(1, 10_000), "requests at the same time: 64"),
        "toolFilters": Field("tool_filters", _TEXTS, 'patterns of tools that are shown; "!name" leaves one out'),
        "tools": Field("tools", MapOf(_TOOL, "an object of tools by name"), "changes to tools, by the server's names for them"),
        "arguments": Field("arguments", _STRICTNESS, "strict: arguments are not repaired"),
        "tags": Field("tags", _TEXTS, "of all its tools"),
        "category": Field("category", _TEXT, "of all its tools"),
        "roots": Field("roots", _TEXTS, "folders it is told of when it asks for roots outside of a call"),
        "middleware": Field("middleware", _MIDDLEWARE, "around the calls of its tools"),
        "auth": Field("auth", _AUTH, "how to log in to it"),
    },
)  # fmt: skip

TOOLBOX: Final = Fields(
    "a toolbox",
    {
        "description": Field(
            "description",
            Text(problem="Toolbox '{toolbox}' must have a description"),
            "what the toolbox is for: read by people and models",
        ),
        "names": Field("names", _one_of("qualified", "plain"), "plain: its tools keep their own names"),
        "toolMode": Field("mode", _MODE, "instead of the gateway's"),
        "arguments": Field("arguments", _STRICTNESS, "strict: arguments are not repaired"),
        "middleware": Field("middleware", _MIDDLEWARE, "around the calls of its tools"),
        "mcpServers": Field(
            "servers",
            MapOf(SERVER, "an object of servers by name", "Toolbox '{toolbox}' must have an 'mcpServers' object"),
            "its servers by name",
        ),
    },
    required={
        "description": "Toolbox '{toolbox}' must have a description",
        "mcpServers": "Toolbox '{toolbox}' must have an 'mcpServers' object",
    },
)

_BUDGET: Final = Whole(SMALLEST_BUDGET, LONGEST)
_ENDPOINT: Final = Fields(
    "an endpoint",
    {
        "toolMode": Field("mode", _MODE, "instead of the gateway's and its toolboxes'"),
        "nameBudget": Field("name_budget", _BUDGET, "letters that a tool's name may have there"),
    },
    short="toolMode",
)
_PRINCIPAL: Final = Fields(
    "a principal", {"toolMode": Field("mode", _MODE, "instead of every other")}, short="toolMode"
)

ROOT: Final = Fields(
    "a configuration",
    {
        "$schema": Field("schema", _TEXT, "where editors find this schema"),
        "name": Field("name", _TEXT, "what the gateway calls itself"),
        "toolMode": Field("mode", _MODE, "all: every tool listed; dynamic: those of opened toolboxes; proxy: meta-tools; auto"),
        "autoTokens": Field("auto_tokens", Whole(0, 100_000_000), "tokens of definitions above which auto means proxy: 10000"),
        "nameBudget": Field("name_budget", _BUDGET, "letters that a tool's name may have: 64"),
        "lock": Field(
            "lock",
            Fields(
                "lock",
                {
                    "policy": Field("policy", _one_of("off", "report", "quarantine"), "what happens to changed tools"),
                    "path": Field("path", _TEXT, "the lock file; beside this file if absent"),
                },
                short="policy",
            ),
            "what happens to tools that changed since they were accepted: report",
        ),
        "middleware": Field("middleware", _MIDDLEWARE, "around the calls of all tools"),
        "endpoints": Field(
            "endpoints",
            MapOf(_ENDPOINT, "an object of endpoints by the names of their toolboxes"),
            "how endpoints differ from the rest: a toolbox's, or * for that of all",
        ),
        "principals": Field(
            "principals", MapOf(_PRINCIPAL, "an object of principals by name"), "how what single callers are shown differs"
        ),
        "toolboxes": Field(
            "toolboxes",
            MapOf(TOOLBOX, "an object of toolboxes by name", "Configuration must have a 'toolboxes' object"),
            "the toolboxes by name",
        ),
    },
    required={"toolboxes": "Configuration must have a 'toolboxes' object"},
)  # fmt: skip


def build_schema() -> dict[str, Json]:
    """The JSON Schema of a configuration, as it is shipped for editors."""
    name = {"pattern": r"^(?!_)(?!.*__)(?!.*_$)[A-Za-z0-9_-]+$|\$\{"}
    server = SERVER.schema()
    server["anyOf"] = [{"required": [key]} for key in ("command", "url", "board")]
    toolbox = TOOLBOX.schema()
    toolbox["properties"]["mcpServers"] = {
        **toolbox["properties"]["mcpServers"],
        "additionalProperties": {"$ref": "#/$defs/server"},
        "propertyNames": name,
        "minProperties": 1,
    }
    root = ROOT.schema()
    root["properties"]["toolboxes"] = {
        **root["properties"]["toolboxes"],
        "additionalProperties": {"$ref": "#/$defs/toolbox"},
        "propertyNames": name,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a Pegboard gateway",
        **root,
        "$defs": {"toolbox": toolbox, "server": server},
    }
