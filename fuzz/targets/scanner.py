"""The scanner of what servers say of their tools: every text is read in bounded time, and what is shown is printable."""

from __future__ import annotations

import msgspec

from pegboard.gateway.lock.definition_scan import scan_definition, scan_text


def check(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    found = [*scan_text(text, "fuzz"), *scan_text(text, "fuzz", is_name=True)]
    try:
        definition = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        definition = {"name": "fuzz", "description": text}
    if isinstance(definition, dict):
        found += scan_definition(definition)
    for finding in found:
        assert str(finding).isprintable(), finding
