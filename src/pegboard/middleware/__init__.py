"""The middleware that comes with Pegboard; each of them costs nothing until it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Names load when they are first used, as those of `pegboard` do.
_HOMES = {
    "MemoryRates": "pegboard.middleware.rates",
    "RateLimit": "pegboard.middleware.rates",
    "RateStore": "pegboard.middleware.rates",
    "RedisRates": "pegboard.middleware.shared_rates",
    "mask": "pegboard.middleware.masking",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pegboard.middleware' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
