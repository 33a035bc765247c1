"""Configuration files: server entries, client formats, variables, and a report of every mistake."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

# Loaded when it is first used: most boards have no rules.
_HOMES = {"read_rules": "pegboard.config.rule_keys"}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
