"""The contracts of tool names: `{toolbox}__{server}__{tool}`, joined, parsed, registered and rejected."""

from __future__ import annotations

from pegboard import Board, Gateway, join_name, parse_name

# -- generateToolName --------------------------------------------------------------------------------------------------

GENERATED = {
    ("dev", "filesystem", "read_file"): "dev__filesystem__read_file",
    ("prod", "memory", "store_value_async"): "prod__memory__store_value_async",
    ("test", "server", "my__special__tool"): "test__server__my__special__tool",
    ("dev", "filesystem", "read_file_async_v2"): "dev__filesystem__read_file_async_v2",
}

# -- parseToolName -----------------------------------------------------------------------------------------------------

PARSED = {
    "dev__filesystem__read_file": ("dev", "filesystem", "read_file"),
    "prod__memory__store_value_async": ("prod", "memory", "store_value_async"),
    "dev__server__tool__with__extras": ("dev", "server", "tool__with__extras"),
    "dev__filesystem_read_file": None,  # Old format
    "invalid": None,  # Missing components
    "dev__only_two_parts": None,
}


def generate_tool_name(toolbox_name: str, server_name: str, original_tool_name: str) -> str:
    return join_name(toolbox_name, server_name, original_tool_name)


def parse_tool_name(registered_name: str) -> tuple[str, str, str] | None:
    parts = parse_name(registered_name)
    return None if parts is None else (parts.toolbox, parts.server, parts.tool)


# -- Registration ------------------------------------------------------------------------------------------------------

filesystem = Board("filesystem")


@filesystem.tool
async def read_file(path: str) -> str:
    """Reads a file"""
    return f"the text of {path}"


@filesystem.tool("my__special__tool")
async def special_tool() -> str:
    """Has double underscores in its name"""
    return "special"


CONFIG = {
    "toolboxes": {"dev": {"description": "Development tools", "mcpServers": {"filesystem": {"board": filesystem}}}}
}

gateway = Gateway(CONFIG)
"""Dynamic mode as it is today: every tool is listed under its qualified name."""

proxy = Gateway(CONFIG, mode="proxy")
"""Proxy mode: `workbench_use_tool` calls a tool by its qualified name."""

if __name__ == "__main__":
    gateway.run()
