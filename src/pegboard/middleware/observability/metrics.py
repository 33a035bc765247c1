"""Call counts and durations in Prometheus format, with OpenTelemetry's names."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Mapping
from typing import TypeAlias

from pegboard.call import Call, Json
from pegboard.errors import Refusal
from pegboard.hooks.middleware import Middleware
from pegboard.logs.watchdog import TALLY
from pegboard.middleware.call_keys import OTHERS, tool_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The buckets that the conventions recommend for `mcp.server.operation.duration`, in seconds.
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

TOOL_ERROR = "tool_error"
CANCELLED = "cancelled"
_CODES = frozenset({-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022, -32001})

Labels: TypeAlias = tuple[str, ...]

# The label for the name of what was called; completions have none.
_NAME_LABELS = {
    "tools/call": "gen_ai_tool_name",
    "prompts/get": "gen_ai_prompt_name",
    "resources/read": "mcp_resource_uri",
}


def error_type(exception: BaseException) -> str:
    """`error.type` of the conventions: the JSON-RPC code, or that the result is an error for the model."""
    if isinstance(exception, Refusal):
        # Authors may invent codes; labels must stay bounded.
        return str(exception.code) if exception.code in _CODES else "_OTHER"
    return CANCELLED if isinstance(exception, asyncio.CancelledError) else TOOL_ERROR


class _InProgress:
    """A count that changes with every call; not an attribute of the middleware, which checks what is set on it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class _Durations:
    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.total = 0.0


class Metrics(Middleware):
    """Measures every call of any kind; `render()` returns the body of `/metrics`.

    `mcp_server_operation_duration_seconds` by method, tool (or prompt or resource) and kind of error; `pegboard_calls_in_progress`;
    `pegboard_args_repaired_total` by tool and kind of repair; `pegboard_tool_tokens_total` by direction, if TokenCount
    is in use (`estimated` by a TokenBudget); `pegboard_loop_stalls_total` and `pegboard_loop_stall_seconds_total` for the whole process, if the loop
    is watched. After `tools` different tools, and `kinds` of repairs, further ones share one name, so that callers
    cannot increase the number of series.
    """

    order = 2

    def __init__(self, *, tools: int = 1000, kinds: int = 100) -> None:
        self.tools, self._repair_kinds = tools, kinds
        self._names: set[str] = set()
        self._repairs_known: set[str] = set()
        self._durations: dict[Labels, _Durations] = {}
        self._repaired: dict[Labels, int] = {}
        self._tokens: dict[Labels, int] = {}
        self._in_progress = _InProgress()

    async def before(self, call: Call) -> None:
        self._in_progress.count += 1

    async def after(self, call: Call, result: Mapping[str, Json], elapsed_ms: float) -> None:
        self._end(call, TOOL_ERROR if call.failed else "", elapsed_ms)

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        self._end(call, error_type(exception), elapsed_ms)

    def _end(self, call: Call, error: str, elapsed_ms: float) -> None:
        self._in_progress.count -= 1
        name = call.tool.name if call.method in _NAME_LABELS else ""
        durations = self._durations.get((call.method, name, error))
        if durations is None:
            # The first call of a series, or one whose tool is counted under another name.
            name = _bounded(name, self._names, self.tools)
            durations = self._durations.setdefault((call.method, name, error), _Durations())
        seconds = elapsed_ms / 1000
        durations.buckets[bisect_left(BUCKETS, seconds)] += 1
        durations.total += seconds
        if call.parsed is not None and call.parsed.warnings:
            self._count_repairs(call)
        if call._state is not None:
            for direction in ("in", "out", "estimated"):
                tokens = call._state.get("tokens_" + direction)
                if isinstance(tokens, int):
                    self._tokens[direction,] = self._tokens.get((direction,), 0) + tokens

    def _count_repairs(self, call: Call) -> None:
        tool = _bounded(tool_of(call), self._names, self.tools)
        for warning in call.warnings:
            kind = _bounded(str(getattr(warning, "code", "")), self._repairs_known, self._repair_kinds)
            self._repaired[tool, kind] = self._repaired.get((tool, kind), 0) + 1

    def render(self) -> str:
        """All series as text; serve it as CONTENT_TYPE."""
        lines: list[str] = []
        name = "mcp_server_operation_duration_seconds"
        _head(lines, name, "histogram", "Duration of requests, as received here.")
        for (method, tool, error), durations in self._durations.items():
            labels = {"mcp_method_name": method}
            if method in _NAME_LABELS:
                labels[_NAME_LABELS[method]] = tool
            if error:
                labels["error_type"] = error
            seen = 0
            for bound, count in zip((*map(_number, BUCKETS), "+Inf"), durations.buckets, strict=True):
                seen += count
                lines.append(f"{name}_bucket{_labels({**labels, 'le': bound})} {seen}")
            lines.append(f"{name}_sum{_labels(labels)} {_number(durations.total)}")
            lines.append(f"{name}_count{_labels(labels)} {seen}")
        _head(lines, "pegboard_calls_in_progress", "gauge", "Calls that have started and not ended.")
        lines.append(f"pegboard_calls_in_progress {self._in_progress.count}")
        _counters(
            lines, "pegboard_args_repaired_total", "Arguments that were repaired.", ("tool", "kind"), self._repaired
        )
        _counters(lines, "pegboard_tool_tokens_total", "Tokens of arguments and results.", ("direction",), self._tokens)
        if TALLY.watchers:
            _head(lines, "pegboard_loop_stalls_total", "counter", "Number of times the event loop was blocked.")
            lines.append(f"pegboard_loop_stalls_total {TALLY.count}")
            _head(lines, "pegboard_loop_stall_seconds_total", "counter", "Time for which the event loop was blocked.")
            lines.append(f"pegboard_loop_stall_seconds_total {_number(TALLY.seconds)}")
        return "\n".join(lines) + "\n"


def _bounded(name: str, known: set[str], limit: int) -> str:
    if name in known:
        return name
    if len(known) >= limit:
        return OTHERS
    known.add(name)
    return name


def _counters(lines: list[str], name: str, description: str, labels: Labels, series: Mapping[Labels, int]) -> None:
    _head(lines, name, "counter", description)
    for values, count in series.items():
        lines.append(f"{name}{_labels(dict(zip(labels, values, strict=True)))} {count}")


def _head(lines: list[str], name: str, kind: str, description: str) -> None:
    lines.extend((f"# HELP {name} {description}", f"# TYPE {name} {kind}"))


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return repr(value)
