"""Creates the middleware that a configuration names."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pegboard.middleware
from pegboard.config.config_keys import MiddlewareConfig
from pegboard.config.gateway_config import GatewayConfig, LateReport
from pegboard.config.middleware_options import MIDDLEWARE, read_options
from pegboard.config.mistakes import ConfigReport
from pegboard.config.source_file import KeyPath
from pegboard.errors import DeclarationError, SetupError
from pegboard.hooks.middleware import check_middleware
from pegboard.middleware.observability.metrics import Metrics


class ConfiguredMiddleware:
    """All middleware of a configuration, created once: `shared` with its toolbox, if any; `own` by server.

    `metrics` is one for the whole file, wherever it is listed, since it is scraped at one path.
    SetupError reports all that cannot be created, each with its place in the file.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.shared: list[tuple[Any, str | None]] = []
        self.own: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.metrics: Metrics | None = None
        notes = LateReport(config)
        with _beside(config.path):
            self._make(config, notes)
        notes.raise_if_any()

    def _make(self, config: GatewayConfig, notes: ConfigReport) -> None:
        self.shared += [(made, None) for made in self._make_all(config.middleware, (), notes)]
        for toolbox in config.toolboxes.values():
            place: KeyPath = ("toolboxes", toolbox.name)
            self.shared += [(made, toolbox.name) for made in self._make_all(toolbox.middleware, place, notes)]
            for server in toolbox.servers.values():
                inside = (*place, "mcpServers", server.name)
                self.own[toolbox.name, server.name] = tuple(self._make_all(server.middleware, inside, notes))

    def _make_all(self, configs: Iterable[MiddlewareConfig], place: KeyPath, notes: ConfigReport) -> Iterator[Any]:
        for position, config in enumerate(configs):
            made = _make(config, (*place, "middleware", position), notes)
            if isinstance(made, Metrics):
                if any(middleware is self.metrics for middleware, toolbox in self.shared if toolbox is None):
                    # It measures every call already.
                    continue
                made = self.metrics = self.metrics or made
            if made is not None:
                yield made


@contextmanager
def _beside(path: str) -> Iterator[None]:
    """Modules beside the configuration can be named, as boards can; libraries with the same name take precedence."""
    folder = str(Path(path).resolve().parent) if path else ""
    if not folder or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _make(config: MiddlewareConfig, place: KeyPath, notes: ConfigReport) -> Any:
    """The middleware, or None after a report of what is wrong."""
    mistakes = notes.count
    made = _find(config.use, place, notes)
    if isinstance(made, type):
        # Those of built-in middleware were read with the file.
        options = config.options if config.use in MIDDLEWARE else read_options(made, config.options, place, notes)
        if notes.count == mistakes:
            try:
                made = made(**options)
            except (TypeError, ValueError, DeclarationError, SetupError) as problem:
                notes.add_mistake((*place, "options"), f"{config.use} does not accept these options: {problem}")
    elif config.options and notes.count == mistakes:
        notes.add_mistake((*place, "options"), f"{config.use} is a function and takes no options", fix="remove them")
    if notes.count > mistakes:
        return None
    try:
        check_middleware(made)
    except DeclarationError as problem:
        notes.add_mistake(place, str(problem))
        return None
    if config.order is not None:
        made.order = config.order
    return made


def _find(use: str, place: KeyPath, notes: ConfigReport) -> Any:
    module, colon, name = use.partition(":")
    if not colon:
        # Whether it exists was checked when the configuration was read.
        return getattr(pegboard.middleware, use)
    try:
        return getattr(import_module(module), name)
    except ImportError as problem:
        notes.add_mistake((*place, "use"), f"cannot import {use!r}: {problem}")
    except AttributeError:
        notes.add_mistake((*place, "use"), f"{module} has no {name!r}")
    return None
