"""One board for every tool an agent may use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Names load when they are first used: a program pays for what it asks for, and `import pegboard` for nothing.
_HOMES = {
    "Board": "pegboard.board",
    "Client": "pegboard.client.client",
    "Context": "pegboard.execution.context",
    "CancellationToken": "pegboard.execution.context",
    "Limits": "pegboard.limits",
    "ToolError": "pegboard.errors",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pegboard' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
