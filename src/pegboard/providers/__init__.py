"""Tools for the APIs of model providers: definitions out, tool calls in, results back."""

from pegboard.providers.export import FORMATS, Definition, Export, ExportOptions, export, export_tools
from pegboard.providers.provider import READERS, Provider, TokenUsage

__all__ = [
    "FORMATS",
    "READERS",
    "Definition",
    "Export",
    "ExportOptions",
    "Provider",
    "TokenUsage",
    "export",
    "export_tools",
]
