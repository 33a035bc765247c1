"""The cases: what the scripted model does, and which pieces of the server's answer should reach it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_bench.bench_board import LINES, NOTE

IMAGE = "an image"
"""The marker of a piece that is not text."""


@dataclass(frozen=True)
class Case:
    """A call, and the pieces of its answer: what each is called, and the text by which it is recognized.

    The first piece is the answer itself; a case without pieces only records what the model saw.
    """

    name: str
    title: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    pieces: Mapping[str, str] = field(default_factory=dict)
    repairs: str | None = None
    """The case before, whose message says how the arguments have to be repaired (`self_repair.py`)."""
    server: str | None = None
    """The server behind the gateway, for a case that only a gateway in `proxy` mode can show."""


CASES = (
    Case("call", "a call", "join_words", {"first": "ab", "count": 2}, {"result": "ab x2"}),
    Case(
        "converted",
        "a number sent as text",
        "add_numbers",
        {"a": 2, "b": "3.25"},
        {"result": "5.25", "repair note": "read as"},
    ),
    # A date with a space passes the validation of every agent, so the repair is ours.
    Case(
        "repaired",
        "a repaired call",
        "set_alarm",
        {"at": "2026-11-17 07:30Z"},
        {"result": "alarm at 07:30", "repair note": "read as"},
    ),
    Case(
        "repaired_structured",
        "a repaired call with structured output",
        "weigh_parcel",
        {"sent": "2026-11-17 07:30Z"},
        {"result": "2.75", "repair note": "read as"},
    ),
    Case(
        "refused",
        "a refused call",
        "get_weather",
        {"place": "Ulm", "unit": "celcius-or-so", "days": "soon"},
        {"first problem": "unit", "second problem": "days", "allowed values": "kelvin"},
    ),
    Case(
        "fixed",
        "the refused call, repaired by its message",
        "get_weather",
        {"place": "Ulm", "unit": "celcius-or-so", "days": "soon"},
        {"result": "21.5"},
        repairs="refused",
    ),
    Case("tool_error", "a tool error", "print_page", {}, {"error text": "refill tray 2"}),
    Case("protocol_error", "a JSON-RPC error", "break_down", {}, {"error text": "use find_goods"}),
    Case("busy", "a JSON-RPC error with HTTP status 503", "print_poster", {}, {"error text": "again in 10 seconds"}),
    Case("structured", "structured output", "get_weather", {"place": "Ulm"}, {"value": "21.5"}),
    Case("image", "text and an image", "draw_dot", {}, {"text": "A red dot", "image": IMAGE}),
    Case("long", "a long result", "read_log", {}, {"first line": "log line 1\n", "last line": f"log line {LINES}"}),
    Case("cut", "a result cut by a token budget", "read_novel", {}, {"text": "word1", "cut note": "token"}),
    Case(
        "link",
        "a resource link",
        "find_report",
        {},
        {"URI": "https://example.com/report-2026.pdf", "name": "report-2026", "description": "Sales in 2026"},
    ),
    Case("progress", "a call with progress", "bake_bread", {}, {"result": "bread is ready"}),
    Case("elicitation", "elicitation", "delete_file", {}, {"result": "notes.txt is"}),
    Case("carry_after", "note: text block after, beside structured content", "carry_after", {}, {"note": NOTE}),
    Case("carry_before", "note: text block before, beside structured content", "carry_before", {}, {"note": NOTE}),
    Case("carry_file", "note: embedded resource beside structured content", "carry_file", {}, {"note": NOTE}),
    Case("carry_link", "note: resource link beside structured content", "carry_link", {}, {"note": NOTE}),
    Case("carry_log", "note: log message", "carry_log", {}, {"note": NOTE}),
    Case("plant", "a changed list", "plant_tool", {}, {"result": "was added"}),
    Case("carry_plain", "note: text block, no structured content", "carry_plain", {}, {"note": NOTE}),
    Case("carry_meta", "note: `_meta`", "carry_meta", {}, {"note": NOTE}),
    Case(
        "misspelt",
        "a misspelt tool name",
        "join_word",
        {"first": "ab", "count": 2},
        {"suggestion": "main__bench__join_words"},
        server="bench",
    ),
    Case("login", "a server that needs a login", "open_safe", {}, {"reason": "needs a login"}, server="vault"),
    # A few calls after the change, because an agent may read the list in the background.
    Case("added", "a tool added while running", "pick_flower", {}, {"result": "A tulip"}),
    # The last one: nothing can be called after it.
    Case("server_lost", "the server ends during a call", "stop_server", {}),
)
