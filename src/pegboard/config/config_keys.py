"""The keys of a configuration and their types, also as a JSON Schema for editors."""

from __future__ import annotations

from typing import Final

from pegboard.call import Json
from pegboard.config.value_types import (
    AnyValue,
    BooleanValue,
    ChoiceValue,
    IntegerValue,
    ListValue,
    MapValue,
    NumberValue,
    ObjectField,
    ObjectValue,
    TextValue,
)
from pegboard.protocol.revisions import REVISIONS
from pegboard.tools.naming import MAX_NAME_LENGTH
from pegboard.tools.qualified_names import SMALLEST_BUDGET


def _one_of(*words: str) -> ChoiceValue:
    return ChoiceValue({word: word for word in words})


_TEXT: Final = TextValue()
_TEXTS: Final = ListValue(_TEXT)
_COMMAND: Final = ListValue(TextValue(least=0), single=TextValue("a string or a list of strings", 0))
_SECONDS: Final = NumberValue()
_OBJECT: Final = MapValue(AnyValue())
_MODE: Final = _one_of("all", "dynamic", "proxy", "auto")
_STRICTNESS: Final = _one_of("lenient", "strict")
_TRANSPORT: Final = ChoiceValue(
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

_MIDDLEWARE: Final = ListValue(
    ObjectValue(
        "a middleware",
        {
            "use": ObjectField("use", _TEXT, "a class of pegboard.middleware, or any other as module:Name"),
            "order": ObjectField("order", NumberValue("a number", None), "lower ones are outside of higher ones"),
            "options": ObjectField("options", _OBJECT, "what it is made with"),
        },
        required={"use": "a middleware has no 'use'"},
        short="use",
    ),
    expected="a list of middleware",
)

_ARGUMENT: Final = ObjectValue(
    "an argument",
    {
        "name": ObjectField("name", _TEXT, "the name it is shown under"),
        "description": ObjectField("description", _TEXT, "what is said of it instead of the server's own words"),
        "hidden": ObjectField("hidden", BooleanValue(), "not shown to callers"),
        "value": ObjectField("value", AnyValue(), "hidden from callers and always sent"),
        "default": ObjectField("default", AnyValue(), "sent where a caller leaves it out"),
    },
)

_TOOL: Final = ObjectValue(
    "a tool",
    {
        "name": ObjectField("name", _TEXT, "the name it is shown under"),
        "title": ObjectField("title", _TEXT, "the title it is shown under"),
        "description": ObjectField("description", _TEXT, "what is said of it instead of the server's own words"),
        "enabled": ObjectField("enabled", BooleanValue(), "false: not shown, cannot be called"),
        "inputSchema": ObjectField(
            "input_schema", _OBJECT, "the schema its arguments are checked against, instead of its own"
        ),
        "annotations": ObjectField("annotations", _OBJECT, "hints such as readOnlyHint, put over the server's own"),
        "tags": ObjectField("tags", _TEXTS, "put to those of the server"),
        "category": ObjectField("category", _TEXT, "what middleware and budgets know it by"),
        "timeout": ObjectField("timeout", _SECONDS, "seconds without news, instead of the server's"),
        "arguments": ObjectField("arguments", MapValue(_ARGUMENT), "its arguments, by the server's names for them"),
    },
)

_AUTH: Final = ObjectValue(
    "auth",
    {
        "kind": ObjectField(
            "kind",
            ChoiceValue(
                {
                    "oauth": "oauth",
                    "client_credentials": "client_credentials",
                    "clientCredentials": "client_credentials",
                    "none": "none",
                }
            ),
            "oauth: a person logs in; client_credentials: the gateway speaks for itself; none: never log in",
        ),
        "clientId": ObjectField("client_id", _TEXT, "where the gateway is registered with the authorization server"),
        "clientSecret": ObjectField("client_secret", _TEXT, "its secret, as ${VARIABLE}"),
        "privateKey": ObjectField("private_key", _TEXT, "a PEM, or the file with one"),
        "clientMetadataUrl": ObjectField(
            "client_metadata_url", _TEXT, "the document that describes the gateway as a client"
        ),
        "issuer": ObjectField("issuer", _TEXT, "the only authorization server that the credentials are for"),
        "scopes": ObjectField("scopes", _TEXTS, "asked for besides what the server asks for"),
        "redirectPort": ObjectField(
            "redirect_port", IntegerValue(1, 65535), "the loopback port that a browser comes back to"
        ),
    },
    short="kind",
)

SERVER: Final = ObjectValue(
    "a server",
    {
        "command": ObjectField("command", _COMMAND, "the program that starts the server; the words after it may follow here or in args"),
        "args": ObjectField(
            "args",
            ListValue(TextValue(least=0), problem="{server}: 'args' must be an array"),
            "the words after the program",
        ),
        "env": ObjectField(
            "env",
            MapValue(
                TextValue("a string", 0),
                "an object of strings",
                "{server}: 'env' must be an object",
            ),
            "variables of its environment",
        ),
        "envFile": ObjectField("env_file", _TEXT, "a file of NAME=value lines; env goes before it"),
        "inherit": ObjectField("inherit", _TEXTS, "names of variables it gets from the gateway's own environment"),
        "cwd": ObjectField("cwd", _TEXT, "the folder it starts in; that of this file if absent"),
        "url": ObjectField("url", _TEXT, "where the server is: http, https, ws or wss"),
        "headers": ObjectField("headers", MapValue(TextValue(least=0), "an object of strings"), "sent with each request to it"),
        "board": ObjectField("board", _TEXT, "a Python file with a board, served in this process: tools.py or tools.py:board"),
        "transport": ObjectField("transport", _TRANSPORT, "how it is spoken to, where command or url do not say it"),
        "type": ObjectField("type", _TRANSPORT, "the same as transport"),
        "version": ObjectField("version", _one_of(*REVISIONS), "the only revision of the protocol to speak with it"),
        "timeout": ObjectField("timeout", _SECONDS, "seconds that a request may be without news: 60"),
        "connectTimeout": ObjectField("connect_timeout", _SECONDS, "seconds to connect: 10"),
        "maxTimeout": ObjectField("max_timeout", _SECONDS, "seconds that a request may take in all: 600"),
        "idleTimeout": ObjectField("idle_seconds", _SECONDS, "seconds without a request after which it is stopped: never"),
        "share": ObjectField(
            "share", _one_of("all", "principal", "session"), "who shares a connection: all callers, one principal, one session"
        ),
        "lazy": ObjectField("lazy", BooleanValue(), "true: connected when it is first needed"),
        "enabled": ObjectField("enabled", BooleanValue(), "false: kept in the file, not used"),
        "disabled": ObjectField("disabled", BooleanValue(), "the opposite of enabled"),
        "concurrency": ObjectField("concurrency", IntegerValue(1, 10_000), "requests at the same time: 64"),
        "toolFilters": ObjectField("tool_filters", _TEXTS, 'patterns of tools that are shown; "!name" leaves one out'),
        "tools": ObjectField("tools", MapValue(_TOOL, "an object of tools by name"), "changes to tools, by the server's names for them"),
        "arguments": ObjectField("arguments", _STRICTNESS, "strict: arguments are not repaired"),
        "tags": ObjectField("tags", _TEXTS, "of all its tools"),
        "category": ObjectField("category", _TEXT, "of all its tools"),
        "roots": ObjectField("roots", _TEXTS, "folders it is told of when it asks for roots outside of a call"),
        "middleware": ObjectField("middleware", _MIDDLEWARE, "around the calls of its tools"),
        "auth": ObjectField("auth", _AUTH, "how to log in to it"),
    },
)  # fmt: skip

TOOLBOX: Final = ObjectValue(
    "a toolbox",
    {
        "description": ObjectField(
            "description",
            TextValue(problem="Toolbox '{toolbox}' must have a description"),
            "what the toolbox is for: read by people and models",
        ),
        "names": ObjectField("names", _one_of("qualified", "plain"), "plain: its tools keep their own names"),
        "toolMode": ObjectField("mode", _MODE, "instead of the gateway's"),
        "arguments": ObjectField("arguments", _STRICTNESS, "strict: arguments are not repaired"),
        "middleware": ObjectField("middleware", _MIDDLEWARE, "around the calls of its tools"),
        "mcpServers": ObjectField(
            "servers",
            MapValue(SERVER, "an object of servers by name", "Toolbox '{toolbox}' must have an 'mcpServers' object"),
            "its servers by name",
        ),
    },
    required={
        "description": "Toolbox '{toolbox}' must have a description",
        "mcpServers": "Toolbox '{toolbox}' must have an 'mcpServers' object",
    },
)

_BUDGET: Final = IntegerValue(SMALLEST_BUDGET, MAX_NAME_LENGTH)
_ENDPOINT: Final = ObjectValue(
    "an endpoint",
    {
        "toolMode": ObjectField("mode", _MODE, "instead of the gateway's and its toolboxes'"),
        "nameBudget": ObjectField("name_budget", _BUDGET, "letters that a tool's name may have there"),
    },
    short="toolMode",
)
_PRINCIPAL: Final = ObjectValue(
    "a principal", {"toolMode": ObjectField("mode", _MODE, "instead of every other")}, short="toolMode"
)

ROOT: Final = ObjectValue(
    "a configuration",
    {
        "$schema": ObjectField("schema", _TEXT, "where editors find this schema"),
        "name": ObjectField("name", _TEXT, "what the gateway calls itself"),
        "toolMode": ObjectField("mode", _MODE, "all: every tool listed; dynamic: those of opened toolboxes; proxy: meta-tools; auto"),
        "autoTokens": ObjectField("auto_tokens", IntegerValue(0, 100_000_000), "tokens of definitions above which auto means proxy: 10000"),
        "nameBudget": ObjectField("name_budget", _BUDGET, "letters that a tool's name may have: 64"),
        "lock": ObjectField(
            "lock",
            ObjectValue(
                "lock",
                {
                    "policy": ObjectField("policy", _one_of("off", "report", "quarantine"), "what happens to changed tools"),
                    "path": ObjectField("path", _TEXT, "the lock file; beside this file if absent"),
                },
                short="policy",
            ),
            "what happens to tools that changed since they were accepted: report",
        ),
        "middleware": ObjectField("middleware", _MIDDLEWARE, "around the calls of all tools"),
        "endpoints": ObjectField(
            "endpoints",
            MapValue(_ENDPOINT, "an object of endpoints by the names of their toolboxes"),
            "how endpoints differ from the rest: a toolbox's, or * for that of all",
        ),
        "principals": ObjectField(
            "principals", MapValue(_PRINCIPAL, "an object of principals by name"), "how what single callers are shown differs"
        ),
        "toolboxes": ObjectField(
            "toolboxes",
            MapValue(TOOLBOX, "an object of toolboxes by name", "Configuration must have a 'toolboxes' object"),
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
