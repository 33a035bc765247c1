"""Tools for the providers of models: definitions out, tool calls in, answers back."""

from pegboard.tools.export import FORMATS, Definition, Export, Wish, export, export_tools
from pegboard.tools.providers import READERS, Provider

__all__ = ["FORMATS", "READERS", "Definition", "Export", "Provider", "Wish", "export", "export_tools"]
