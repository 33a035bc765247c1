"""Parameters mirrored into HTTP headers."""

from __future__ import annotations

from pegboard.tools.header_parameters import check_headers, mirrored


def test_headers_are_found_along_chains_of_properties() -> None:
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "where": {"type": "object", "properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}}},
            "x-mcp-header": {"type": "string"},
            "free": {"default": {"x-mcp-header": "no schema"}},
        },
    }
    check_headers(schema, "here")
    assert mirrored(schema) == {"Region": ("region",), "Zone": ("where", "zone")}
