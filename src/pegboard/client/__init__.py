"""The MCP client: one API over every transport and protocol revision."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

# Each name loads its module when it is first used.
_HOMES = {
    "Assertion": "pegboard.client.login.oauth",
    "BrowserLogin": "pegboard.client.login.browser",
    "CallResult": "pegboard.client.call_result",
    "Change": "pegboard.call",
    "Client": "pegboard.client.client",
    "ClientAuth": "pegboard.client.links.link",
    "ClientCredentials": "pegboard.client.login.oauth",
    "ContentBlock": "pegboard.protocol.definitions",
    "Elicitation": "pegboard.client.client_channel",
    "FileStorage": "pegboard.client.login.storage",
    "Login": "pegboard.client.login.browser",
    "MemoryStorage": "pegboard.client.login.storage",
    "OAuth": "pegboard.client.login.oauth",
    "OnElicit": "pegboard.client.client_channel",
    "OnLog": "pegboard.client.client_channel",
    "OnSample": "pegboard.client.client_channel",
    "Progress": "pegboard.client.client_channel",
    "PromptArgument": "pegboard.protocol.definitions",
    "PromptDefinition": "pegboard.protocol.definitions",
    "PromptMessage": "pegboard.protocol.definitions",
    "Redirect": "pegboard.client.login.browser",
    "ResourceContents": "pegboard.protocol.definitions",
    "ResourceDefinition": "pegboard.protocol.definitions",
    "Storage": "pegboard.client.login.storage",
    "Target": "pegboard.client.target",
    "TemplateDefinition": "pegboard.protocol.definitions",
    "ToolDefinition": "pegboard.protocol.definitions",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
