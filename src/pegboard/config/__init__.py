"""Configuration files: server entries, client formats, variables, and a report of every mistake."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

# Loaded when they are first used: most boards have no rules, and most clients no configuration.
_HOMES = {
    "ChildResources": "pegboard.config.confinement_keys",
    "Confinement": "pegboard.config.confinement_keys",
    "FILES": "pegboard.config.gateway_config",
    "read_rules": "pegboard.config.rule_keys",
    "read_server_entry": "pegboard.config.foreign.foreign_entry",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
