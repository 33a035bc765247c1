"""The keys of a configuration and their types, also as a JSON Schema for editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pegboard.call import Json
from pegboard.config.confinement_keys import CONFINE, RESOURCES
from pegboard.config.inbound_auth import AUTH
from pegboard.config.quota_keys import QUOTA, QUOTAS
from pegboard.config.rule_keys import RULES
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
    UnreadObject,
)
from pegboard.protocol.json_values import as_object
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
_REPAIR_NOTES: Final = _one_of("text", "meta", "off")
_NOTED: Final = "where results report repairs: text (for the model, too), meta or off"
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
            "order": ObjectField("order", NumberValue("a number", None), "the lowest is outermost"),
            "options": ObjectField("options", UnreadObject(), "its constructor arguments"),
        },
        required={"use": "a middleware has no 'use'"},
        short="use",
    ),
    expected="a list of middleware",
)

_ARGUMENT: Final = ObjectValue(
    "an argument",
    {
        "name": ObjectField("name", _TEXT, "the name that callers see"),
        "description": ObjectField("description", _TEXT, "replaces the server's description"),
        "hidden": ObjectField("hidden", BooleanValue(), "hide it from callers"),
        "value": ObjectField("value", AnyValue(), "hidden from callers and always sent"),
        "default": ObjectField("default", AnyValue(), "sent if a caller omits it"),
        "schema": ObjectField("schema", _OBJECT, "keywords such as type or enum, in place of the server's"),
    },
)

_TOOL: Final = ObjectValue(
    "a tool",
    {
        "name": ObjectField("name", _TEXT, "the name that callers see"),
        "title": ObjectField("title", _TEXT, "the title that callers see"),
        "description": ObjectField("description", _TEXT, "replaces the server's description"),
        "enabled": ObjectField("enabled", BooleanValue(), "false: hidden, and calls are rejected"),
        "inputSchema": ObjectField(
            "input_schema", _OBJECT, "the schema for checking its arguments, in place of its own"
        ),
        "annotations": ObjectField("annotations", _OBJECT, "hints such as readOnlyHint; they replace the server's own"),
        "tags": ObjectField("tags", _TEXTS, "added to the tags of the server"),
        "category": ObjectField("category", _TEXT, "the category for middleware and budgets"),
        "timeout": ObjectField("timeout", _SECONDS, "seconds without news, in place of the server's"),
        "arguments": ObjectField("arguments", MapValue(_ARGUMENT), "its arguments, by the server's names"),
        "repairNotes": ObjectField("repair_notes", _REPAIR_NOTES, _NOTED),
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
                    "exchange": "exchange",
                    "header": "header",
                    "none": "none",
                }
            ),
            "oauth: a person logs in; client_credentials: the gateway logs in itself; exchange: the caller's token is "
            "exchanged for one of the server; header: each user enters a key; none: never log in",
        ),
        "per": ObjectField(
            "per", _one_of("gateway", "user"), "who logs in with oauth: the operator once, or each user"
        ),
        "clientId": ObjectField("client_id", _TEXT, "the client id of the gateway at the authorization server"),
        "clientSecret": ObjectField("client_secret", _TEXT, "its secret, as ${VARIABLE}"),
        "privateKey": ObjectField("private_key", _TEXT, "a private key in PEM format, or the file with one"),
        "clientMetadataUrl": ObjectField(
            "client_metadata_url", _TEXT, "the URL of the gateway's client metadata document"
        ),
        "issuer": ObjectField("issuer", _TEXT, "the only authorization server that may get the credentials"),
        "scopes": ObjectField("scopes", _TEXTS, "scopes to request in addition to those that the server asks for"),
        "redirectPort": ObjectField(
            "redirect_port", IntegerValue(1, 65535), "the loopback port for the redirect of the browser"
        ),
        "header": ObjectField("header", _TEXT, "kind header: the header for the user's key: Authorization"),
        "scheme": ObjectField(
            "scheme", TextValue(least=0), "kind header: the word before the key: Bearer in Authorization, else none"
        ),
        "key": ObjectField(
            "key", _TEXT, "kind header: the gateway's own key, with which it reads the lists of the server"
        ),
        "audience": ObjectField("audience", _TEXT, "kind exchange: the audience to request, besides the server's URL"),
        "identityProvider": ObjectField(
            "identity_provider",
            ObjectValue(
                "an identity provider",
                {
                    "issuer": ObjectField("issuer", _TEXT, "its URL"),
                    "clientId": ObjectField("client_id", _TEXT, "the client id of the gateway there"),
                    "clientSecret": ObjectField("client_secret", _TEXT, "its secret, as ${VARIABLE}"),
                    "subjectType": ObjectField(
                        "subject_type",
                        _one_of("access_token", "id_token", "jwt"),
                        "what callers' tokens are: access_token",
                    ),
                },
                required={
                    "issuer": "an identity provider has no 'issuer'",
                    "clientId": "an identity provider has no 'clientId'",
                },
            ),
            "kind exchange: get an identity assertion (ID-JAG) there, and exchange that",
        ),
    },
    short="kind",
)

SERVER: Final = ObjectValue(
    "a server",
    {
        "command": ObjectField("command", _COMMAND, "the program to start; its arguments follow here or in args"),
        "args": ObjectField(
            "args",
            ListValue(TextValue(least=0), problem="{server}: 'args' must be an array"),
            "the arguments of the program",
        ),
        "env": ObjectField(
            "env",
            MapValue(
                TextValue("a string", 0),
                "an object of strings",
                "{server}: 'env' must be an object",
            ),
            "its environment variables",
        ),
        "envFile": ObjectField("env_file", _TEXT, "a file of NAME=value lines; env takes precedence"),
        "inherit": ObjectField("inherit", _TEXTS, "variables to pass from the gateway's own environment"),
        "cwd": ObjectField("cwd", _TEXT, "its working directory; default: the folder of this file"),
        "url": ObjectField("url", _TEXT, "the URL of the server: http, https, ws or wss"),
        "headers": ObjectField("headers", MapValue(TextValue(least=0), "an object of strings"), "sent with each request"),
        "board": ObjectField("board", _TEXT, "a Python file with a board, served in this process: tools.py or tools.py:board"),
        "transport": ObjectField("transport", _TRANSPORT, "the transport, if command or url do not imply it"),
        "type": ObjectField("type", _TRANSPORT, "the same as transport"),
        "version": ObjectField("version", _one_of(*REVISIONS), "the only protocol revision to use with it"),
        "timeout": ObjectField("timeout", _SECONDS, "seconds that a request may be without news: 60"),
        "connectTimeout": ObjectField("connect_timeout", _SECONDS, "seconds to connect: 10"),
        "maxTimeout": ObjectField("max_timeout", _SECONDS, "total seconds that a request may take: 600"),
        "idleTimeout": ObjectField("idle_seconds", _SECONDS, "seconds without a request after which it is stopped: never"),
        "share": ObjectField(
            "share", _one_of("all", "principal", "session"), "who shares a connection: all callers, one principal, one session"
        ),
        "lazy": ObjectField("lazy", BooleanValue(), "true: connect on the first request"),
        "required": ObjectField("required", BooleanValue(), "true: /ready answers 503 while it is not connected"),
        "enabled": ObjectField("enabled", BooleanValue(), "false: ignore this entry"),
        "disabled": ObjectField("disabled", BooleanValue(), "the opposite of enabled"),
        "concurrency": ObjectField("concurrency", IntegerValue(1, 10_000), "concurrent requests: 64"),
        "toolFilters": ObjectField("tool_filters", _TEXTS, 'patterns of tools to show; "!name" excludes one'),
        "tools": ObjectField("tools", MapValue(_TOOL, "an object of tools by name"), "changes to its tools, by their names"),
        "arguments": ObjectField("arguments", _STRICTNESS, "strict: arguments are not repaired"),
        "repairNotes": ObjectField("repair_notes", _REPAIR_NOTES, _NOTED),
        "tags": ObjectField("tags", _TEXTS, "for all its tools"),
        "category": ObjectField("category", _TEXT, "for all its tools"),
        "roots": ObjectField("roots", _TEXTS, "folders to report if it asks for roots outside of a call"),
        "middleware": ObjectField("middleware", _MIDDLEWARE, "middleware around the requests for its tools, prompts and resources"),
        "auth": ObjectField("auth", _AUTH, "how to log in to it"),
        "confine": ObjectField("confine", CONFINE, "true, or what the program may use besides the system's folders, on Linux"),
        "resources": ObjectField("resources", RESOURCES, "how much of the machine the program may use"),
    },
)  # fmt: skip

TOOLBOX: Final = ObjectValue(
    "a toolbox",
    {
        "description": ObjectField(
            "description",
            TextValue(problem="Toolbox '{toolbox}' must have a description"),
            "the purpose of the toolbox, for people and models",
        ),
        "names": ObjectField("names", _one_of("qualified", "plain"), "plain: its tools keep their own names"),
        "toolMode": ObjectField("mode", _MODE, "replaces the gateway's"),
        "arguments": ObjectField("arguments", _STRICTNESS, "strict: arguments are not repaired"),
        "repairNotes": ObjectField("repair_notes", _REPAIR_NOTES, _NOTED),
        "middleware": ObjectField(
            "middleware", _MIDDLEWARE, "middleware around the requests for its tools, prompts and resources"
        ),
        "mcpServers": ObjectField(
            "servers",
            MapValue(SERVER, "an object of servers by name", "Toolbox '{toolbox}' must have an 'mcpServers' object"),
            "its servers, by name",
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
        "toolMode": ObjectField("mode", _MODE, "replaces the gateway's and its toolboxes'"),
        "nameBudget": ObjectField("name_budget", _BUDGET, "characters that a tool name may have there"),
    },
    short="toolMode",
)
_PRINCIPAL: Final = ObjectValue(
    "a principal", {"toolMode": ObjectField("mode", _MODE, "replaces every other")}, short="toolMode"
)

ROOT: Final = ObjectValue(
    "a configuration",
    {
        "$schema": ObjectField("schema", _TEXT, "the URL of this schema, for editors"),
        "name": ObjectField("name", _TEXT, "the server name that clients see"),
        "toolMode": ObjectField("mode", _MODE, "all: every tool; dynamic: those of opened toolboxes; proxy: meta-tools; auto"),
        "instructions": ObjectField(
            "instructions",
            ObjectValue(
                "instructions",
                {
                    "text": ObjectField("text", _TEXT, "the text, with tags such as {{toolboxes}}"),
                    "file": ObjectField("file", _TEXT, "the file with the text"),
                },
                short="text",
            ),
            "how a model should use this gateway; {{toolboxes}} stands for what it gets without this key",
        ),
        "listWait": ObjectField("list_wait", _SECONDS, "seconds that a list waits for servers that are starting: 10"),
        "autoTokens": ObjectField("auto_tokens", IntegerValue(0, 100_000_000), "tokens of definitions above which auto means proxy: 10000"),
        "nameBudget": ObjectField("name_budget", _BUDGET, "characters that a tool name may have: 64"),
        "lock": ObjectField(
            "lock",
            ObjectValue(
                "lock",
                {
                    "policy": ObjectField("policy", _one_of("off", "report", "quarantine"), "action for changed tools"),
                    "path": ObjectField("path", _TEXT, "the lock file; default: beside this file"),
                },
                short="policy",
            ),
            "what to do about tools that changed since they were accepted: report",
        ),
        "inherit": ObjectField("inherit", _TEXTS, "variables to pass to every process from the gateway's own environment"),
        "middleware": ObjectField("middleware", _MIDDLEWARE, "middleware around all requests for tools, prompts and resources"),
        "endpoints": ObjectField(
            "endpoints",
            MapValue(_ENDPOINT, "an object of endpoints by the names of their toolboxes"),
            "settings of single endpoints: of a toolbox, or * for the one of all",
        ),
        "principals": ObjectField(
            "principals", MapValue(_PRINCIPAL, "an object of principals by name"), "settings of single callers"
        ),
        "auth": ObjectField("auth", AUTH, "which credentials callers need over HTTP"),
        "vault": ObjectField(
            "vault",
            ObjectValue(
                "vault",
                {"key": ObjectField("key", _TEXT, "the key that encrypts them, as ${file:PATH}; default: PEGBOARD_SECRET")},
            ),
            "where users' credentials for servers are kept",
        ),
        "rules": ObjectField("rules", RULES, "what each caller may see and use; the first rule that matches decides"),
        "quotas": ObjectField("quotas", QUOTAS, "what each caller may use: requests, calls, bytes, tokens and more"),
        "toolboxes": ObjectField(
            "toolboxes",
            MapValue(TOOLBOX, "an object of toolboxes by name", "Configuration must have a 'toolboxes' object"),
            "the toolboxes, by name",
        ),
    },
    required={"toolboxes": "Configuration must have a 'toolboxes' object"},
)  # fmt: skip


def build_schema() -> dict[str, Json]:
    """The JSON Schema of a configuration, as shipped for editors."""
    name = {"pattern": r"^(?!_)(?!.*__)(?!.*_$)[A-Za-z0-9_-]+$|\$\{"}
    server = SERVER.schema()
    server["anyOf"] = [{"required": [key]} for key in ("command", "url", "board")]
    toolbox = TOOLBOX.schema()
    servers = {"additionalProperties": {"$ref": "#/$defs/server"}, "propertyNames": name, "minProperties": 1}
    _extend_property(toolbox, "mcpServers", servers)
    root = ROOT.schema()
    toolboxes = {"additionalProperties": {"$ref": "#/$defs/toolbox"}, "propertyNames": name}
    _extend_property(root, "toolboxes", toolboxes)
    _extend_property(root, "quotas", _quotas_schema())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a Pegboard gateway",
        **root,
        "$defs": {"toolbox": toolbox, "server": server, "quota": QUOTA.schema()},
    }


def _quotas_schema() -> dict[str, Json]:
    """The schema of quotas, with one definition of a quota."""
    quota: dict[str, Json] = {"$ref": "#/$defs/quota"}
    several: dict[str, Json] = {"type": "object", "additionalProperties": quota}
    kinds = {"everyone": quota, "anonymous": quota, "roles": several, "principals": several}
    properties = {name: {**kinds[name], "description": field.about} for name, field in QUOTAS.fields.items()}
    return {**QUOTAS.schema(), "properties": properties}


def _extend_property(schema: dict[str, Json], name: str, keywords: Mapping[str, Json]) -> None:
    properties = as_object(schema["properties"])
    schema["properties"] = {**properties, name: {**as_object(properties[name]), **keywords}}
