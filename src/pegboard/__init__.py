"""One board for every tool an agent may use."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

__version__ = "0.1.0"

_HOMES = {
    "Accepted": "pegboard.asking.questions",
    "Answer": "pegboard.asking.questions",
    "Assertion": "pegboard.client.login.oauth",
    "Auth": "pegboard.auth.auth",
    "Audio": "pegboard.media",
    "Board": "pegboard.board",
    "Caller": "pegboard.call",
    "CancellationToken": "pegboard.execution.context",
    "Cancelled": "pegboard.asking.questions",
    "Cardinality": "pegboard.tools.parameters",
    "Client": "pegboard.client.client",
    "ClientCredentials": "pegboard.client.login.oauth",
    "Context": "pegboard.execution.context",
    "Declined": "pegboard.asking.questions",
    "Description": "pegboard.schema.types.constraints",
    "Elicit": "pegboard.asking.questions",
    "EnumConstraint": "pegboard.schema.types.constraints",
    "File": "pegboard.media",
    "Gateway": "pegboard.gateway.gateway",
    "Group": "pegboard.registry",
    "Header": "pegboard.schema.types.constraints",
    "Image": "pegboard.media",
    "InvalidArguments": "pegboard.errors",
    "InvalidParams": "pegboard.errors",
    "JsonRpcMessage": "pegboard.tools.message",
    "Limits": "pegboard.limits",
    "Link": "pegboard.media",
    "MaxLength": "pegboard.schema.types.constraints",
    "Middleware": "pegboard.hooks.middleware",
    "MinLength": "pegboard.schema.types.constraints",
    "NextAction": "pegboard.next_action",
    "OAuth": "pegboard.client.login.oauth",
    "Parameter": "pegboard.tools.parameters",
    "ParseError": "pegboard.argument_problems",
    "ParseWarning": "pegboard.argument_problems",
    "Pattern": "pegboard.schema.types.constraints",
    "PegboardError": "pegboard.errors",
    "Principal": "pegboard.auth.principal",
    "Range": "pegboard.schema.types.constraints",
    "Refusal": "pegboard.errors",
    "Request": "pegboard.tools.message",
    "Root": "pegboard.asking.questions",
    "Roots": "pegboard.asking.questions",
    "Sample": "pegboard.asking.questions",
    "Sampled": "pegboard.asking.questions",
    "Tool": "pegboard.tools.tool",
    "ToolCallRequest": "pegboard.tools.parameters",
    "ToolCatalog": "pegboard.catalog.tool_catalog",
    "ToolConnector": "pegboard.execution.connector",
    "ToolError": "pegboard.errors",
    "ToolExecutionBatch": "pegboard.execution.executor",
    "ToolExecutionContext": "pegboard.tools.parameters",
    "ToolExecutionRecord": "pegboard.execution.executor",
    "ToolExecutor": "pegboard.execution.executor",
    "ToolResponse": "pegboard.tools.message",
    "ToolResult": "pegboard.tools.tool_result",
    "ValueKind": "pegboard.tools.parameters",
    "schema_of": "pegboard.tools.signature",
    "tool": "pegboard.tools.decorator",
}

__all__ = ["__version__", *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
