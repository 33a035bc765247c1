"""The error for a call of a tool that an endpoint does not serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pegboard.config.gateway_config import ToolboxConfig
from pegboard.errors import DelegationFailed, PegboardError, UnknownTool
from pegboard.gateway.servers.downstream import Downstream
from pegboard.tools.qualified_names import ToolName, delegation_error, parse_name


def withheld_tool(name: str, withheld: Mapping[ToolName, str], toolboxes: Mapping[str, ToolboxConfig]) -> str:
    """Why the tool of this name is withheld; empty if it is not."""
    for place, reason in withheld.items():
        if name == place.qualified or (name == place.tool and toolboxes[place.toolbox].names == "plain"):
            return reason
    return ""


def unavailable_tool(name: str, downstreams: Sequence[Downstream]) -> PegboardError | None:
    """The error if the name belongs to a server whose tools are not known, since it has never been connected."""
    place = parse_name(name)
    for downstream in downstreams:
        if (
            place is not None
            and (downstream.toolbox, downstream.name) == (place.toolbox, place.server)
            and downstream.catalog is None
        ):
            return DelegationFailed(delegation_error(*_parts(place), downstream.explain_unavailable()))
    return None


def unknown_plain_tool(name: str, suggestions: Sequence[str], downstreams: Sequence[Downstream]) -> UnknownTool:
    """The error for a name without a server: similar names, and the servers that may have it but are unavailable."""
    hint = f", did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else ""
    missing = [downstream.name for downstream in downstreams if downstream.catalog is None]
    if missing:
        hint += f"; these servers are unavailable and may have it: {', '.join(missing)}"
    data = {"suggestions": list(suggestions)} if suggestions else None
    return UnknownTool(f"Unknown tool: {name[:128]!r}{hint}", data)


def _parts(place: ToolName) -> tuple[str, str, str]:
    return place.toolbox, place.server, place.tool[:128]
