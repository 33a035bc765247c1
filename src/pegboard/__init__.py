"""One board for every tool an agent may use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Names load when they are first used: a program pays for what it asks for, and `import pegboard` for nothing.
_HOMES = {
    "Accepted": "pegboard.execution.questions",
    "Audio": "pegboard.tools.media",
    "Board": "pegboard.board",
    "CancellationToken": "pegboard.execution.context",
    "Cancelled": "pegboard.execution.questions",
    "Cardinality": "pegboard.tools.parameters",
    "Client": "pegboard.client.client",
    "ClientCredentials": "pegboard.client.login.oauth",
    "Context": "pegboard.execution.context",
    "Declined": "pegboard.execution.questions",
    "Description": "pegboard.tools.constraints",
    "Elicit": "pegboard.execution.questions",
    "EnumConstraint": "pegboard.tools.constraints",
    "File": "pegboard.tools.media",
    "Gateway": "pegboard.gateway.gateway",
    "Header": "pegboard.tools.constraints",
    "Image": "pegboard.tools.media",
    "InvalidArguments": "pegboard.errors",
    "JsonRpcMessage": "pegboard.tools.message",
    "Limits": "pegboard.limits",
    "Link": "pegboard.tools.media",
    "MaxLength": "pegboard.tools.constraints",
    "Middleware": "pegboard.execution.hooks",
    "MinLength": "pegboard.tools.constraints",
    "OAuth": "pegboard.client.login.oauth",
    "Parameter": "pegboard.tools.parameters",
    "ParseError": "pegboard.tools.problems",
    "ParseWarning": "pegboard.tools.problems",
    "Pattern": "pegboard.tools.constraints",
    "Range": "pegboard.tools.constraints",
    "Roots": "pegboard.execution.questions",
    "Sample": "pegboard.execution.questions",
    "Tool": "pegboard.tools.tool",
    "ToolCallRequest": "pegboard.tools.parameters",
    "ToolCatalog": "pegboard.catalog.catalog",
    "ToolConnector": "pegboard.execution.connector",
    "ToolError": "pegboard.errors",
    "ToolExecutionBatch": "pegboard.execution.executor",
    "ToolExecutionContext": "pegboard.tools.parameters",
    "ToolExecutionRecord": "pegboard.execution.executor",
    "ToolExecutor": "pegboard.execution.executor",
    "ToolResponse": "pegboard.tools.message",
    "ToolResult": "pegboard.tools.result",
    "ValueKind": "pegboard.tools.parameters",
    "schema_of": "pegboard.tools.infer",
    "tool": "pegboard.tools.mark",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pegboard' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
