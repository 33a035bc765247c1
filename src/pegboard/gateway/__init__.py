"""Many MCP servers behind one endpoint."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

# Each name loads its module when it is first used.
_HOMES = {
    "Gateway": "pegboard.gateway.gateway",
    "GatewayConfig": "pegboard.config.gateway_config",
    "Logins": "pegboard.gateway.servers.server_logins",
    "ServerConfig": "pegboard.config.gateway_config",
    "ToolName": "pegboard.tools.qualified_names",
    "ToolboxConfig": "pegboard.config.gateway_config",
    "join_name": "pegboard.tools.qualified_names",
    "parse_name": "pegboard.tools.qualified_names",
    "read_config": "pegboard.config.gateway_config",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
