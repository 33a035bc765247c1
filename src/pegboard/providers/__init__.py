"""Tools for the APIs of model providers: definitions out, tool calls in, results back."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

_HOMES = {
    "FORMATS": "pegboard.providers.tool_export",
    "READERS": "pegboard.providers.provider",
    "Definition": "pegboard.providers.tool_export",
    "Export": "pegboard.providers.tool_export",
    "ExportOptions": "pegboard.providers.tool_export",
    "Provider": "pegboard.providers.provider",
    "TokenUsage": "pegboard.providers.provider",
    "export": "pegboard.providers.tool_export",
    "export_tools": "pegboard.providers.tool_export",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
